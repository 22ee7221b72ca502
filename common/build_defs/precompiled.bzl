"""Headers parsed once for all: two thirds of a compilation would go into reading them anew.

A rule makes the .gch of a header, with the flags of every other C++ file of the same configuration;
the macros of capstan.bzl and proto.bzl put it in front of each file by precompiled_copts. GCC takes
it or reads the header beside it instead (-Winvalid-pch says why); `--define=precompiled=off` reads
no such header at all, and so finds a file that does not include what it uses.

A plugin of GCC (instantiate_pragma.cc) also instantiates once what the headers' own functions use
of templates; only the making of the .gch loads it.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _gcc_plugin_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    plugin = ctx.actions.declare_file(ctx.label.name + ".so")
    ctx.actions.run_shell(
        arguments = [toolchain.compiler_executable, ctx.file.src.path, plugin.path],
        command = """
headers="$("$1" -print-file-name=plugin)/include"
if [[ ! -e "$headers/gcc-plugin.h" ]]; then
  echo "found no headers for plugins of $1, expected those of Debian's gcc-12-plugin-dev" \\
    "(deploy/packages.txt); to build without: --define=precompiled=off" >&2
  exit 1
fi
"$1" -shared -fPIC -fno-rtti -O1 -isystem "$headers" -o "$3" "$2"
""",
        inputs = depset([ctx.file.src], transitive = [toolchain.all_files]),
        mnemonic = "GccPlugin",
        outputs = [plugin],
        progress_message = "Compiling a plugin of GCC, " + ctx.file.src.short_path,
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([plugin]))]

gcc_plugin = rule(
    implementation = _gcc_plugin_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".cc"], mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    doc = "<name>.so, to be loaded by the compiler that compiled it.",
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def _command(ctx, source, output):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    variables = cc_common.create_compile_variables(
        cc_toolchain = toolchain,
        feature_configuration = features,
        output_file = output.path,
        source_file = source.path,
        use_pic = True,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts +
                             ctx.attr.copts + ["-iquote", ".", "-iquote", ctx.bin_dir.path] +
                             ["-fplugin=" + ctx.file._plugin.path, "-x", "c++-header"],
    )
    return struct(
        tool = cc_common.get_tool_for_action(
            action_name = ACTION_NAMES.cpp_compile,
            feature_configuration = features,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            action_name = ACTION_NAMES.cpp_compile,
            feature_configuration = features,
            variables = variables,
        ),
        files = toolchain.all_files,
    )

def _precompiled_header_impl(ctx):
    # In a folder of its own: GCC looks for a .gch beside the first header of that name.
    header = ctx.actions.declare_file("precompiled/" + ctx.file.src.basename)
    compiled = ctx.actions.declare_file("precompiled/" + ctx.file.src.basename + ".gch")
    ctx.actions.symlink(output = header, target_file = ctx.file.src)
    instantiated = ctx.actions.declare_file("precompiled/instantiated_" + ctx.file.src.basename)
    ctx.actions.write(
        instantiated,
        "#include \"{}\"\n#pragma capstan instantiate\n".format(ctx.file.src.path),
    )
    command = _command(ctx, instantiated, compiled)
    headers = depset(
        ctx.files.includes,
        transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps],
    )
    ctx.actions.run(
        arguments = command.arguments,
        executable = command.tool,
        inputs = depset(
            [ctx.file.src, ctx.file._plugin, instantiated],
            transitive = [command.files, headers],
        ),
        mnemonic = "CppPrecompile",
        outputs = [compiled],
        progress_message = "Precompiling " + ctx.file.src.short_path,
        use_default_shell_env = True,
    )
    return [CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([header, compiled], transitive = [headers]),
    ))]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        # Must have the -O of the files that src is put in front of: GCC compiles them by src's.
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),  # Libraries whose headers src includes.
        "includes": attr.label_list(allow_files = [".h"]),  # Headers beside src that it includes.
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_plugin": attr.label(
            allow_single_file = [".so"],
            cfg = "exec",
            default = "//common/build_defs:instantiate_pragma",
        ),
    },
    doc = "A header of headers that seldom change, to put in front of C++ files.",
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def precompiled_deps(name):
    """The deps of a target that compiles with the precompiled header //common/build_defs:<name>."""
    return select({
        "//common/build_defs:nothing_precompiled": [],
        "//conditions:default": ["//common/build_defs:" + name],
    })

def precompiled_copts(name):
    """The copts of such a target."""
    return select({
        "//common/build_defs:nothing_precompiled": [],
        "//conditions:default": [
            "-include",
            "common/build_defs/precompiled/{}.h".format(name),
            # A precompiled header alone is beyond what GCC fills before it collects garbage: it
            # would do so again and again, and find all of it in use. KiB.
            "--param=ggc-min-heapsize=1048576",
        ],
    })
