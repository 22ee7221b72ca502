"""Checks that the table of who may call what has every method of proto/, and no other."""

import re
import sys

import source_tree

TABLE = "common/security/call_policy.cc"
DATA_METHODS = "common/net/data/data_server.cc"


def methods_of_protos(root):
    found = set()
    for path in source_tree.files(root):
        if not (path.startswith("proto/") and path.endswith(".proto")):
            continue
        text = source_tree.read(root, path)
        package = re.search(r"^package ([\w.]+);", text, re.MULTILINE).group(1)
        for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", text,
                                        re.MULTILINE | re.DOTALL):
            found |= {f"/{package}.{service}/{rpc}" for rpc in re.findall(r"\brpc (\w+)\(", body)}
    return found


def paths_in(root, file):
    return re.findall(r'"(/capstan\.\S+/\w+)"', source_tree.read(root, file))


def main():
    root = source_tree.workspace()
    declared = methods_of_protos(root)
    table = paths_in(root, TABLE)
    problems = [f"{method}: proto/ has it; {TABLE} does not say who may call it"
                for method in sorted(declared - set(table))]
    problems += [f"{method}: {TABLE} has it, and no service of proto/"
                 for method in sorted(set(table) - declared)]
    problems += [f"{method}: {DATA_METHODS} has it, and {TABLE} does not"
                 for method in paths_in(root, DATA_METHODS) if method not in table]
    if not declared:
        problems.append("no service was found in proto/")
    print("\n".join(problems) or f"{len(declared)} methods")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
