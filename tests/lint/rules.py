"""The house rules that a program can check, one function a rule.

A rule takes (path, text) and yields (line, message). CONTRIBUTING.md says what the rules are for;
exceptions.txt lists the places that may break one, each with its reason.
"""

import ast
import os
import re

import source_tree

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
CLASS_LINES_MAX = 800
PUBLIC_FUNCTIONS_MAX = 25
# A folder of at most so many sources may be described by the README of the folder above.
TINY_FOLDER_SOURCES_MAX = 5

CODE_SUFFIXES = source_tree.CPP_SUFFIXES + (".py", ".bzl", ".bazel", ".proto", ".sh")
SCRIPTS = ("test", "quickstart", "install", "deploy/install", ".ci/run", "WORKSPACE", ".bazelrc")


def is_code(path):
    return path.endswith(CODE_SUFFIXES) or path in SCRIPTS


def is_cpp(path):
    return path.endswith(source_tree.CPP_SUFFIXES)


def is_core(path):
    return re.match(r"(server|scheduler|worker)/core/", path) is not None


def is_test(path):
    return path.startswith("tests/") or "_test." in path or path.startswith("common/testing/")


def columns(path, text):
    if not is_code(path) and not path.endswith(".md"):
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > COLUMNS_MAX:
            yield number, f"{len(line)} columns, expected at most {COLUMNS_MAX}"


def whitespace(path, text):
    if not is_code(path):
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line != line.rstrip():
            yield number, "blanks at the end of the line"
        if "\t" in line:
            yield number, "a tab, expected spaces"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end of the file"


def file_length(path, text):
    # A list of targets or of fields is read by searching, and gains nothing by being cut; C++ is
    # judged by its classes.
    if path.endswith((".proto", ".bazel")) or is_cpp(path):
        return
    lines = text.count("\n")
    if is_code(path) and lines >= FILE_LINES_MAX:
        yield lines, f"{lines} lines, expected fewer than {FILE_LINES_MAX}: split it by subject"


def class_size(sizes):
    """Yields (path of the header, message); `sizes` as class_sizes.of gives them."""
    for each in sizes:
        if each.lines > CLASS_LINES_MAX:
            yield each.header, (f"{each.name} has {each.lines} lines with its functions, expected "
                                f"at most {CLASS_LINES_MAX}")
        if each.public > PUBLIC_FUNCTIONS_MAX:
            yield each.header, (f"{each.name} has {each.public} public functions, expected at most "
                                f"{PUBLIC_FUNCTIONS_MAX}")


def function_length(path, text):
    if is_cpp(path):
        functions = cpp_functions(text)
    elif path.endswith(".py"):
        functions = _python_functions(text)
    else:
        return
    for first, last in functions:
        if last - first + 1 > FUNCTION_LINES_MAX:
            yield first, (f"a function of {last - first + 1} lines, "
                          f"expected at most {FUNCTION_LINES_MAX}")


def _python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno


def cpp_functions(text):
    """(first line, last line) of each outermost function body, told by its braces."""
    code = re.sub(r"(?m)^[ ]*#(?:\\\n|[^\n])*", _blanked, source_tree.code_of(text))
    stack = []  # (kind, first line) of each open brace.
    head_start = 0  # Where the statement before the brace begins.
    for place in re.finditer(r"[{};]", code):
        at = place.start()
        inside = any(kind == "function" for kind, _ in stack)
        if place.group() == "{":
            head = code[head_start:at]
            kind = "block" if inside else _kind_of_scope(head)
            first_code = head_start + len(head) - len(head.lstrip())
            stack.append((kind, code.count("\n", 0, first_code) + 1))
            if kind == "initializer":
                continue  # A member's; the function's own brace is still to come.
        elif place.group() == "}" and stack:
            kind, first = stack.pop()
            if kind == "function":
                yield first, code.count("\n", 0, at) + 1
            if kind == "initializer":
                continue
        head_start = at + 1


def _blanked(match):
    return re.sub(r"[^\n]", " ", match.group())


