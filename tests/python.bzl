"""Python tests and tools over the real binaries.

They are shell targets: Bazel 4.2.3's own Python rules want a toolchain.
"""

_CLUSTER = [
    "//scheduler:capstan-scheduler",
    "//scheduler/cli:capstan",
    "//server:capstan-server",
    "//worker:capstan-worker",
]

def capstan_python_test(
        name,
        src = None,
        data = [],
        size = "medium",
        tags = [],
        args = [],
        **kwargs):
    """A Python program that passes by exiting with 0.

    Args:
      name: the test's name.
      src: the program; left out: <name>.py.
      data: files that it needs; the cluster's binaries are always there.
      size: Bazel's test size; sets the timeout.
      tags: as usual.
      args: passed to the program.
      **kwargs: as usual.
    """
    src = name + ".py" if src == None else src
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests:run_python.sh"],
        args = ["$(location %s)" % src] + args,
        data = [src, "//tests/integration:cluster.py"] + _CLUSTER + data,
        tags = tags,
        **kwargs
    )

def capstan_python_binary(name, src = None, data = [], args = [], **kwargs):
    """A Python program to be started with `bazel run`; src, data and args as above."""
    src = name + ".py" if src == None else src
    native.sh_binary(
        name = name,
        srcs = ["//tests:run_python.sh"],
        args = ["$(location %s)" % src] + args,
        data = [src, "//tests/integration:cluster.py"] + _CLUSTER + data,
        **kwargs
    )
