"""Macros around the native C++ rules.

They set warnings and the precompiled header, and derive from a target's name which files it has.
"""

load("//common/build_defs:precompiled.bzl", "precompiled_copts", "precompiled_deps")
load("//common/build_defs:tests_of_folder.bzl", "cases_of_file")
load("//common/build_defs:translation_unit.bzl", "translation_units")

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

# Packages in which many files include generated messages: these are precompiled, too. Elsewhere a
# file that includes them takes some two seconds longer; here one that does not, 0.05 s.
_PACKAGES_WITH_MESSAGES = [
    "common/checkpoint",
    "common/examples/sets",
    "common/job/check",
    "common/job/parse",
    "common/job/spec",
    "common/job/validate",
    "common/model",
    "common/net",
    "common/net/node",
    "common/net/testing",
    "common/row_export",
    "common/snapshot",
    "common/sparse_models",
    "common/sparse_models/testing",
    "common/tensor",
    "common/wire",
    "scheduler",
    "scheduler/admission",
    "scheduler/checkpoint",
    "scheduler/cli",
    "scheduler/cli/client",
    "scheduler/cli/cluster",
    "scheduler/cli/diff",
    "scheduler/cli/job",
    "scheduler/cli/operations",
    "scheduler/cli/settings",
    "scheduler/cli/view",
    "scheduler/codec",
    "scheduler/files",
    "scheduler/output",
    "scheduler/state",
    "server/agent",
    "server/checkpoint",
    "server/engine",
    "server/engine/job",
    "server/engine/testing",
    "server/engine/tests",
    "server/log",
    "server/replication",
    "server/rpc",
    "server/snapshots",
    "server/store",
    "server/store/dense",
    "server/store/sparse",
    "server/store/tables",
    "tests/benchmark",
    "tests/integration",
    "tests/security",
    "tests/simulation",
    "tests/simulation/checkers",
    "tests/simulation/nemesis",
    "tests/simulation/readers",
    "tests/simulation/shells",
    "tests/simulation/world",
    "worker/client",
    "worker/daemon",
    "worker/prediction",
    "worker/program",
    "worker/task",
    "worker/task/computation",
    "worker/task/reporting",
    "worker/training",
    "worker/training/program",
    "worker/training/step",
    "worker/training/trainer",
]

_WITH_MESSAGES = {"library_headers": "message_headers", "test_headers": "message_test_headers"}

def _headers(name):
    return _WITH_MESSAGES[name] if native.package_name() in _PACKAGES_WITH_MESSAGES else name

# The optimization of test files and test helpers. They run once: a better one would take longer to
# compile than it saves.
TEST_OPTIMIZATION = ["-O1"]

# Fewer would be compiled faster when one of them changes, more when all are.
_TESTS_OF_A_UNIT = 8

def _is_test_helper():
    folders = native.package_name().split("/")
    # The test helpers of kernels compute for long.
    return folders[-1] == "testing" and folders[0] != "kernels"

def _is_optimized_by_itself(copts):
    # GCC takes a precompiled header for a file of another -O, and compiles it by the header's.
    return len([flag for flag in copts if flag.startswith("-O")]) > 0

def _library_headers():
    return _headers("test_headers" if _is_test_helper() else "library_headers")

def _library_copts(copts):
    if _is_optimized_by_itself(copts):
        return _COPTS + copts
    optimization = TEST_OPTIMIZATION if _is_test_helper() else []
    return _COPTS + optimization + precompiled_copts(_library_headers()) + copts

def _library_deps(copts, deps):
    if _is_optimized_by_itself(copts):
        return deps
    return deps + precompiled_deps(_library_headers())

def _test_copts():
    return _COPTS + TEST_OPTIMIZATION + precompiled_copts(_headers("test_headers"))

def _test_deps(deps):
    return deps + ["//common/testing:catch2_main"] + precompiled_deps(_headers("test_headers"))

def _file_if_there(name):
    # No search for sources: it asks for one name, and gives [name] or, without such a file, [].
    return native.glob([name], allow_empty = True)

def _deps_of_test(library, test_deps):
    # In the order of a list written by hand: labels of this package first.
    near = [dep for dep in test_deps if dep.startswith(":")]
    return sorted([":" + library] + near) + [dep for dep in test_deps if not dep.startswith(":")]

