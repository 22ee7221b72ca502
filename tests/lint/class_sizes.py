"""How large the classes of the product are, each with all its functions, whatever their files."""

import os
import re
from typing import NamedTuple

import rules
import source_tree


class ClassSize(NamedTuple):
    header: str  # Its path.
    name: str
    lines: int   # In its declaration and in its functions.
    public: int  # Functions that others may call.


def is_product(path):
    helpers = ("/testing/", "/test_", "/emulation/")
    return not rules.is_test(path) and not any(part in path for part in helpers)


def declared(text):
    """(name, lines, public functions) of each class or struct that a C++ file declares."""
    code = source_tree.code_of(text)
    for found in re.finditer(r"(?m)^(class|struct) (\w+)(?: final)?(?: :[^;{]*)? \{", code):
        end = code.find("\n};", found.start())
        body = code[found.start():end]
        yield found.group(2), body.count("\n") + 2, _public_functions(found.group(1), body)


def _public_functions(keyword, body):
    access = "public" if keyword == "struct" else "private"
    count = 0
    for line in body.split("\n")[1:]:
        if section := re.match(r" (public|private|protected):", line):
            access = section.group(1)
        elif access == "public" and re.match(r"  (?=[^ #}]).*\w\(", line):
            count += 1
    return count


def of(texts):
    """The size of each class that a header of the product declares. `texts`: by path."""
    sizes = {}
    for path, text in texts.items():
        if path.endswith(".h") and is_product(path):
            for name, lines, public in declared(text):
                sizes[os.path.dirname(path), name] = ClassSize(path, name, lines, public)
    for path, text in texts.items():
        if not (rules.is_cpp(path) and is_product(path)):
            continue
        all_lines = source_tree.code_of(text).split("\n")
        for first, last in rules.cpp_functions(text):
            head = "\n".join(all_lines[first - 1:last]).split("{")[0]
            owner = re.search(r"(?:^|[\s*&])(\w+)(?:<[^>]*>)?::~?\w+\s*\(", head)
            key = (os.path.dirname(path), owner.group(1)) if owner else None
            if key in sizes:
                sizes[key] = sizes[key]._replace(lines=sizes[key].lines + last - first + 1)
    return list(sizes.values())
