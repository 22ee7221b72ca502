"""Training whole models on a GPU: our trainer against PyTorch, in turns on the same card.

    tests/gpu/compare_training.py --pack=.gpu-unpacked [--only=resnet50] [--rounds=5]

Contenders, all with momentum SGD on the card: train_steps (without parameter servers), PyTorch
eager (channels-last, autocast, fused SGD) and the same compiled by torch.compile, in its default
mode and in `reduce-overhead`, which records graphs. PyTorch's batches lie on the card from the
start; ours come from the host's memory at each step.

Prints each turn as soon as it is over, and a Markdown table of medians. A contender takes its first
turn before the next one is made: compiling is slow, and whoever ends this early has the others. The
goal is the time of the best PyTorch: the exit code is 4 if a case misses it. Our processor time
holds the copying of batches besides what launching costs. Without PyTorch, or a case that it cannot
do, its columns are empty and nothing is missed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

import processes
import pytorch_models
import run_gpu
import verdicts

try:
    import torch
except ImportError:
    torch = None

_BATCHES_BYTES = 1 << 29  # train_steps holds as many: of the batches that are taken in turn.
_WARM_UP = 10
_TURN_SECONDS = 2.0
# Names of PyTorch's contenders, and how torch.compile is asked for them.
_PYTORCH = {"PyTorch eager": None, "torch.compile": "default", "reduce-overhead": "reduce-overhead"}


class Case:
    """A model, the size of its batch and images, and what it is computed with."""

    def __init__(self, zoo, batch, compute, image, classes):
        self.zoo, self.batch, self.compute = zoo, batch, compute
        self.image, self.classes = image, classes
        height, width, channels = image
        self.batches = max(2, min(16, _BATCHES_BYTES // (4 * batch * height * width * channels)))

    def __str__(self):
        sizes = "x".join(str(size) for size in self.image)
        return f"{self.zoo} {self.compute.lower()}, batch {self.batch} of {sizes}"

    def small(self):
        """The same for an emulated GPU."""
        zoo, side = ("resnet20", 8) if self.zoo.startswith("resnet") else ("lenet", 28)
        return Case(zoo, 2, self.compute, (side, side, self.image[2]), 10)


CASES = (
    Case("resnet50", 256, "BF16", (224, 224, 3), 1000),
    Case("resnet18", 128, "BF16", (32, 32, 3), 10),
    Case("resnet18", 512, "BF16", (32, 32, 3), 10),
    Case("vgg16", 128, "BF16", (224, 224, 3), 1000),
    Case("lenet", 256, "FP32", (28, 28, 1), 10),
)


class Ours:
    """train_steps, asked over a pipe."""

    name = "Capstan"

    def __init__(self, program, case, env, gpu):
        arguments = [program, f"--zoo={case.zoo}", f"--batch={case.batch}",
                     f"--compute={case.compute}", f"--classes={case.classes}",
                     "--image=" + "x".join(str(size) for size in case.image)]
        if gpu:
            arguments += ["--gpu=0", "--update=device"]
        counted = subprocess.run(arguments + ["--parameters"], env=env, check=True,
                                 capture_output=True, text=True)
        self.parameters = int(counted.stdout)
        self.enqueueing = 0.0  # Processor seconds of a step of the last run.
        self.process = subprocess.Popen(arguments, env=env, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE,
                                        preexec_fn=processes.die_with_parent)

    def run(self, steps):
        """Wall seconds, processor seconds and the last loss of so many steps."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"train_steps ended with {self.process.wait()}")
        wall, processor, loss, enqueueing = (float(word) for word in line.split())
        self.enqueueing = enqueueing / steps
        return wall, processor, loss

    def note(self):
        return f", of it to enqueue the step's work {1000 * self.enqueueing:.3f} ms"

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Theirs:
    """pytorch_models.Training, in this process."""

    def __init__(self, name, case, device):
        self.name = name
        self.training = pytorch_models.Training(torch, case, _PYTORCH[name], device)
        self.parameters = self.training.parameters
        self.synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None

    def run(self, steps):
        self.synchronize()
        wall, processor = time.monotonic(), time.process_time()
        for _ in range(steps):
            self.training.step()
        self.synchronize()
        return (time.monotonic() - wall, time.process_time() - processor,
                float(self.training.loss))

    @staticmethod
    def note():
        return ""

    def close(self):
        self.training = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def contenders(case, options, env):
    """Yields the contenders that can do the case, ours first; prints what PyTorch cannot do."""
    program = os.path.join(options.pack, "capstan", "tests", "benchmark", "train_steps")
    ours = Ours(options.train_steps or program, case, env, options.device == "cuda")
    yield ours
    if torch is None or (options.device == "cuda" and not torch.cuda.is_available()):
        return
    for name in _PYTORCH:
        try:
            theirs = Theirs(name, case, options.device)
            theirs.run(1)  # Compiles.
        except Exception as error:  # Whatever PyTorch cannot: the row stays, without its time.
            print(f"{case}: {name}: {error}", flush=True)
            continue
        if theirs.parameters != ours.parameters:
            raise RuntimeError(f"{case}: {name} has {theirs.parameters} parameters, "
                               f"expected {ours.parameters}")
        yield theirs


