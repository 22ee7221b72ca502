"""Macros around the native C++ rules: they set warnings and the precompiled header."""

load("//common/build_defs:precompiled.bzl", "precompiled_copts", "precompiled_deps")

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

_LIBRARY_COPTS = _COPTS + precompiled_copts("library_headers")

# Of test files: their cases run once, and compiling them well takes longer than they run.
TEST_OPTIMIZATION = ["-O1"]
_TEST_COPTS = _COPTS + TEST_OPTIMIZATION + precompiled_copts("test_headers")

def _is_optimized_by_itself(copts):
    # GCC takes a precompiled header for a file of another -O, and compiles it by the header's.
    return len([flag for flag in copts if flag.startswith("-O")]) > 0

def _library_copts(copts):
    return (_COPTS if _is_optimized_by_itself(copts) else _LIBRARY_COPTS) + copts

def _library_deps(copts, deps):
    if _is_optimized_by_itself(copts):
        return deps
    return deps + precompiled_deps("library_headers")

def capstan_cc_library(name, copts = [], deps = [], **kwargs):
    """A cc_library with the project's warnings as errors."""
    native.cc_library(
        name = name,
        copts = _library_copts(copts),
        deps = _library_deps(copts, deps),
        **kwargs
    )

def capstan_cc_binary(name, copts = [], deps = [], **kwargs):
    """A cc_binary with the project's warnings as errors."""
    native.cc_binary(
        name = name,
        copts = _library_copts(copts),
        deps = _library_deps(copts, deps),
        **kwargs
    )

def capstan_cc_test(name, srcs, deps = [], copts = [], size = "small", **kwargs):
    """A Catch2 test: links the shared main, so that a test file holds only its cases."""
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs,
        copts = _TEST_COPTS + copts,
        deps = deps + ["//common/testing:catch2_main"] + precompiled_deps("test_headers"),
        **kwargs
    )
