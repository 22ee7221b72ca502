"""A script for `capstan run` that needs the standard library alone: fits a line to made data.

    line_program.py [EPOCHS]
"""

import array
import ctypes
import sys

from capstan import _client, _job

SAMPLES, BATCH = 64, 8
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
SLOPE, OFFSET = 3.0, -1.0


def declare(folder):
    """Writes the job, as capstan.torch does for a script of PyTorch."""
    zero = array.array("f", [0]).tobytes()
    tensors = [{"name": "slope", "shape": [1]}, {"name": "offset", "shape": [1]}]
    _job.write_safetensors(folder / _job.WEIGHTS_FILE,
                           ((tensor["name"], tensor["shape"], zero) for tensor in tensors))
    _job.write_job(folder, {
        "program": {"samples": SAMPLES, "parameters": tensors},
        "optimizer": {"sgd": {}, "learning_rate": 0.5},
        "consistency": _job.consistency("bsp"),
        "training": {"epochs": EPOCHS, "batch_size": BATCH, "slots": 2},
    })


def main():
    folder = _job.folder_to_declare_in()
    if folder is not None:
        return declare(folder)
    task = _client.Task()
    while (work := task.next()) is not None:
        slope, offset = (ctypes.c_float * 2).from_address(task.parameters(0))
        gradient, loss = array.array("f", [0, 0]), 0.0
        for number in work.samples:
            x = 2 * number / SAMPLES - 1
            error = slope * x + offset - (SLOPE * x + OFFSET)
            loss += error * error / 2
            gradient[0] += error * x / len(work.samples)
            gradient[1] += error / len(work.samples)
        task.put_gradient(0, 0, gradient.buffer_info()[0], len(gradient))
        task.finish(loss, 0)
    return task.close()


if __name__ == "__main__":
    sys.exit(main())
