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

def one_translation_unit(name, srcs):
    """Makes the translation_unit `name` of srcs, if they are several.

    Returns:
      srcs and textual_hdrs of the target that compiles them so; with --define=precompiled=off it
      compiles each by itself.
    """
    if len(srcs) < 2:
        return srcs, []
    translation_unit(name = name, srcs = srcs)
    bare, otherwise = "//common/build_defs:nothing_precompiled", "//conditions:default"
    return select({bare: srcs, otherwise: [":" + name]}), select({bare: [], otherwise: srcs})
