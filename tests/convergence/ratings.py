"""Matrix factorisation of real ratings, beside the same in NumPy.

Takes a TSV file (.gz too) with a header and the columns user, item, rating; holds 10 % out, trains
on the rest through two workers and two servers (ASP), and in one process with the same rule, rate
and batches. Fails if the two differ by more than 0.01 in the RMSE of what was held out.

Needs Debian's python3-numpy (deploy/install --tests).
"""

import argparse
import gzip
import hashlib
import math
import pathlib
import sys

import clicks
import cluster
import numpy

RANK = 16
EPOCHS = 12
BATCH = 512
RATE = 0.1
DECAY = 6e-4
FACTOR_STD = 0.1
EPSILON = 1e-10
HELD_OUT = 10  # One of so many.
ERROR_MAX = 0.01


def read_lines(path):
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path)
    with opened as file:
        header, *lines = file.read().splitlines()
    return header, [line for line in lines if line]


def is_held_out(number):
    return int.from_bytes(hashlib.sha256(b"%d" % number).digest()[:8], "little") % HELD_OUT == 0


def split(path, folder):
    """Writes train.tsv and test.tsv; returns the names of the columns and the rows of each."""
    header, lines = read_lines(path)
    parts = {"train": [], "test": []}
    for number, line in enumerate(lines):
        parts["test" if is_held_out(number) else "train"].append(line)
    for name, rows in parts.items():
        (folder / f"{name}.tsv").write_text("\n".join([header, *rows]) + "\n")
    return header.split("\t"), parts


def to_arrays(parts):
    """Users and items as numbers from 0, ratings as they are."""
    numbers = ({}, {})

    def number(column, text):
        return numbers[column].setdefault(text, len(numbers[column]))

    arrays = {}
    for name, rows in parts.items():
        columns = [row.split("\t") for row in rows]
        ids = numpy.array([[number(0, c[0]), number(1, c[1])] for c in columns])
        arrays[name] = (ids, numpy.array([float(c[2]) for c in columns]))
    return arrays, [len(known) for known in numbers]


class Factorisation:
    """b + w_user + w_item + <v_user, v_item>, by Adagrad on mini-batches."""

    def __init__(self, sizes, mean):
        draw = numpy.random.default_rng(1)
        # For users and for items: rows of a weight and the factors.
        self.rows = [draw.normal(0, FACTOR_STD, (size, 1 + RANK)) for size in sizes]
        for rows in self.rows:
            rows[:, 0] = 0
        self.squares = [numpy.zeros_like(rows) for rows in self.rows]
        self.bias = numpy.array([mean])
        self.bias_squares = numpy.zeros(1)

    def predict(self, ids):
        user, item = (self.rows[kind][ids[:, kind]] for kind in (0, 1))
        return self.bias + user[:, 0] + item[:, 0] + (user[:, 1:] * item[:, 1:]).sum(axis=1)

    def step(self, ids, ratings):
        slope = 2 * (self.predict(ids) - ratings) / len(ratings)
        sides = [self.rows[kind][ids[:, kind]] for kind in (0, 1)]
        for kind in (0, 1):
            gradient = numpy.empty((len(ids), 1 + RANK))
            gradient[:, 0] = slope
            gradient[:, 1:] = slope[:, None] * sides[1 - kind][:, 1:]
            named, places = numpy.unique(ids[:, kind], return_inverse=True)
            sums = numpy.zeros((len(named), 1 + RANK))
            numpy.add.at(sums, places, gradient)
            self.adagrad(self.rows[kind], self.squares[kind], named, sums)
        self.adagrad(self.bias, self.bias_squares, slice(None), numpy.array([slope.sum()]))

    @staticmethod
    def adagrad(weights, squares, named, gradient):
        gradient = gradient + DECAY * weights[named]
        squares[named] += gradient**2
        weights[named] -= RATE * gradient / (numpy.sqrt(squares[named]) + EPSILON)


def reference_rmse(parts):
    arrays, sizes = to_arrays(parts)
    ids, ratings = arrays["train"]
    model = Factorisation(sizes, ratings.mean())
    draw = numpy.random.default_rng(2)
    for _ in range(EPOCHS):
        order = draw.permutation(len(ids))
        for begin in range(0, len(ids), BATCH):
            batch = order[begin : begin + BATCH]
            model.step(ids[batch], ratings[batch])
    ids, ratings = arrays["test"]
    return math.sqrt(((model.predict(ids) - ratings) ** 2).mean())


def job_rmse(live, names):
    columns = "".join(f'columns {{ kind: CATEGORY name: "{name}" }} ' for name in names[:2])
    columns += f'columns {{ kind: LABEL name: "{names[2]}" }}'
    data = f"""
      format: COLUMNS
      columns {{ {columns} separator: "\\t" header: true }}
      train {{ files: "{live.folder}/train.tsv" }}
      test {{ files: "{live.folder}/test.tsv" }}"""
    text = clicks.job(
        name="ratings",
        model=f"matrix_factorization {{ rank: {RANK} factor_std: {FACTOR_STD} }}",
        data=data,
        epochs=EPOCHS,
        batch_size=BATCH,
        optimizer=f"adagrad {{}} learning_rate: {RATE} weight_decay: {DECAY}",
    )
    status = live.wait(live.submit(text))
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{status}\n{live.logs()}")
    return status["results"][-1]["testRmse"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ratings", type=pathlib.Path, help="TSV file with a header")
    path = parser.parse_args().ratings
    with cluster.Cluster(servers=2, workers=2) as live:
        names, parts = split(path, live.folder)
        ours = job_rmse(live, names)
    reference = reference_rmse(parts)
    print(f"{len(parts['train'])} ratings, {len(parts['test'])} held out, {EPOCHS} epochs")
    print(f"RMSE: {ours:.4f}, in NumPy {reference:.4f}")
    if abs(ours - reference) > ERROR_MAX:
        sys.exit(f"differ by more than {ERROR_MAX}")


if __name__ == "__main__":
    main()
