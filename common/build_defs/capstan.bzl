"""Macros around the native C++ rules: they set warnings, and nothing else."""

_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wconversion",
    "-Wno-missing-field-initializers",
    # GCC 12 sees an overlap in `std::string = "x"` that cannot happen (its bug 105651).
    "-Wno-restrict",
    "-Wno-sign-conversion",
    "-Werror",
]

def capstan_cc_library(name, copts = [], **kwargs):
    """A cc_library with the project's warnings as errors."""
    native.cc_library(name = name, copts = _COPTS + copts, **kwargs)

def capstan_cc_binary(name, copts = [], **kwargs):
    """A cc_binary with the project's warnings as errors."""
    native.cc_binary(name = name, copts = _COPTS + copts, **kwargs)

def capstan_cc_test(name, srcs, deps = [], copts = [], size = "small", **kwargs):
    """A Catch2 test: links the shared main, so that a test file holds only its cases."""
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs,
        # Cases run once: compiling them well takes longer than they run.
        copts = _COPTS + ["-O1"] + copts,
        deps = deps + ["//common/testing:catch2_main"],
        **kwargs
    )
