"""Runs a training script as its job would, or with the batches of such a run and PyTorch alone.

    recorded.py --log=FILE SCRIPT [ARGUMENT...]     as the program of a job with one worker: writes
                                                    a line of JSON for each batch
    recorded.py --replay=FILE SCRIPT [ARGUMENT...]  a script without Capstan: its DataLoader yields
                                                    those batches, with their random numbers;
                                                    prints a line of JSON for each

The scripts are as their users wrote them, and neither knows of this one.
"""

import argparse
import json
import pathlib

import torch
from run_script import run_script

_SEED_MASK = (1 << 63) - 1  # As in capstan/_loading.py.


def at_each_loss(function):
    """Calls `function` with each loss before its gradient is computed."""
    backward = torch.Tensor.backward

    def called(loss, *arguments, **named):
        function(float(loss))
        backward(loss, *arguments, **named)

    torch.Tensor.backward = called


def write(path):
    import capstan.torch

    def line(loss):
        work = capstan.torch.current()
        with open(path, "a", encoding="utf-8") as log:
            log.write(json.dumps({"loss": loss, "epoch": work.epoch, "samples": work.samples,
                                  "seed": work.seed & _SEED_MASK}) + "\n")

    at_each_loss(line)


def replay(path):
    lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]

    class Loader:
        """One pass over it is one epoch of the log."""

        def __init__(self, dataset, *_arguments, **_named):
            self.dataset = dataset

        def __iter__(self):
            while lines:
                line = lines.pop(0)
                torch.manual_seed(line["seed"])
                yield torch.utils.data.default_collate(
                    [self.dataset[sample] for sample in line["samples"]])
                if lines and lines[0]["epoch"] != line["epoch"]:
                    return

    torch.utils.data.DataLoader = Loader
    at_each_loss(lambda loss: print(json.dumps({"loss": loss}), flush=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log")
    parser.add_argument("--replay")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if options.replay:
        replay(options.replay)
    else:
        write(options.log)
    run_script(options.script)


if __name__ == "__main__":
    main()
