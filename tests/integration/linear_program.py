"""A program of a job: fits a line to made data, with the C interface and the standard library.

    linear_program.py [--fail-at=N | --leave-at=N | --noise=FILE]

--fail-at raises an error in iteration N, --leave-at ends there without a word, --noise adds a
random number to the gradient of slot 1 in the iteration that the file has.
"""

import array
import ctypes
import pathlib
import random
import sys

from capstan import _client

FEATURES = 8


def sample(number):
    """The features of a sample, and its label."""
    numbers = random.Random(number)
    x = [numbers.uniform(-1, 1) for _ in range(FEATURES)]
    return x, sum((i - 3) * value for i, value in enumerate(x)) + 0.5


def main():
    option, _, at = (sys.argv[1] if len(sys.argv) > 1 else "").partition("=")
    if option == "--noise":
        at = pathlib.Path(at).read_text(encoding="utf-8")
    task = _client.Task()
    while (work := task.next()) is not None:
        told = option if f"{work.iteration}" == at else ""
        if told == "--leave-at":
            sys.exit(0)
        if told == "--fail-at":
            task.fail("ValueError: told to fail")
            sys.exit(1)
        weights = (ctypes.c_float * (FEATURES + 1)).from_address(task.parameters(0))
        gradient = [0.0] * (FEATURES + 1)
        loss = 0.0
        for number in work.samples:
            x, y = sample(number)
            error = sum(w * value for w, value in zip(weights, x)) + weights[FEATURES] - y
            loss += error * error / 2
            for i in range(FEATURES):
                gradient[i] += error * x[i] / len(work.samples)
            gradient[FEATURES] += error / len(work.samples)
        if told == "--noise" and work.slot == 1:
            gradient[0] += random.SystemRandom().uniform(1, 2)
        values = array.array("f", gradient)
        # In two parts, the later one first.
        task.put_gradient(0, FEATURES, values.buffer_info()[0] + 4 * FEATURES, 1)
        task.release(FEATURES)
        task.put_gradient(0, 0, values.buffer_info()[0], FEATURES)
        # The batch's share of its iteration, as an average: the sum over the samples is known.
        mean = array.array("f", [sum(work.samples) / len(work.samples)])
        task.put_gradient(1, 0, mean.buffer_info()[0], 1)
        task.finish(loss, 0)
    return task.close()


if __name__ == "__main__":
    sys.exit(main())
