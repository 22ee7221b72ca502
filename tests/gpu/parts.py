"""The steps to run on a card, in the order that settles the most per minute, within a budget.

A part is a list of steps, each a program with a limit of seconds; the limits of a part, and what it
takes to kill what exceeds them, fit in the part's minutes, whatever the programs do. `Budget` says
how long a step may take of what is left. Pure: no GPU, no process; time comes in by a clock.
"""

# A step that is beyond its limit is killed; it is gone this much later, at the latest.
KILL_SECONDS = 2.0
# A step that is cut to less than this settles nothing.
LEAST_SECONDS = 10.0


class Step:
    """A program that passes by exiting with 0.

    name     for its row; its output's file is named after part, number and name
    seconds  its limit
    command  of words; {bin}, {capstan}, {here}, {python}, {out} and {pack} are folders and programs
    env      what its environment has besides
    pytorch  whether it needs no more than PyTorch's own environment
    reads    a step of the same part whose output goes to its standard input
    tool     a program that the machine must have, else the step is skipped
    """

    def __init__(self, name, seconds, command, env=None, pytorch=False, reads=None, given=None,
                 tool=None):
        self.name, self.seconds, self.command = name, seconds, command
        self.env, self.pytorch, self.reads = env or {}, pytorch, reads
        self.given, self.tool = given, tool


class Part:
    """Steps that run one after the other. `about`: what they settle, for --help."""

    def __init__(self, name, minutes, about, steps):
        self.name, self.minutes, self.about, self.steps = name, minutes, about, steps

    @property
    def seconds(self):
        """At most, if each step takes all of its limit and must be killed."""
        return sum(step.seconds + KILL_SECONDS for step in self.steps)

    def output(self, step):
        """The name of a step's file in the results folder."""
        words = "-".join("".join(c if c.isalnum() else " " for c in step.name.lower()).split())
        return f"{self.name}{self.steps.index(step) + 1}-{words}.txt"


class Budget:
    """How much of the minutes is left. clock(): seconds."""

    def __init__(self, minutes, clock):
        self._clock, self._end = clock, clock() + 60.0 * minutes

    def limit(self, step):
        """How many seconds the step may take, None if too few are left for it."""
        left = self._end - self._clock() - KILL_SECONDS
        limit = min(step.seconds, left)
        return limit if limit >= min(LEAST_SECONDS, step.seconds) else None


# The tests of own kernels, in words of Catch2; without NCCL, and plans of libraries.
_OWN_KERNELS = ("[own]~[library],GPU pools*,GPU batch norm*,GPU element-wise*,GPU softmax*,"
                "GPU embedding*")
_TEST = ["{bin}/conformance_test", "--durations", "yes"]
# Steps on an emulated GPU take longer, and one test stands for all of them: all run in
# emulated_conformance_test.
_SLOWER = 4
_SMALL_TESTS = {"[own]": "GPU graphs*", "~[own]": "GPU softmax*"}
_COMPARE = ["{python}", "-B", "{here}/compare_training.py", "--pack={pack}"]
_END_TO_END = ["{python}", "-B", "{here}/end_to_end.py", "--pack={pack}"]


def _ops(computes):
    return Step(f"ops in {computes}", 110, _TEST + ["~[own]"], {"CAPSTAN_GPU_COMPUTES": computes})


def _beside_pytorch(case, seconds):
    return Step(f"{case} beside PyTorch", seconds, _COMPARE + [f"--only={case}"], pytorch=True)


def _kernels(mode, ours, theirs):
    measured = f"kernels in {mode}"
    return [Step(measured, ours, ["{bin}/gpu_bench", mode]),
            Step(f"{measured} beside floors and PyTorch", theirs,
                 ["{python}", "-B", "{here}/compare_pytorch.py", mode], pytorch=True,
                 reads=measured)]


def _sanitizer(tool, seconds):
    # Where memory is full on purpose, a call fails as it should: that is no error of ours.
    return Step(tool, seconds,
                ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no",
                 "--error-exitcode", "1", "{bin}/conformance_test", _OWN_KERNELS],
                {"CAPSTAN_GPU_SMALL": "1"}, tool="compute-sanitizer")


def _recorded(small):
    case = ["--zoo=resnet20", "--batch=2", "--image=8x8x3"] if small else \
        ["--zoo=resnet18", "--batch=128", "--image=32x32x3"]
    return Step("a recorded ResNet", 60,
                ["{capstan}/tests/benchmark/train_steps", "--compute=BF16", "--gpu=0",
                 "--update=device"] + case, given="2\n2\n" if small else "10\n100\n")


def all_parts(small=False):
    """The parts. `small`: of each a little, and more time, for GPUs that are emulated."""
    more = ["--small"] if small else []
    parts = [
        Part("A", 5, "ceilings, own kernels, ops in fp32 and bf16, a recorded ResNet-18", [
            Step("ceilings", 30, ["{bin}/gpu_bench", "--ceilings"]),
            Step("own kernels", 75, _TEST + ["[own]"]),
            _ops("fp32,bf16"),
            _recorded(small)]),
        Part("B", 8, "ResNet-50 and ResNet-18 beside PyTorch, eager and compiled", [
            _beside_pytorch("resnet50", 230),
            _beside_pytorch("resnet18 bf16, batch 128", 115),
            _beside_pytorch("resnet18 bf16, batch 512", 115)]),
        Part("C", 6, "bf16 kernels beside their floors, ResNet-50 with a server", [
            *_kernels("bf16", 110, 70),
            Step("resnet50 with a server", 160, _END_TO_END + ["--figures=resnet50"])]),
        Part("D", 6, "VGG-16 and LeNet beside PyTorch, ops in TF32 and fp16", [
            _beside_pytorch("vgg16", 160),
            _beside_pytorch("lenet", 70),
            _ops("tf32,fp16")]),
        Part("E", 5, "compute-sanitizer over own kernels", [
            _sanitizer("memcheck", 170),
            _sanitizer("racecheck", 120)]),
        Part("F", 9, "jobs with servers, and kernels in the other modes", [
            Step("jobs on the card", 250, _END_TO_END + ["--checks"]),
            *_kernels("fp32", 55, 35), *_kernels("tf32", 45, 35), *_kernels("fp16", 45, 35)]),
    ]
    for part in parts:
        if small:
            part.minutes *= _SLOWER
        for step in part.steps:
            if small:
                step.seconds *= _SLOWER
                step.command = [_SMALL_TESTS.get(word, word) for word in step.command]
            if step.command[0] == "{python}":
                step.command = step.command + more
    return parts
