"""A script for `capstan run` that needs the standard library alone: fits a line to made data.

    line_program.py [EPOCHS]
"""

import array
import sys

import capstan

SAMPLES, BATCH = 64, 8
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
SLOPE, OFFSET = 3.0, -1.0


def main():
    capstan.init(slots=2)
    zero, sgd = array.array("f", [0]), capstan.optimizers.SGD(0.5)
    slopes = capstan.table("slope", zero, optimizer=sgd)
    offsets = capstan.table("offset", zero, optimizer=sgd)
    for batch in capstan.batches(SAMPLES, BATCH, epochs=EPOCHS):
        (slope,), (offset,) = slopes.pull().result(), offsets.pull().result()
        of_slope = of_offset = loss = 0.0
        for number in batch.samples:
            x = 2 * number / SAMPLES - 1
            error = slope * x + offset - (SLOPE * x + OFFSET)
            loss += error * error / 2 / len(batch.samples)
            of_slope += error * x / len(batch.samples)
            of_offset += error / len(batch.samples)
        slopes.push(array.array("f", [of_slope]))
        offsets.push(array.array("f", [of_offset]))
        batch.finish(loss)


if __name__ == "__main__":
    main()
