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

def translation_units(name, srcs, files_max = None):
    """Makes translation_units of srcs, if they are several: `name`_0, `name`_1, ...

    Args:
      name: of the units.
      srcs: .cc files.
      files_max: of a unit; None: all are one.

    Returns:
      srcs and textual_hdrs of the target that compiles them so; with --define=precompiled=off it
      compiles each by itself.
    """
    if len(srcs) < 2:
        return srcs, []
    files_max = files_max or len(srcs)
    count = (len(srcs) + files_max - 1) // files_max
    units = []
    for i in range(count):
        part = srcs[i * len(srcs) // count:(i + 1) * len(srcs) // count]
        translation_unit(name = "{}_{}".format(name, i), srcs = part)
        units.append(":{}_{}".format(name, i))
    bare, otherwise = "//common/build_defs:nothing_precompiled", "//conditions:default"
    return select({bare: srcs, otherwise: units}), select({bare: [], otherwise: srcs})
