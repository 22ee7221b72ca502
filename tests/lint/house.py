"""Prints how large the house is: lines by folder, biggest classes, full folders, words of READMEs.

  bazel run //tests/lint:house
  bazel run //tests/lint:house -- --at=d0530f1    an earlier commit, to compare with
"""

import argparse
import os
import re
import subprocess
import tempfile
from collections import Counter, defaultdict

import rules
import source_tree

CLASSES_SHOWN = 12
FOLDER_FILES_MAX = 25
README_LINES_MAX = 150


def is_product(path):
    helpers = ("/testing/", "/test_", "/emulation/")
    return not rules.is_test(path) and not any(part in path for part in helpers)


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
        if is_product(path):
            product[path.split("/")[0] if "/" in path else ".", kind] += text.count("\n")
        else:
            tests[kind] += text.count("\n")
    return product, tests


def classes(path, text):
    """(name, lines, public functions) of each class or struct that a C++ file declares."""
    code = source_tree.code_of(text)
    for found in re.finditer(r"(?m)^(class|struct) (\w+)(?: final)?(?: :[^;{]*)? \{", code):
        end = code.find("\n};", found.start())
        body = code[found.start():end]
        yield found.group(2), body.count("\n") + 2, public_functions(found.group(1), body)


def public_functions(keyword, body):
    access = "public" if keyword == "struct" else "private"
    count = 0
    for line in body.split("\n")[1:]:
        if section := re.match(r" (public|private|protected):", line):
            access = section.group(1)
        elif access == "public" and re.match(r"  (?=[^ #}]).*\w\(", line):
            count += 1
    return count


def class_sizes(texts):
    """{(folder, class): (lines of its declaration and of its functions, public functions)}."""
    sizes, functions = Counter(), {}
    for path, text in texts.items():
        if path.endswith(".h") and is_product(path):
            for name, lines, public in classes(path, text):
                sizes[os.path.dirname(path), name] += lines
                functions[os.path.dirname(path), name] = public
    for path, text in texts.items():
        if not (rules.is_cpp(path) and is_product(path)):
            continue
        all_lines = source_tree.code_of(text).split("\n")
        for first, last in rules.cpp_functions(text):
            head = "\n".join(all_lines[first - 1:last]).split("{")[0]
            owner = re.search(r"(?:^|[\s*&])(\w+)(?:<[^>]*>)?::~?\w+\s*\(", head)
            key = (os.path.dirname(path), owner.group(1)) if owner else None
            if key in functions:
                sizes[key] += last - first + 1
    return {key: (lines, functions[key]) for key, lines in sizes.items()}


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
    sizes = class_sizes(texts)
    for (folder, name), (lines, public) in sorted(
            sizes.items(), key=lambda entry: -entry[1][0])[:CLASSES_SHOWN]:
        print(f"{name:26} {lines:5} {public:9}  {folder}")

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


def read_all(root):
    texts = {}
    for path in source_tree.files(root):
        try:
            texts[path] = source_tree.read(root, path)
        except UnicodeDecodeError:
            continue  # Not text.
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", metavar="COMMIT", help="not the files that are there, but these")
    commit = parser.parse_args().at
    root = source_tree.workspace()
    if commit is None:
        return print_report(read_all(root))
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "-C", root, "archive", commit], check=True,
                                 capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive)
        print_report(read_all(folder))


if __name__ == "__main__":
    main()
