"""Training speed of one worker on one thread, against Debian's PyTorch on the same work.

Models of the zoo, momentum SGD, synthetic data in memory, one thread each: LeNet, ResNet-20 and
ResNet-18 in its form for small images. PyTorch runs twice, with its tensors contiguous and
channels-last; the faster of the two is the baseline. All take turns in short rounds, so that
whatever else the machine does slows all; medians over the rounds are compared. "processor" is
samples per second of processor time: on a machine shared with others, the steadier number.

Exit codes: 0 the goals are met, 1 one is not, 2 PyTorch is missing.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

import pytorch_models

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")


class Case:
    """A model, the size of its batch and images, and the ratio to reach."""

    compute = "FP32"
    batches = 16  # In memory, taken in turn.

    def __init__(self, zoo, batch, image, goal):
        self.zoo, self.batch, self.image, self.goal = zoo, batch, image, goal
        self.classes = 10


CASES = {case.zoo: case for case in (
    Case("lenet", 64, (28, 28, 1), 1.8),
    Case("resnet20", 64, (32, 32, 3), 1.5),
    Case("resnet18", 16, (32, 32, 3), 1.2),
)}


class Ours:
    """train_steps, asked over a pipe."""

    name = "capstan"

    def __init__(self, binary, case):
        arguments = [binary, f"--zoo={case.zoo}", f"--batch={case.batch}", "--threads=1",
                     f"--classes={case.classes}",
                     "--image=" + "x".join(str(size) for size in case.image)]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def run(self, steps):
        """Trains; returns wall seconds, processor seconds and the last loss."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"train_steps ended with {self.process.wait()}")
        return tuple(float(word) for word in line.split())[:3]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Torch:
    """The same model in PyTorch, in this process."""

    def __init__(self, torch, case, channels_last):
        torch.set_num_threads(1)
        layout = "channels-last" if channels_last else "contiguous"
        self.name = f"pytorch {torch.__version__}, {layout}"
        self.training = pytorch_models.Training(torch, case, device="cpu",
                                                channels_last=channels_last)

    def run(self, steps):
        wall, processor = time.monotonic(), time.process_time()
        for _ in range(steps):
            self.training.step()
        return (time.monotonic() - wall, time.process_time() - processor,
                float(self.training.loss))

    def close(self):
        self.training = None


def measure(contenders, batch, rounds, seconds):
    """Lets the contenders take turns.

    Returns for each a list of (samples per second, samples per second of processor time), one a
    round.
    """
    steps = []
    for contender in contenders:
        contender.run(5)  # Warm-up: buffers, caches, prepared kernels.
        wall, _, _ = contender.run(10)
        steps.append(max(1, round(seconds / (wall / 10))))
    results = [[] for _ in contenders]
    for _ in range(rounds):
        for contender, count, result in zip(contenders, steps, results):
            wall, processor, loss = contender.run(count)
            if not loss < 10:
                sys.exit(f"{contender.name}: the loss is {loss}, expected about 2.3 or less")
            result.append((count * batch / wall, count * batch / processor))
    return results


def compare(torch, case, options):
    """Measures a case and prints it; True if the goal is met."""
    contenders = [Ours(options.train_steps, case), Torch(torch, case, channels_last=False),
                  Torch(torch, case, channels_last=True)]
    results = measure(contenders, case.batch, options.rounds, options.seconds)
    for contender in contenders:
        contender.close()

    sizes = "x".join(str(size) for size in case.image)
    print(f"{case.zoo}, batch {case.batch} of {sizes}, one thread, medians of {options.rounds} "
          "rounds in turn")
    print(f"{'samples/s':<30}{'wall':>10}{'min':>10}{'max':>10}{'processor':>12}")
    medians = []
    for contender, result in zip(contenders, results):
        wall = [w for w, _ in result]
        processor = statistics.median(p for _, p in result)
        medians.append((statistics.median(wall), processor))
        columns = f"{medians[-1][0]:>10.0f}{min(wall):>10.0f}{max(wall):>10.0f}{processor:>12.0f}"
        print(f"{contender.name:<30}{columns}")
    wall_ratio, processor_ratio = (medians[0][i] / max(theirs[i] for theirs in medians[1:])
                                   for i in (0, 1))
    met = wall_ratio >= case.goal
    print(f"ratio to the faster {wall_ratio:.2f} (processor time {processor_ratio:.2f}), goal "
          f"{case.goal}: {'met' if met else 'NOT MET'}\n", flush=True)
    return met


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--train-steps", default="tests/benchmark/train_steps", help="the worker's side")
    add("--only", choices=CASES, help="one model alone")
    add("--rounds", type=int, default=7, help="rounds each, at least 5 (default 7)")
    add("--seconds", type=float, default=1.0, help="length of a round (default 1)")
    options = parser.parse_args()
    if options.rounds < 5:
        parser.error(f"--rounds is {options.rounds}, expected at least 5")
    try:
        import torch
    except ImportError as error:
        install = "install the Debian package python3-torch"
        print(f"PyTorch is missing ({error}); {install}", file=sys.stderr)
        return 2
    cases = [CASES[options.only]] if options.only else CASES.values()
    met = [compare(torch, case, options) for case in cases]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
