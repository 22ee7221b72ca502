"""Prints how large the house is: lines by folder, biggest classes, full folders, words of READMEs.

  bazel run //tests/lint:house
  bazel run //tests/lint:house -- --at=d0530f1    an earlier commit, to compare with
"""

import argparse
import os
import subprocess
import tempfile
from collections import Counter, defaultdict

import class_sizes
import rules
import source_tree

CLASSES_SHOWN = 12
FOLDER_FILES_MAX = 25
README_LINES_MAX = 150


def kind_of(path):
    if path.endswith(source_tree.CPP_SUFFIXES):
        return "C++"
    if path.endswith((".bazel", ".bzl")) or path == "WORKSPACE":
        return "BUILD"
    if path.endswith(".proto"):
        return "proto"
    return "other" if rules.is_code(path) else None


def lines_by_folder(texts):
    """{(top folder, kind): lines} of the product, and {kind: lines} of the tests."""
    product, tests = Counter(), Counter()
    for path, text in texts.items():
        kind = kind_of(path)
        if kind is None:
            continue
        if class_sizes.is_product(path):
            product[path.split("/")[0] if "/" in path else ".", kind] += text.count("\n")
        else:
            tests[kind] += text.count("\n")
    return product, tests


def print_report(texts):
    product, tests = lines_by_folder(texts)
    kinds = ["C++", "proto", "BUILD", "other"]
    print(f"{'product, lines':24}" + "".join(f"{kind:>8}" for kind in kinds) + f"{'all':>8}")
    for folder in sorted({folder for folder, _ in product}):
        row = [product[folder, kind] for kind in kinds]
        print(f"{folder:24}" + "".join(f"{lines:8}" for lines in [*row, sum(row)]))
    row = [sum(product[folder, kind] for folder, kind in product if kind == each)
           for each in kinds]
    print(f"{'all':24}" + "".join(f"{lines:8}" for lines in [*row, sum(row)]))
    row = [tests[kind] for kind in kinds]
    print(f"{'tests':24}" + "".join(f"{lines:8}" for lines in [*row, sum(row)]))

    print("\nbiggest classes            lines  public functions")
    biggest = sorted(class_sizes.of(texts), key=lambda each: -each.lines)[:CLASSES_SHOWN]
    for each in biggest:
        print(f"{each.name:26} {each.lines:5} {each.public:9}  {os.path.dirname(each.header)}")

    print(f"\nfolders of more than {FOLDER_FILES_MAX} files")
    folders = defaultdict(int)
    for path in texts:
        folders[os.path.dirname(path)] += rules.is_code(path)
    for folder, files in sorted(folders.items(), key=lambda entry: -entry[1]):
        if files > FOLDER_FILES_MAX:
            print(f"{files:5}  {folder}")

    readmes = {path: text for path, text in texts.items() if path.endswith("README.md")}
    words = sum(len(text.split()) for text in readmes.values())
    long = [path for path, text in readmes.items() if text.count("\n") > README_LINES_MAX]
    wide = [path for path, text in readmes.items()
            if any(len(line) > rules.COLUMNS_MAX for line in text.split("\n"))]
    print(f"\n{len(readmes)} READMEs of {words} words; {len(long)} of more than "
          f"{README_LINES_MAX} lines, {len(wide)} of more than {rules.COLUMNS_MAX} columns")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", metavar="COMMIT", help="not the files that are there, but these")
    commit = parser.parse_args().at
    root = source_tree.workspace()
    if commit is None:
        return print_report(source_tree.read_all(root, source_tree.files(root)))
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "-C", root, "archive", commit], check=True,
                                 capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive)
        print_report(source_tree.read_all(folder, source_tree.files(folder)))


if __name__ == "__main__":
    main()
