"""Kernels, graphs and bytes of a training step on a GPU, counted without one.

train_steps trains on an emulated GPU that counts what it is asked to do and computes nothing
(kernels/cuda/emulation/counts.h, which says how bytes are estimated): both passes and the update
stay on the card, the libraries' first plans are taken, and the next batch is uploaded meanwhile.
What is counted is a step whose graphs have been recorded. A plan of cuDNN and a product of cuBLASLt
are one kernel each.

Exit codes: 0 counted, 1 ResNet-50 misses a goal.
"""

import argparse
import collections
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

PLUGIN = "kernels/cuda/emulation/libcapstan_emulated_cuda.so"

Case = collections.namedtuple("Case", "name zoo batch compute image classes")
Counts = collections.namedtuple("Counts", "kernels graphs bytes")

CASES = (
    Case("ResNet-50", "resnet50", 256, "BF16", "224x224x3", 1000),
    Case("ResNet-18", "resnet18", 128, "BF16", "32x32x3", 10),
    Case("VGG-16", "vgg16", 128, "BF16", "224x224x3", 1000),
    Case("LeNet", "lenet", 256, "FP32", "28x28x1", 10),
)
GOAL = Counts(kernels=420, graphs=3, bytes=85e9)  # At most, for ResNet-50.
_RECORDED = 3  # Steps until all graphs have been recorded and launched.


def count(case, train_steps="tests/benchmark/train_steps", plugin=PLUGIN):
    """The counts of one step."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "counts"
        env = dict(os.environ, CAPSTAN_CUDA_PLUGIN=plugin, CAPSTAN_EMULATED_COUNTS=str(file))
        arguments = [train_steps, f"--zoo={case.zoo}", f"--batch={case.batch}",
                     f"--image={case.image}", f"--classes={case.classes}",
                     f"--compute={case.compute}", "--gpu=0", "--update=device", "--plans=first"]
        with subprocess.Popen(arguments, env=env, text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as trainer:

            def after(steps):
                trainer.stdin.write(f"{steps}\n")
                trainer.stdin.flush()
                if not trainer.stdout.readline():
                    raise RuntimeError(f"train_steps ended with {trainer.wait()}")
                return struct.unpack("=3Q", file.read_bytes())

            before = after(_RECORDED)
            counts = Counts(*(new - old for new, old in zip(after(1), before)))
            trainer.stdin.close()
            if trainer.wait() != 0:
                raise RuntimeError(f"train_steps ended with {trainer.returncode}")
            return counts


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="the zoo's name of one network, for example resnet50")
    options = parser.parse_args()
    met = True
    print("| network | batch | kernels | graphs | GB |\n|---|--:|--:|--:|--:|")
    for case in CASES:
        if options.only not in (None, case.zoo):
            continue
        counts = count(case)
        print(f"| {case.name}, {case.compute}, {case.image} | {case.batch} | {counts.kernels} | "
              f"{counts.graphs} | {counts.bytes / 1e9:.2f} |", flush=True)
        if case.zoo == "resnet50":
            met = all(got <= goal for got, goal in zip(counts, GOAL))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
