"""A script for `capstan run` that trains a table and a row by the plugin's rule `signum`, or, with
--torch, a layer.

The gradient is the same for each of UPDATES, which moves an element by RATE against its sign.
"""

import array
import sys

import capstan

RATE, UPDATES = 1 / 64, 6
GRADIENT = (3.0, 0.0, -0.5)
KEY = 7
RULE = capstan.optimizers.Plugin("signum", RATE, [0.75])


def train_tables():
    capstan.init(slots=1)
    weights = capstan.table("weights", array.array("f", [0, 0, 0]), optimizer=RULE)
    rows = capstan.rows("ads", 3, keys=lambda batch: array.array("q", [KEY]), optimizer=RULE,
                        initial_std=0)
    gradient = array.array("f", GRADIENT)
    for batch in capstan.batches(UPDATES, 1):
        weights.push(gradient)
        rows.push(memoryview(gradient).cast("B").cast("f", (1, 3)))
        batch.finish(0.0)


def train_layer():
    import torch  # pylint: disable=import-outside-toplevel  # It need not be there.
    import capstan.torch
    layer = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(layer.weight)
    optimizer = capstan.torch.Optimizer(RULE, layer, slots=1)
    for inputs in capstan.torch.batches([torch.tensor(GRADIENT)] * UPDATES, 1):
        optimizer.zero_grad()
        loss = layer(inputs).sum()
        loss.backward()
        optimizer.step(loss)


if __name__ == "__main__":
    train_layer() if "--torch" in sys.argv else train_tables()