def _kind_of_scope(head):
    flat = head
    while (inner := re.sub(r"\([^()]*\)", "()", flat.replace("()", "\1"))) != flat:
        flat = inner.replace("\1", "@")
        if "(" not in flat:
            break
    flat = flat.replace("()", "@").replace("\1", "@")  # @ stands for a pair of parentheses.
    flat = re.sub(r"operator\s*[^\w\s@]+", "operator", flat)
    if re.search(r"\b(namespace|extern)\b", flat):
        return "scope"
    if re.search(r"\b(class|struct|union|enum)\b", flat) and "@" not in flat.split(":")[0]:
        return "scope"
    if "@" not in flat or "=" in flat:
        return "block"
    if re.search(r"@[^@]*:(?!:).*\w\s*$", flat, re.DOTALL) and not flat.rstrip().endswith("@"):
        return "initializer"
    return "function"


# (what, pattern in code without comments and literals, what to use instead)
_BANNED_EVERYWHERE = [
    ("rand", r"(?<![\w.>:])(?:std::|::)?s?rand\s*\(", "common/random/philox.h with a key"),
    ("exit", r"(?<![\w.>:])(?:std::|::)?exit\s*\(", "an absl::Status up to main"),
    ("sleep", r"(?<![\w])(?:u|nano)?sleep\s*\(|\bSleepFor\s*\(|\bsleep_(?:for|until)\s*\(",
     "a condition with a deadline"),
    ("throw", r"\bthrow\b(?!\s*\(\s*\))", "absl::Status"),
    ("using namespace", r"\busing\s+namespace\s+(?!std::(?:string_view_|chrono_)?literals)",
     "qualified names or using-declarations"),
]
_FROM_THE_SHELL = "actions that the shell carries out"
_BANNED_IN_CORES = [
    ("absl::Now", r"\babsl::(?:Now|GetCurrentTimeNanos)\b",
     "the Instant that came with the message"),
    ("a clock", r"\bstd::chrono\b|\b\w+_clock\b|\bclock_gettime\b|(?<![\w.>:])time\s*\(",
     "the Instant that came with the message"),
    ("a thread", r"\bstd::(?:j?thread|async|future|promise)\b", _FROM_THE_SHELL),
    ("a lock", r"\bstd::(?:\w*mutex|\w*_lock|lock_guard|condition_variable)\b|\babsl::Mutex",
     "the shell's strand"),
    ("an atomic", r"\bstd::atomic\b", "the shell's strand"),
    ("a file", r"\bf?open\s*\(|\bstd::[io]?fstream\b|\bstd::filesystem\b",
     _FROM_THE_SHELL),
    ("logging", r"\bspdlog\b|\bLog(?:Debug|Info|Warning|Error|Line)\s*\(|\bstd::c(?:out|err|log)\b",
     "events that the shell logs"),
    ("gRPC", r"\bgrpc::|\bv1::|\bgoogle::protobuf\b", "plain structs that the shell converts"),
    ("unseeded or unportable randomness", r"\bstd::(?:random_device|mt19937\w*|\w+_distribution)\b|"
     r"\babsl::(?:InsecureBitGen|BitGen|Uniform)\b", "common/random/philox.h with a key"),
]


def banned(path, text):
    if not is_cpp(path):
        if path.endswith(".py"):
            for number, line in enumerate(text.split("\n"), start=1):
                if re.search(r"\btime\.sleep\s*\(", line.split("#")[0]):
                    yield number, "sleep: use a condition with a deadline instead"
        return
    table = list(_BANNED_EVERYWHERE)
    if is_core(path) and not is_test(path):
        table += _BANNED_IN_CORES
    code = source_tree.code_of(text)
    for what, pattern, instead in table:
        if what == "exit" and path.endswith("_main.cc"):
            continue
        found = {code.count("\n", 0, match.start()) + 1 for match in re.finditer(pattern, code)}
        for number in sorted(found):
            yield number, f"{what}: use {instead} instead"


def hash_order(path, text):
    """In cores, where the order of a hash map could reach an output."""
    if not is_core(path) or not is_cpp(path):
        return
    code = source_tree.code_of(text)
    declared = (r"\b(?:absl::(?:flat|node)_hash_\w+|std::unordered_\w+)"
                r"\s*<[^;{}()]*>\s*(\w+)")
    for name in set(re.findall(declared, code)):
        for match in re.finditer(rf"\bfor\s*\([^;()]*:\s*(?:\w+(?:\.|->))*{name}\s*\)", code):
            yield (code.count("\n", 0, match.start()) + 1,
                   f"iterates over the hash table {name}: use std::map or sort first")


