"""The targets of the workspace and what they depend on, read from its BUILD.bazel and .bzl files.

Starlark is a subset of Python: each BUILD file is executed here with rules that record their
arguments. Macros of this workspace (`load("//...")`) are executed too, so that what they add
counts; rules from other repositories are recorded by the arguments they get. `native.glob`, by
which a macro asks for files, answers as in Bazel but does not look into folders.
"""

import ast
import builtins
import collections
import fnmatch
import os
from dataclasses import dataclass, field

# Attributes that name other targets.
_LABEL_ATTRIBUTES = ("actual", "data", "deps", "exports", "hdrs", "implementation_deps", "srcs",
                     "textual_hdrs", "tools")
_FLAG_ATTRIBUTES = ("linkopts",)


@dataclass
class Target:
    label: str
    rule: str
    testonly: bool = False
    sources: list = field(default_factory=list)  # Paths of srcs and hdrs.
    deps: list = field(default_factory=list)  # Labels; linker flags as they are ("-lfoo").


class _Context:
    """The package whose BUILD file is being executed."""

    def __init__(self, package, targets):
        self.package = package
        self.targets = targets
        self.testonly = False

    def record(self, rule, arguments):
        name = arguments.get("name")
        if not name:
            return
        label = f"//{self.package}:{name}"
        target = Target(label, rule, bool(arguments.get("testonly", self.testonly)))
        if rule.endswith("_test"):
            target.testonly = True
        for attribute in _LABEL_ATTRIBUTES:
            for value in _strings(arguments.get(attribute)):
                dep = absolute(value, self.package)
                target.deps.append(dep)
                if attribute in ("srcs", "hdrs", "textual_hdrs"):
                    target.sources.append(dep[2:].replace(":", "/").lstrip("/"))
        for attribute in _FLAG_ATTRIBUTES:
            target.deps += [flag for flag in _strings(arguments.get(attribute))
                            if flag.startswith(("-l", "-pthread"))]
        self.targets[label] = target
        for out in _strings(arguments.get("outs")):
            made = absolute(out, self.package)
            self.targets[made] = Target(made, "generated file", target.testonly, deps=[label])


def _strings(value):
    if isinstance(value, str):
        return [value]
    return [each for each in value or [] if isinstance(each, str)]


def absolute(label, package):
    """The full form of a label: //package:name or @repository//package:name."""
    repository = ""
    if label.startswith("@"):
        repository, slashes, rest = label.partition("//")
        label = "//" + (rest if slashes else ":" + repository[1:])
    if not label.startswith("//"):
        return f"//{package}:{label.lstrip(':')}"
    if ":" not in label:
        label += ":" + os.path.basename(label)
    return repository + label


class _Native:
    """Starlark's `native`: rules that a macro calls."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, rule):
        return self._loader.rule(rule)

    def glob(self, patterns, exclude=(), **unused):
        """The files of the package itself, not of folders in it, that match one of the patterns."""
        return [name for name in self._loader.files_of(self._loader.context.package)
                if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
                and name not in exclude]

    def package_name(self):
        return self._loader.context.package


class _Loader:
    def __init__(self, root, paths):
        self.root = root
        self._files = collections.defaultdict(list)  # Folder -> names.
        for path in sorted(paths):
            self._files[os.path.dirname(path)].append(os.path.basename(path))
        self.targets = {}
        self.context = None

    def files_of(self, package):
        return self._files[package]

    def rule(self, name):
        """Stands for a rule or for any function that this program does not know."""
        return lambda *unused, **arguments: self.context.record(name, arguments)

    def package_defaults(self, **arguments):
        self.context.testonly = bool(arguments.get("default_testonly", False))

    def load(self, scope):
        def run(bzl, *names, **aliases):
            bindings = {name: name for name in names} | aliases
            loaded = {}
            if bzl.startswith(("//", ":")):
                label = absolute(bzl, self.context.package)
                loaded = self.execute(label[2:].replace(":", "/"))
            for alias, name in bindings.items():
                scope[alias] = loaded.get(name) or self.rule(name)

        return run

    def execute(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            tree = ast.parse(file.read(), filename=path)
        scope = {}
        for node in ast.walk(tree):  # Unknown names are rules.
            if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                scope[node.id] = self.rule(node.id)
        scope.update({
            "attr": _Native(self),
            "exports_files": lambda *unused, **ignored: None,
            "fail": _fail,
            "glob": lambda *unused, **ignored: [],
            "licenses": lambda *unused: None,
            "load": self.load(scope),
            "native": _Native(self),
            "package": self.package_defaults,
            "package_group": lambda **unused: None,
            "rule": lambda *unused, **ignored: self.rule("rule"),
            "select": lambda choices, **unused: [
                value for values in choices.values() for value in _strings(values)],
        })
        exec(compile(tree, path, "exec"), scope)  # The workspace's own files.
        return scope


def _fail(*message, **unused):
    raise SystemExit(" ".join(str(part) for part in message))


def read_targets(root, paths):
    """All targets of the BUILD.bazel files among `paths`, by label."""
    loader = _Loader(root, paths)
    for path in paths:
        if os.path.basename(path) != "BUILD.bazel" or path.startswith("deploy/bazel/"):
            continue  # The stand-ins of deploy/bazel are repositories of their own.
        loader.context = _Context(os.path.dirname(path), loader.targets)
        loader.execute(path)
    return loader.targets


def closure(targets, start):
    """The labels that `start` reaches: {label: the label that led there}, shortest ways first."""
    came_from = {start: None}
    queue = [start]
    for label in queue:
        target = targets.get(label)
        for dep in target.deps if target else ():
            if dep not in came_from:
                came_from[dep] = label
                queue.append(dep)
    return came_from


def way(came_from, label):
    """The labels from the start to `label`."""
    steps = []
    while label is not None:
        steps.append(label)
        label = came_from[label]
    return steps[::-1]
