"""Training speed of one worker on one thread, against Debian's PyTorch on the same work.

LeNet (28x28 images, batch 64, momentum SGD, synthetic data in memory) on one thread each. The two
take turns in short rounds, so that whatever else the machine does slows both; medians over the
rounds are compared. "processor" is samples per second of processor time: on a machine shared with
others, the steadier number.

Exit codes: 0 the goal is met, 1 it is not, 2 PyTorch is missing.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

BATCHES = 16  # In memory, taken in turn.


class Ours:
    """train_steps, asked over a pipe."""

    name = "capstan"

    def __init__(self, binary, batch):
        self.process = subprocess.Popen([binary, "--zoo=lenet", f"--batch={batch}", "--threads=1"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

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
    """The same network in PyTorch, in this process."""

    def __init__(self, batch):
        import torch
        torch.set_num_threads(1)
        torch.manual_seed(1)
        layers = torch.nn
        self.name = f"pytorch {torch.__version__}"
        self.torch = torch
        self.model = layers.Sequential(
            layers.Conv2d(1, 20, 5),
            layers.MaxPool2d(2),
            layers.Conv2d(20, 50, 5),
            layers.MaxPool2d(2),
            layers.Flatten(),
            layers.Linear(800, 500),
            layers.ReLU(),
            layers.Linear(500, 10),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.images = torch.rand(BATCHES, batch, 1, 28, 28)
        self.labels = torch.randint(0, 10, (BATCHES, batch))
        self.count = 0

    def run(self, steps):
        wall, processor = time.monotonic(), time.process_time()
        loss = None
        for _ in range(steps):
            index = self.count % BATCHES
            self.optimizer.zero_grad(set_to_none=True)
            output = self.model(self.images[index])
            loss = self.torch.nn.functional.cross_entropy(output, self.labels[index])
            loss.backward()
            self.optimizer.step()
            self.count += 1
        return time.monotonic() - wall, time.process_time() - processor, float(loss.detach())

    def close(self):
        pass


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


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--train-steps", default="tests/benchmark/train_steps", help="the worker's side")
    add("--batch", type=int, default=64, help="samples a step (default 64)")
    add("--rounds", type=int, default=7, help="rounds each, at least 5 (default 7)")
    add("--seconds", type=float, default=1.0, help="length of a round (default 1)")
    add("--goal", type=float, default=1.5, help="ratio to reach (default 1.5)")
    arguments = parser.parse_args()
    if arguments.rounds < 5:
        parser.error(f"--rounds is {arguments.rounds}, expected at least 5")
    try:
        torch = Torch(arguments.batch)
    except ImportError as error:
        install = "install the Debian package python3-torch"
        print(f"PyTorch is missing ({error}); {install}", file=sys.stderr)
        return 2
    contenders = [Ours(arguments.train_steps, arguments.batch), torch]
    results = measure(contenders, arguments.batch, arguments.rounds, arguments.seconds)
    for contender in contenders:
        contender.close()

    rounds = f"medians of {arguments.rounds} rounds in turn"
    print(f"LeNet, batch {arguments.batch}, one thread, {rounds}")
    print(f"{'samples/s':<20}{'wall':>10}{'min':>10}{'max':>10}{'processor':>12}")
    medians = []
    for contender, result in zip(contenders, results):
        wall = [w for w, _ in result]
        processor = statistics.median(p for _, p in result)
        medians.append((statistics.median(wall), processor))
        columns = f"{medians[-1][0]:>10.0f}{min(wall):>10.0f}{max(wall):>10.0f}{processor:>12.0f}"
        print(f"{contender.name:<20}{columns}")
    wall_ratio = medians[0][0] / medians[1][0]
    processor_ratio = medians[0][1] / medians[1][1]
    met = wall_ratio >= arguments.goal
    print(f"ratio {wall_ratio:.2f} (processor time {processor_ratio:.2f}), goal {arguments.goal}: "
          f"{'met' if met else 'NOT MET'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
