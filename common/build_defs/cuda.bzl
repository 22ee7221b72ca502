"""CUDA sources: one object a .cu file, compiled by nvcc; skipped where there is no toolkit."""

load("@cuda//:found.bzl", "CUDA_COMPATIBLE", "CUDA_HOME")

# Code for the A100 and the H100, and PTX that newer cards compile at their first start.
_TARGETS = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
]

_COPTS = [
    "-std=c++20",
    "-O3",
    # Host and device share constexpr functions (common/random/philox.h).
    "--expt-relaxed-constexpr",
    # No fused multiply-add that the source does not spell: the same bits as on the host.
    "-fmad=false",
    "-lineinfo",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror,-fvisibility=hidden",
]

def _cuda_object_impl(ctx):
    headers = depset(
        ctx.files.hdrs,
        transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps],
    )
    source = ctx.files.srcs[0]
    out = ctx.actions.declare_file(ctx.label.name + ".o")
    ctx.actions.run(
        arguments = _TARGETS + _COPTS + ["-I.", "-c", source.path, "-o", out.path],
        executable = CUDA_HOME + "/bin/nvcc",
        inputs = depset([source], transitive = [headers]),
        mnemonic = "CudaCompile",
        outputs = [out],
        progress_message = "Compiling " + source.short_path,
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]))]

_cuda_object = rule(
    implementation = _cuda_object_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "srcs": attr.label_list(allow_files = [".cu"]),  # One.
    },
)

def capstan_cuda_library(name, srcs, hdrs, deps = [], private_hdrs = [], **kwargs):
    """A cc_library of .cu files; warnings are errors.

    Args:
      name: the library's name.
      srcs: .cu files.
      hdrs: headers of the library, seen by who depends on it.
      deps: cc_library targets.
      private_hdrs: headers with device code, for srcs alone.
      **kwargs: of cc_library.
    """
    for src in srcs:
        _cuda_object(
            name = src.replace(".", "_"),
            srcs = [src],
            hdrs = hdrs + private_hdrs,
            target_compatible_with = CUDA_COMPATIBLE,
            deps = deps + ["@cuda//:headers"],
        )
    native.cc_library(
        name = name,
        srcs = [":" + src.replace(".", "_") for src in srcs],
        hdrs = hdrs,
        target_compatible_with = CUDA_COMPATIBLE,
        deps = deps + ["@cuda//:runtime"],
        **kwargs
    )
