"""Several sources compiled as one file: what they all include is read and instantiated once."""

def _translation_unit_impl(ctx):
    unit = ctx.actions.declare_file(ctx.label.name + ".cc")
    # GCC takes what is included for a header, and warns of a header's unnamed namespaces.
    lines = ["#pragma GCC diagnostic ignored \"-Wsubobject-linkage\"\n"]
    lines += ["#include \"{}\"\n".format(source.path) for source in ctx.files.srcs]
    ctx.actions.write(unit, "".join(lines))
    return [DefaultInfo(files = depset([unit]))]

translation_unit = rule(
    implementation = _translation_unit_impl,
    attrs = {"srcs": attr.label_list(allow_files = [".cc"], mandatory = True)},
    doc = "<name>.cc, which includes all of srcs.",
)

def _unless_bare(srcs, bare, otherwise):
    if len(srcs) < 2:
        return bare
    return select({
        "//common/build_defs:nothing_precompiled": bare,
        "//conditions:default": otherwise,
    })

def sources_as_one(unit, srcs):
    """The srcs of a target that compiles them as the translation_unit `unit`."""
    return _unless_bare(srcs, srcs, [":" + unit])

def sources_in_one(srcs):
    """The textual_hdrs of such a target."""
    return _unless_bare(srcs, [], srcs)