def header(path, text):
    if not path.endswith(".h"):
        return
    lines = text.split("\n")
    if not re.match(r"// \S", lines[0]):
        yield 1, "no file comment, expected '// <Name>: what it is.'"
    guard = "CAPSTAN_" + re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"
    for directive in ("#ifndef", "#define"):
        if f"{directive} {guard}" not in lines:
            yield 1, f"no line '{directive} {guard}'"


def open_ends(path, text):
    # Spelt in pieces, so that this file does not find itself.
    words = re.compile(r"(?:(?://|#|\*)\s*|\b(?=\w+:))"
                       r"(?:TO" r"DO\b(?!\(#)|FIX" r"ME\b|X" r"XX\b|HA" r"CK\b)")
    marks = re.compile(r"^(?:<{7} |={7}$|>{7} |\|{7} )")
    for number, line in enumerate(text.split("\n"), start=1):
        if match := words.search(line):
            yield number, f"'{match.group()}', expected TO" f"DO(#issue) or nothing"
        if marks.match(line):
            yield number, "left over from a merge"


# Such a word sends the reader back for a subject. At the begin of a comment it never has one.
_FRAGMENT = re.compile(r"(?:^|[.:;] )(?:Of|Who|Whose|Likewise)\b|^(?:That|Those|What|Half)\b")


def fragments(path, text):
    for number, comment in _comments(path, text):
        if match := _FRAGMENT.search(comment):
            yield number, (f"a comment's sentence begins with '{match.group().lstrip('.:; ')}', "
                           "expected a subject and a verb")


def _comments(path, text):
    """(line, text) of each comment and docstring; the lines of one comment are joined."""
    mark = "//" if is_cpp(path) or path.endswith(".proto") else "#"
    if not is_code(path) or path.endswith(".sh"):
        return
    begin, words = 0, []
    for number, line in enumerate(text.split("\n"), start=1):
        code, found, comment = line.partition(f"{mark} ")
        whole = found and not code.strip()
        if words and not whole:
            yield begin, " ".join(words)
            words = []
        if whole:
            begin = begin if words else number
            words.append(comment.strip())
        elif found and code.endswith(" "):
            yield number, comment
        elif mark == "#" and (match := re.match(r'\s*r?"""(.+)', line)):
            yield number, match.group(1)
    if words:
        yield begin, " ".join(words)


def test_names(path, text):
    if not path.endswith("_test.cc"):
        return
    code = source_tree.code_of(text, keep_strings=True)
    for match in re.finditer(r'\bTEST_CASE\(\s*"((?:[^"\\]|\\.)*)"', code):
        if not re.match(r"[^:]+: \S", match.group(1)):
            yield (code.count("\n", 0, match.start()) + 1,
                   f"the test '{match.group(1)}', expected 'Subject: behaviour in a sentence'")


def test_namespace(path, text):
    """The tests of a folder are compiled as one file: each has its names to itself."""
    name = os.path.basename(path)[:-len(".cc")]
    if path.endswith("_test.cc") and not re.search(rf"^namespace [\w:]+::{name} {{$", text, re.M):
        yield 1, f"no namespace of the file's own, expected 'namespace capstan::...::{name} {{'"


FILE_RULES = {
    "columns": columns,
    "whitespace": whitespace,
    "file_length": file_length,
    "function_length": function_length,
    "banned": banned,
    "hash_order": hash_order,
    "header": header,
    "open_ends": open_ends,
    "fragments": fragments,
    "test_names": test_names,
    "test_namespace": test_namespace,
}


def readme(paths):
    """Yields (folder, message) for each folder with sources that no README describes."""
    present = set(paths)
    sources = {}
    for path in paths:
        if is_code(path) and os.path.basename(path) != "BUILD.bazel" and "/" in path:
            sources.setdefault(os.path.dirname(path), []).append(path)
    for folder, inside in sorted(sources.items()):
        above = os.path.dirname(folder)
        if os.path.join(folder, "README.md") in present:
            continue
        tiny = len(inside) <= TINY_FOLDER_SOURCES_MAX
        if tiny and os.path.join(above, "README.md") in present:
            continue
        yield folder, f"{len(inside)} sources and no README.md" + (
            f", nor one in {above or 'the root'}" if tiny else "")
