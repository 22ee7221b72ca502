"""The CUDA toolkit as the repository @cuda, or, where there is none, a stand-in that says so.

Looked for in $CUDA_HOME if that is set, else in /usr/local/cuda: nvcc, cudart, cuBLASLt, cuDNN and
NCCL's header (its library is opened at run time) must all be there, cuDNN from 9.8 on.
--repo_env=CUDA_HOME=/none builds as if there were none.
@cuda//:found.bzl holds

    CUDA_FOUND        whether there is a toolkit
    CUDA_MISSING      if not: what is missing, in words
    CUDA_HOME         its folder, or ""
    CUDA_COMPATIBLE   for target_compatible_with: targets are skipped where there is no toolkit
"""

_HEADERS = ["cuda_runtime_api.h", "cublasLt.h", "cudnn.h", "nccl.h"]

_LIBRARIES = ["libcudart.so", "libcublasLt.so", "libcudnn.so"]

# The first that plans without a device, which tests ask for.
_CUDNN_MIN = [9, 8]

_FOUND = """CUDA_FOUND = {found}
CUDA_MISSING = "{missing}"
CUDA_HOME = "{home}"
CUDA_COMPATIBLE = {compatible}
"""

_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(
        ["include/*.h", "include/*.hpp", "include/crt/**", "include/nv/**"],
        allow_empty = True,
    ),
    includes = ["include"],
)

cc_library(
    name = "runtime",
    linkopts = {runtime},
    deps = [":headers"],
)

cc_library(
    name = "cublaslt",
    linkopts = {cublaslt},
    deps = [":headers"],
)

cc_library(
    name = "cudnn",
    linkopts = {cudnn},
    deps = [":headers"],
)

# For who opens a library at run time: where they lie.
cc_library(
    name = "library_path",
    linkopts = {library_path},
)
"""

def _missing_in(ctx, home):
    """Says what the toolkit in `home` lacks; "" if it is whole."""
    if not ctx.path(home).exists:
        return "{} does not exist".format(home)
    wanted = [home + "/bin/nvcc"] + [home + "/include/" + name for name in _HEADERS]
    wanted += [_library_folder(ctx, home) + "/" + name for name in _LIBRARIES]
    for path in wanted:
        if not ctx.path(path).exists:
            return "{} does not exist".format(path)
    version = _cudnn_version(ctx, home)
    if version < _CUDNN_MIN:
        return "cuDNN in {} is {}, expected at least {}".format(home, version, _CUDNN_MIN)
    return ""

def _cudnn_version(ctx, home):
    """Returns the version in cudnn_version.h as [major, minor]; [] if there is no such file."""
    path = home + "/include/cudnn_version.h"
    if not ctx.path(path).exists:
        return []
    version = []
    for name in ["CUDNN_MAJOR", "CUDNN_MINOR"]:
        for line in ctx.read(path).split("\n"):
            words = [word for word in line.split(" ") if word]
            if words[:2] == ["#define", name]:
                version.append(int(words[2]))
                break
    return version

def _library_folder(ctx, home):
    return home + ("/lib64" if ctx.path(home + "/lib64").exists else "/lib")

def _cuda_toolkit_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "") or "/usr/local/cuda"
    missing = _missing_in(ctx, home)
    if not missing:
        folder = _library_folder(ctx, home)
        flags = ["-L" + folder, "-Wl,--enable-new-dtags", "-Wl,-rpath," + folder]
        ctx.symlink(home + "/include", "include")
        ctx.file("BUILD.bazel", _BUILD.format(
            cublaslt = flags + ["-lcublasLt"],
            cudnn = flags + ["-lcudnn"],
            library_path = flags,
            runtime = flags + ["-lcudart"],
        ))
        ctx.file("found.bzl", _FOUND.format(
            compatible = [],
            found = True,
            home = home,
            missing = "",
        ))
        return
    ctx.file("BUILD.bazel", _BUILD.format(
        cublaslt = [],
        cudnn = [],
        library_path = [],
        runtime = [],
    ))
    ctx.file("found.bzl", _FOUND.format(
        compatible = ["//common/build_defs:cuda_toolkit"],
        found = False,
        home = "",
        missing = "no CUDA toolkit: " + missing,
    ))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    configure = True,
    environ = ["CUDA_HOME"],
    local = True,
)