def capstan_cc_library(
        name,
        srcs = None,
        hdrs = None,
        copts = [],
        deps = [],
        test_deps = None,
        **kwargs):
    """A cc_library with the project's warnings as errors, and its test.

    `capstan_cc_library(name = "slot_tree", deps = [...], test_deps = [])` stands for

        cc_library(name = "slot_tree", srcs = ["slot_tree.cc"], hdrs = ["slot_tree.h"], deps = ...)
        cc_test(name = "slot_tree_test", srcs = ["slot_tree_test.cc"], deps = [":slot_tree"])

    No sources are globbed: one file name is derived from the name, and it is tested whether the
    file exists. What is generated does not lie in the tree and has to be named.

    Args:
      name: the library's name.
      srcs: left out: <name>.cc where this file exists, else none. [] for none all the same.
      hdrs: left out: <name>.h where this file exists, else none.
      copts: in addition to the project's own.
      deps: direct dependencies.
      test_deps: what <name>_test.cc needs besides the library itself and Catch2; [] for nothing.
        Left out: the library has no test of its name, or one with more attributes than deps
        (tags, data, copts, another size): that one has a capstan_cc_test of its own.
      **kwargs: of cc_library; the test does not get them.
    """
    own_srcs, own_hdrs = _file_if_there(name + ".cc"), _file_if_there(name + ".h")
    if srcs == None and hdrs == None and not own_srcs + own_hdrs:
        fail("{0}: expected a file {0}.h or {0}.cc in this package, or srcs or hdrs".format(name))
    native.cc_library(
        name = name,
        srcs = own_srcs if srcs == None else srcs,
        hdrs = own_hdrs if hdrs == None else hdrs,
        copts = _library_copts(copts),
        deps = _library_deps(copts, deps),
        **kwargs
    )
    if test_deps != None:
        capstan_cc_test(name = name + "_test", deps = _deps_of_test(name, test_deps))

def capstan_cc_folder(apart = [], deps = [], test_deps = [], **kwargs):
    """The library of a folder, named as the folder, and a test of each of its <name>_test.cc.

    The library has all .h and .cc files of the folder. The .cc files are one translation unit:
    what they include is read and instantiated once, which halves the time; so unnamed namespaces
    and `using` reach from file to file. The tests are one program of a few such units, and their
    names are in namespaces of their files. `--define=precompiled=off` compiles each file by itself.

    Args:
      apart: files with targets of their own: mains, tests with more attributes than deps, files
        with options of their own.
      deps: direct dependencies.
      test_deps: what the tests include beside the library, its deps and Catch2.
      **kwargs: of capstan_cc_library; the tests do not get them.
    """
    name = native.package_name().split("/")[-1]
    tests = native.glob(["*_test.cc"], allow_empty = True, exclude = apart)
    srcs = native.glob(["*.cc"], allow_empty = True, exclude = apart + tests)
    compiled, included = translation_units(name + "_unit", srcs)
    capstan_cc_library(
        name = name,
        srcs = compiled,
        hdrs = native.glob(["*.h"], allow_empty = True, exclude = apart),
        textual_hdrs = included,
        deps = deps,
        **kwargs
    )
    _tests_of_folder(name + "_tests", tests, [":" + name] + deps + test_deps)

def _tests_of_folder(name, tests, deps):
    if len(tests) == 1:
        capstan_cc_test(name = tests[0][:-len(".cc")], deps = deps)
    if len(tests) < 2:
        return
    compiled, included = translation_units(name, tests, files_max = _TESTS_OF_A_UNIT)
    deps = _test_deps(deps)
    # A cc_binary has no textual_hdrs.
    native.cc_library(name = name + "_files", textual_hdrs = included, testonly = True, deps = deps)
    native.cc_binary(
        name = name,
        srcs = compiled,
        copts = _test_copts(),
        linkstatic = False,  # As tests are.
        testonly = True,
        deps = deps + [":" + name + "_files"],
    )
    for test in tests:
        cases_of_file(name = test[:-len(".cc")], program = ":" + name)

def capstan_cc_binary(name, srcs = None, copts = [], deps = [], **kwargs):
    """A cc_binary with the project's warnings as errors, of <name>.cc where srcs is left out."""
    native.cc_binary(
        name = name,
        srcs = [name + ".cc"] if srcs == None else srcs,
        copts = _library_copts(copts),
        deps = _library_deps(copts, deps),
        **kwargs
    )

def capstan_cc_test(name, srcs = None, deps = [], copts = [], size = "small", **kwargs):
    """A Catch2 test of <name>.cc, or of srcs: a file holds only its cases, the main is shared.

    For a test with attributes of its own: the test_deps of a folder or library express none.
    """
    native.cc_test(
        name = name,
        size = size,
        srcs = [name + ".cc"] if srcs == None else srcs,
        copts = _test_copts() + copts,
        deps = _test_deps(deps),
        **kwargs
    )
