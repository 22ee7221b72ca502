"""A script for `capstan run` that needs the standard library alone: fits a line to made data.

    run_program.py [--epochs=N] [--gate=FILE] [--correct=N] [--fail=WHERE] [--say=VARIABLE,...]

--gate: wait for the lock of that file before iteration 5. --correct: samples of each batch that
count as right. --fail: raise an error "declaring", at the "start" of a task, or in a "batch".
--say: print these variables of the environment.
"""

import argparse
import array
import atexit
import ctypes
import fcntl
import os
import sys

from capstan import _client, _job

SAMPLES, BATCH = 64, 8
SLOPE, OFFSET = 3.0, -1.0


def declare(folder, epochs):
    """Writes the job, as capstan.torch does for a script of PyTorch."""
    zero = array.array("f", [0]).tobytes()
    tensors = [{"name": "slope", "shape": [1]}, {"name": "offset", "shape": [1]}]
    _job.write_safetensors(folder / _job.WEIGHTS_FILE,
                           ((tensor["name"], tensor["shape"], zero) for tensor in tensors))
    _job.write_job(folder, {
        "program": {"samples": SAMPLES, "parameters": tensors},
        "optimizer": {"sgd": {}, "learning_rate": 0.5},
        "consistency": _job.consistency("bsp"),
        "training": {"epochs": epochs, "batch_size": BATCH, "slots": 2},
    })


def train(task, work, correct):
    slope, offset = (ctypes.c_float * 2).from_address(task.parameters(0))
    gradient, loss = array.array("f", [0, 0]), 0.0
    for number in work.samples:
        x = 2 * number / SAMPLES - 1
        error = slope * x + offset - (SLOPE * x + OFFSET)
        loss += error * error / 2
        gradient[0] += error * x / len(work.samples)
        gradient[1] += error / len(work.samples)
    task.put_gradient(0, 0, gradient.buffer_info()[0], len(gradient))
    task.finish(loss, correct)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--gate")
    parser.add_argument("--correct", type=int, default=0)
    parser.add_argument("--fail")
    parser.add_argument("--say", default="")
    options = parser.parse_args()
    folder = _job.folder_to_declare_in()
    if folder is not None:
        if options.fail == "declaring":
            raise ValueError("told to fail at once")
        declare(folder, options.epochs)
        return 0
    if options.fail == "start":
        raise ValueError("told to fail at the start")
    for name in filter(None, options.say.split(",")):
        print(f"{name} is {os.environ.get(name)}")
    task = _client.Task()
    print(f"task {task.rank} of {task.workers}")
    while (work := task.next()) is not None:
        if options.fail == "batch":
            # After the traceback, as the package does: the worker ends a process that has failed.
            atexit.register(task.fail, "ValueError: told to fail in a batch")
            raise ValueError("told to fail in a batch")
        if options.gate and work.iteration == 5:
            with open(options.gate, encoding="utf-8") as gate:
                fcntl.flock(gate, fcntl.LOCK_SH)
        train(task, work, options.correct)
    return task.close()


if __name__ == "__main__":
    sys.exit(main())
