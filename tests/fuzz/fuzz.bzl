"""Fuzz targets: programs that feed any bytes to a decoder (README.md)."""

load("//common/build_defs:capstan.bzl", "capstan_cc_binary")

def capstan_fuzz_test(name, deps):
    """A fuzz target of <name>.cc, with the inputs in corpus/<name>, and its test.

    The program is <name>_target. The test replays the inputs; with --config=fuzz it goes on from
    them for ten seconds.

    Args:
      name: the test's name.
      deps: what the target needs besides target.h.
    """
    capstan_cc_binary(
        name = name + "_target",
        testonly = True,
        srcs = [name + ".cc"],
        linkopts = select({
            "//tests/fuzz:fuzzing": ["-fsanitize=fuzzer"],  # It has a main.
            "//conditions:default": [],
        }),
        deps = [":target"] + deps + select({
            "//tests/fuzz:fuzzing": [],
            "//conditions:default": [":replay"],
        }),
    )
    native.sh_test(
        name = name,
        size = "small",
        srcs = ["run_target.sh"],
        args = ["$(location :%s_target)" % name, "tests/fuzz/corpus/" + name],
        data = [":%s_target" % name] + native.glob(["corpus/" + name + "/*"]),
    )
