"""Licences of a Debian package, from its copyright file into the licence expressions of SPDX.

Reads the machine-readable format, version 1.0 (DEP-5); most packages have it, some do not.
"""

import re
from dataclasses import dataclass

NOASSERTION = "NOASSERTION"

# SPDX identifier of each name for which Debian's format and SPDX mean the same text. MIT is not one
# of them: the format calls that licence Expat, and what packages call MIT differs.
_SPDX_IDS = {
    "apache-2.0": "Apache-2.0",
    "apache-2.0 with llvm exception": "Apache-2.0 WITH LLVM-exception",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "bsl-1.0": "BSL-1.0",
    "cc0-1.0": "CC0-1.0",
    "expat": "MIT",
    "isc": "ISC",
    "zlib": "Zlib",
}
_GNU = re.compile(r"(gpl-[123]|lgpl-[23]|lgpl-2\.1|agpl-3)(?:\.0)?(\+?)")

# Operators of the format, the one that binds least first.
_OPERATORS = ((r",\s*and\s+", "AND"), (r",\s*or\s+", "OR"), (r"\s+or\s+", "OR"),
              (r"\s+and\s+", "AND"))


@dataclass
class Licenses:
    expression: str = NOASSERTION  # All licences, joined by AND.
    texts: tuple = ()  # (LicenseRef, name, text) of each licence that SPDX has no name for.


def licenses_of(text, source):
    """The licences of all files of the source package `source` except Debian's packaging. `text` is
    its copyright file; if that is in no format that a program can read, NOASSERTION."""
    paragraphs = [_fields(each) for each in re.split(r"\n(?:[ \t]*\n)+", text.strip())]
    if "copyright-format/1.0" not in paragraphs[0].get("format", ""):
        return Licenses()
    texts = {}  # By the name that the file gives them, in lower case.
    names = []
    for fields in paragraphs:
        name, _, body = fields.get("license", "").partition("\n")
        name = " ".join(name.split())
        if body.strip():
            texts.setdefault(name.lower(), _unfolded(body))
        files = fields.get("files", "").split()
        if files and not all(each.startswith("debian/") for each in files):
            names.append(name)
    if not names or "" in names:
        return Licenses()
    references = {}
    expressions = sorted({_expression(name, source, references) for name in names})
    return Licenses(" AND ".join(expressions), tuple(
        (reference, name, texts.get(name.lower(), f"The copyright file of {source} has no text."))
        for reference, name in sorted(references.items())))


def _fields(paragraph):
    """{name in lower case: value} of one paragraph."""
    fields = {}
    name = None
    for line in paragraph.split("\n"):
        if match := re.match(r"([A-Za-z][\w-]*):[ \t]*(.*)", line):
            name = match.group(1).lower()
            fields[name] = match.group(2)
        elif name and line[:1] in (" ", "\t"):
            fields[name] += "\n" + line
    return fields


def _unfolded(body):
    lines = [line[1:] for line in body.split("\n")]
    return "\n".join("" if line.strip() == "." else line.rstrip() for line in lines).strip("\n")


def _expression(name, source, references):
    """The expression of SPDX for one of the format. Adds {LicenseRef: name} to `references` for
    each licence that SPDX has no name for."""
    for pattern, operator in _OPERATORS:
        parts = re.split(pattern, name, flags=re.IGNORECASE)
        if len(parts) > 1:
            inside = [_expression(part, source, references) for part in parts]
            return f"({f' {operator} '.join(inside)})"
    if spdx_id := _SPDX_IDS.get(name.lower()):
        return spdx_id
    if match := _GNU.fullmatch(name.lower()):
        version = match.group(1).upper() + ("" if "." in match.group(1) else ".0")
        return version + ("-or-later" if match.group(2) else "-only")
    reference = "LicenseRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", f"{source}-{name}")
    references.setdefault(reference, name)
    return reference
