"""The repository @debian: facts about the machine's Debian packages that the build depends on.

The wheel (//worker/python:wheel) has copies of shared libraries in it, which are no inputs that
Bazel could see. @debian//:status is dpkg's list of what is installed: the wheel depends on it, and
is made anew once any package has changed.
@debian//:found.bzl holds

    WHEEL_COMPATIBLE   for target_compatible_with: targets are skipped where patchelf is missing
"""

_STATUS = "/var/lib/dpkg/status"

def _debian_impl(ctx):
    found = ctx.which("patchelf") != None and ctx.path(_STATUS).exists
    if found:
        ctx.symlink(_STATUS, "status")
    else:
        ctx.file("status", "")
    ctx.file("BUILD.bazel", """exports_files(["status"])\n""")
    ctx.file("found.bzl", "WHEEL_COMPATIBLE = {}\n".format(
        [] if found else ["@capstan//common/build_defs:patchelf"],
    ))

debian_packages = repository_rule(
    implementation = _debian_impl,
    configure = True,
    environ = ["PATH"],
    local = True,
)
