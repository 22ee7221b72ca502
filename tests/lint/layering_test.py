"""Proves the layers of layers.py over what all targets depend on and what cores include, that
targets declare what they include, and that folders do not include one another in a circle."""

import graphlib
import os
import sys

import build_graph
import layers
import rules
import source_tree


# Rules that hand files on: who compiles them declares what they include. "rule": this workspace's.
COMPILE_NOTHING = ("filegroup", "genrule", "rule")
MAIN_OF_TESTS = "//common/testing:catch2_main"  # Brings Catch2.


def check_targets(targets):
    """Yields a message for each target that reaches what its layer may not."""
    for label in sorted(targets):
        reached = None
        for rule in layers.TARGET_RULES:
            target = targets[label]
            if not rule["of"].match(label) or (target.testonly and not rule["tests"]):
                continue
            reached = reached or build_graph.closure(targets, label)
            for dep in reached:
                is_file = layers.FILES.match(dep)
                wrong = (rule["never"] and rule["never"].match(dep)) or (
                    rule["may_reach"] and not is_file and not rule["may_reach"].match(dep))
                if wrong:
                    yield (f"{label} reaches {dep}: {rule['layer']}\n    "
                           + " -> ".join(build_graph.way(reached, dep)))


def check_core_includes(root, paths):
    """Yields a message for each source of a core that includes what cores may not."""
    present = set(paths)
    for start in paths:
        if not rules.is_cpp(start) or not rules.is_core(start) or rules.is_test(start):
            continue
        came_from = {start: None}
        queue = [start]
        for path in queue:
            for line, name, _ in source_tree.includes_of(source_tree.read(root, path)):
                if layers.FORBIDDEN_HEADERS.match(name):
                    chain = " -> ".join(build_graph.way(came_from, path))
                    yield f"{start} includes <{name}> ({path}:{line})\n    {chain}"
                elif name in present and name not in came_from:
                    came_from[name] = path
                    queue.append(name)


def check_declared(root, paths, targets):
    """Yields a message for each include whose library is not a direct dependency of its target."""
    owners = {}  # Source path -> labels of the libraries that have it.
    compiled = [target for target in targets.values() if target.rule not in COMPILE_NOTHING]
    for target in compiled:
        for source in target.sources:
            owners.setdefault(source, []).append(target.label)
    for target in compiled:
        for source in target.sources:
            if not rules.is_cpp(source) or source not in paths:
                continue
            for line, name, _ in source_tree.includes_of(source_tree.read(root, source)):
                wanted = owners.get(name, []) + [
                    prefix for header, prefix in layers.LIBRARY_OF_HEADER if header.match(name)]
                known = target.deps + [target.label]
                if target.rule == "capstan_cc_test" or MAIN_OF_TESTS in target.deps:
                    known.append("@catch2//:")
                if wanted and not any(dep.startswith(one) for dep in known for one in wanted):
                    yield (f"{source}:{line}: includes {name}, expected {' or '.join(wanted)} "
                           f"in the deps of {target.label}")


def check_circles(root, paths):
    """Yields a message if folders of the product include one another in a circle; one at a time."""
    present = {path for path in paths
               if rules.is_cpp(path) and not rules.is_test(path) and "/testing/" not in path}
    where = {}  # Folder -> folder that it includes -> an include.
    for path in sorted(present):
        folder = where.setdefault(os.path.dirname(path), {})
        for line, name, _ in source_tree.includes_of(source_tree.read(root, path)):
            if name in present and os.path.dirname(name) != os.path.dirname(path):
                folder.setdefault(os.path.dirname(name), f"{path}:{line} includes {name}")
    try:
        graphlib.TopologicalSorter(where).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1][::-1]  # Each includes the next.
        ways = [where[one][other] for one, other in zip(circle, circle[1:])]
        yield "folders include one another: " + " -> ".join(circle) + "".join(
            f"\n    {way}" for way in ways)


def main():
    root = source_tree.workspace()
    paths = source_tree.files(root)
    targets = build_graph.read_targets(root, paths)
    cores = [path for path in paths if rules.is_core(path) and rules.is_cpp(path)]
    folders = sorted({os.path.dirname(path) for path in cores})
    print(f"{len(targets)} targets; cores: {len(cores)} sources in {', '.join(folders)}")
    print("The same by Bazel (prints nothing when all is well):\n  bazel query 'somepath("
          + " + ".join(layers.CORES) + ", " + " + ".join(layers.FORBIDDEN_TO_CORES) + ")'")
    if len(targets) < 20:
        raise SystemExit(f"{len(targets)} targets found, expected those of the whole tree")
    messages = [*check_targets(targets), *check_core_includes(root, paths),
                *check_declared(root, set(paths), targets), *check_circles(root, paths)]
    for message in messages:
        print(message)
    print(f"{len(messages)} violations")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
