"""The files of the source tree, and what is code in a C++ file."""

import os
import re
import subprocess

CPP_SUFFIXES = (".h", ".cc", ".cu", ".cuh")
_SKIPPED_FOLDERS = re.compile(r"^(bazel-.*|runs|__pycache__|\.(?!ci$).*)$")


def workspace():
    """The workspace's root. Bazel's runfiles are links into it."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    if not os.path.exists(os.path.join(root, "WORKSPACE")):
        raise SystemExit(f"{root} holds no WORKSPACE, expected the source tree")
    return root


def files(root):
    """Paths relative to `root`, sorted; what git ignores is left out."""
    command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        output = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
        listed = [path for path in output.decode().split("\0") if path]
    except (OSError, subprocess.SubprocessError):
        listed = _walk(root)  # A tree without git, such as an unpacked archive.
    return sorted({path for path in listed if os.path.isfile(os.path.join(root, path))})


def _walk(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not _SKIPPED_FOLDERS.match(name)]
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def read_all(root, paths):
    """{path: text} of those that are text."""
    texts = {}
    for path in paths:
        try:
            texts[path] = read(root, path)
        except UnicodeDecodeError:
            continue
    return texts


_NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"' + r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


def code_of(text, keep_strings=False):
    """`text` of C++ with comments (and the insides of literals) blanked; places stay the same."""

    def blank(match):
        found = match.group()
        if keep_strings and not found.startswith(("//", "/*")):
            return found
        kept = '"' if found[0] in 'R"' else ""
        inside = re.sub(r"[^\n]", " ", found[len(kept):len(found) - len(kept)])
        return kept + inside + kept

    return _NOT_CODE.sub(blank, text)


def includes_of(text):
    """The names that a C++ file includes: (line, name, whether in quotes)."""
    pattern = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
    for number, line in enumerate(text.split("\n"), start=1):
        if match := pattern.match(line):
            yield number, match.group(2), match.group(1) == '"'