class Turns:
    """The times of each contender's turns, printed as they come."""

    def __init__(self, case, seconds, warm_up=_WARM_UP):
        self.case, self.seconds, self.warm_up = case, seconds, warm_up
        self.steps, self.turns = {}, {}

    def take(self, contender):
        if contender.name not in self.steps:
            contender.run(self.warm_up)
            wall, _, _ = contender.run(self.warm_up)
            self.steps[contender.name] = max(1, round(self.seconds * self.warm_up / wall))
        count = self.steps[contender.name]
        wall, processor, loss = contender.run(count)
        if not loss < 100:
            raise RuntimeError(f"{contender.name}: the loss is {loss}, expected a small one")
        taken = (1000 * wall / count, 1000 * processor / count)
        self.turns.setdefault(contender.name, []).append(taken)
        print(f"{self.case}: {contender.name}: {taken[0]:.3f} ms, processor {taken[1]:.3f} ms"
              + contender.note(), flush=True)

    def medians(self):
        """{name: (milliseconds of a step, processor milliseconds)}."""
        return {name: tuple(statistics.median(column) for column in zip(*values))
                for name, values in self.turns.items()}


def measure(case, options, env):
    """Lets all contenders take turns, the medians of which it returns."""
    turns = Turns(case, options.seconds, 1 if options.small else _WARM_UP)
    entered = []
    try:
        for contender in contenders(case, options, env):
            entered.append(contender)
            turns.take(contender)
        for _ in range(1, options.rounds):
            for contender in entered:
                turns.take(contender)
    finally:
        for contender in entered:
            contender.close()
    return turns.medians()


def row(case, times):
    """A line of the table, and whether the case misses its goal."""
    ours, processor = times[Ours.name]
    theirs = [times[name][0] if name in times else None for name in _PYTORCH]
    known = [time for time in theirs if time is not None]
    ratio = verdicts.Ratio(min(known) / ours if known else None, verdicts.TRAINING)
    columns = [f"{time:.2f}" if time is not None else "" for time in theirs] + [str(ratio)]
    return f"| {case} | {ours:.2f} | {processor:.2f} | {' | '.join(columns)} |", ratio.missed


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--pack", default="", help="the folder that tests/gpu/run has unpacked")
    add("--train-steps", default="", help="that program, if it is not the pack's")
    add("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: to try this file itself")
    add("--only", default="", help="cases whose names begin so")
    add("--rounds", type=int, default=5)
    add("--seconds", type=float, default=_TURN_SECONDS, help="of a turn")
    add("--small", action="store_true", help="for an emulated GPU: tiny models, one step a turn")
    options = parser.parse_args()
    if options.small:
        options.rounds, options.seconds = 1, 0.0
    return options


def main():
    options = parse()
    env = run_gpu.environment(options.pack)
    version = "not there"
    if torch is not None:
        version = torch.__version__
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    print(f"Training; PyTorch {version}; milliseconds of a step, medians of {options.rounds} "
          "rounds in turn\n")
    head = (f"| case | Capstan | its processor time | {' | '.join(_PYTORCH)} "
            f"| best PyTorch / Capstan (goal {verdicts.TRAINING}) |\n" + "|---" * 7 + "|")
    missed = []
    for case in CASES:
        if not str(case).startswith(options.only):
            continue
        chosen = case.small() if options.small else case
        line, misses = row(chosen, measure(chosen, options, env))
        print(f"\n{head}\n{line}\n", flush=True)
        if misses:
            missed.append(str(case))
    if missed:
        print(f"compare_training: missed: {'; '.join(missed)}", file=sys.stderr)
    return verdicts.GOAL_MISSED if missed else 0


if __name__ == "__main__":
    sys.exit(main())
