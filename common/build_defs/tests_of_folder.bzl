"""One program of all tests of a folder, and of each file a test that runs its cases."""

def _cases_of_file_impl(ctx):
    test = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = test, target_file = ctx.executable.program, is_executable = True)
    program = ctx.attr.program[DefaultInfo]
    return [DefaultInfo(executable = test, runfiles = program.default_runfiles)]

_cases_of_file_test = rule(
    implementation = _cases_of_file_impl,
    test = True,
    attrs = {"program": attr.label(cfg = "target", executable = True, mandatory = True)},
)

def cases_of_file(name, program):
    """A test of those cases of a Catch2 program that are in <name>.cc; without any it fails."""
    _cases_of_file_test(
        name = name,
        size = "small",
        program = program,
        args = ["--filenames-as-tags", "--warn=NoTests", "[#{}]".format(name)],
    )
