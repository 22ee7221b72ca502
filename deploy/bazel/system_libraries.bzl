"""System libraries as Bazel repositories: the one place where a library enters the build.

Each repository is fed by pkg-config (or, where a package ships no .pc file, by plain -l flags), so
the versions are those of the Debian packages in deploy/packages.txt.
"""

# repository -> target -> pkg-config modules. Headers come from the default include path.
_PKG_CONFIG_LIBRARIES = {
    "absl": {
        "btree": ["absl_btree"],
        "cord": ["absl_cord"],
        "container": ["absl_flat_hash_map", "absl_flat_hash_set", "absl_inlined_vector"],
        "log_severity": ["absl_log_severity"],
        "numeric": ["absl_int128", "absl_bits"],
        "span": ["absl_span"],
        "status": ["absl_status", "absl_statusor"],
        "strings": ["absl_strings", "absl_str_format"],
        "synchronization": ["absl_synchronization"],
        "time": ["absl_time"],
    },
    "catch2": {"catch2": ["catch2"]},
    "cli11": {"cli11": ["CLI11"]},
    "grpc": {"grpc++": ["grpc++"], "reflection": ["grpc++"]},
    "isal": {"isal": ["libisal"]},
    "jpeg": {"jpeg": ["libjpeg"]},
    "openssl": {"crypto": ["libcrypto"], "ssl": ["libssl"]},
    "png": {"png": ["libpng16"]},
    "protobuf": {"protobuf": ["protobuf"]},
    "spdlog": {"spdlog": ["spdlog"]},
    "sqlite3": {"sqlite3": ["sqlite3"]},
    "zlib": {"zlib": ["zlib"]},
    "zmq": {"zmq": ["libzmq"]},
    "zstd": {"zstd": ["libzstd"]},
}

# Libraries without a .pc file, and flags that pkg-config does not know of.
_EXTRA_LINKOPTS = {
    "grpc": {"reflection": [
        "-Wl,--push-state,--no-as-needed",
        "-lgrpc++_reflection",
        "-Wl,--pop-state",
    ]},
}

_PLAIN_LIBRARIES = {
    "onednn": {"onednn": ["-ldnnl", "-lgomp"]},
    "posix": {"threads": ["-pthread"]},
}

_BUILD_HEAD = """package(default_visibility = ["//visibility:public"])
"""

_LIBRARY = """
cc_library(
    name = "{name}",
    defines = {defines},
    linkopts = {linkopts},
)
"""

# Abseil's, for Windows. A macro that only some targets define makes GCC refuse a precompiled header
# that knows its name, and Catch2's does.
_WITHOUT_EFFECT = ["-DNOMINMAX"]

def _flags(ctx, modules, kind):
    result = ctx.execute(["pkg-config", kind] + modules)
    if result.return_code != 0:
        fail("pkg-config {} {} failed; run deploy/install first.\n{}".format(
            kind,
            " ".join(modules),
            result.stderr,
        ))
    return [flag for flag in result.stdout.strip().split(" ") if flag]

def _system_library_impl(ctx):
    build = _BUILD_HEAD
    for name, modules in ctx.attr.targets.items():
        cflags = _flags(ctx, modules, "--cflags")
        linkopts = _flags(ctx, modules, "--libs") + ctx.attr.linkopts.get(name, [])
        build += _LIBRARY.format(
            name = name,
            defines = [
                flag[2:]
                for flag in cflags
                if flag.startswith("-D") and flag not in _WITHOUT_EFFECT
            ],
            linkopts = linkopts,
        )
    for name, linkopts in ctx.attr.plain_targets.items():
        build += _LIBRARY.format(name = name, defines = [], linkopts = linkopts)
    ctx.file("BUILD.bazel", build)

_system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "linkopts": attr.string_list_dict(),
        "plain_targets": attr.string_list_dict(),
        "targets": attr.string_list_dict(),
    },
    configure = True,
    environ = ["PKG_CONFIG_PATH"],
    local = True,
)

def system_libraries():
    """Declares one repository per system library; called once, by WORKSPACE."""
    for name, targets in _PKG_CONFIG_LIBRARIES.items():
        _system_library(
            name = name,
            linkopts = _EXTRA_LINKOPTS.get(name, {}),
            targets = targets,
        )
    for name, targets in _PLAIN_LIBRARIES.items():
        _system_library(name = name, plain_targets = targets)
