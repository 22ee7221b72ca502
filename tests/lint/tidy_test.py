"""Checks the house rules (rules.py) over the whole tree; prints path:line: rule: message."""

import sys

import class_sizes
import rules
import source_tree


def read_exceptions(root):
    exceptions = set()
    for line in source_tree.read(root, "tests/lint/exceptions.txt").split("\n"):
        fields = line.split(maxsplit=2)
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) < 3:
            raise SystemExit(f"exceptions.txt: '{line}', expected <rule> <path> <reason>")
        exceptions.add((fields[0], fields[1]))
    return exceptions


def violations(root, paths):
    """Yields (rule, path, line, message)."""
    texts = source_tree.read_all(root, paths)
    for path, text in texts.items():
        for name, rule in rules.FILE_RULES.items():
            for line, message in rule(path, text):
                yield name, path, line, message
    for folder, message in rules.readme(paths):
        yield "readme", folder, 1, message
    for path, message in rules.class_size(class_sizes.of(texts)):
        yield "class_size", path, 1, message


def main():
    root = source_tree.workspace()
    only = tuple(sys.argv[1:])  # Folders; none: all.
    paths = source_tree.files(root)
    exceptions = read_exceptions(root)
    used = set()
    count = 0
    for rule, path, line, message in violations(root, paths):
        if (rule, path) in exceptions:
            used.add((rule, path))
        elif not only or path.startswith(only):
            print(f"{path}:{line}: {rule}: {message}")
            count += 1
    for rule, path in sorted(exceptions - used):
        print(f"tests/lint/exceptions.txt:1: unused: {rule} {path}")
        count += 1
    print(f"{len(paths)} files, {count} violations")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
