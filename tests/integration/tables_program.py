"""Clicks in NumPy: a table of features beside rows by key, as a program.

    tables_program.py [--slots=N] [--log=FILE] [--misuse=FILE | --end=WAY]

--log writes a line of JSON for each batch. --misuse calls everything wrongly once and writes what
it was told. --end leaves iteration 3 in a wrong way: "nan" (the loss), "next" (the next batch is
asked for without a push), "error" (an exception), "break" (the loop is left).
"""

import argparse
import json
import os
import threading

import numpy as np

import capstan

SAMPLES, FEATURES, BATCH, EPOCHS = 240, 3, 16, 4
RATE, FACTOR, EVERY = 0.5, 0.8, SAMPLES // BATCH  # It decreases after each epoch.


class Clicks:
    """Two keys of 64 bits and three features a sample; a click if their signs say so."""

    def __init__(self):
        made = np.random.default_rng(7)
        known = made.integers(-(1 << 62), 1 << 62, 40)
        self.keys = known[(made.random((SAMPLES, 2))**2 * len(known)).astype(int)]
        self.features = made.standard_normal((SAMPLES, FEATURES)).astype("f4")
        self.labels = (np.sign(self.keys).sum(1) + self.features.sum(1) > 0).astype("f4")


def gradients_of(weights, rows, places, features, labels):
    """The mean cross-entropy and its gradients: (loss, gradient of weights, gradient of rows)."""
    odds = features @ weights + rows[places].sum((1, 2))
    chances = 1 / (1 + np.exp(-odds))
    loss = -np.log(np.where(labels > 0, chances, 1 - chances)).mean()
    errors = (chances - labels) / np.float32(len(labels))
    of_rows = np.zeros_like(rows)
    np.add.at(of_rows, places, errors[:, None, None])
    return loss, features.T @ errors, of_rows


class Misuse:
    """Calls everything wrongly, and keeps what it was told."""

    def __init__(self, weights, rows):
        self.weights, self.rows = weights, rows
        self.told = {}
        self.before = None  # An earlier batch.

    def expect_error(self, name, call, *arguments, **named):
        try:
            call(*arguments, **named)
            self.told[name] = "nothing"
        except (capstan.Error, ValueError) as error:
            self.told[name] = f"{type(error).__name__}: {error}"

    def in_thread(self, *call):
        thread = threading.Thread(target=self.expect_error, args=call, name="helper")
        thread.start()
        thread.join()

    def in_child(self, name, call):
        ours, theirs = os.pipe()
        if (child := os.fork()) == 0:
            self.expect_error(name, call)
            os.write(theirs, self.told[name].encode())
            os._exit(0)
        os.close(theirs)
        os.waitpid(child, 0)
        with open(ours, encoding="utf-8") as said:
            self.told[name] = said.read()

    def below_python(self, task):
        """Calls the C interface with arguments that no array of Python has."""
        self.expect_error("second task", type(task))
        self.expect_error("wide table", task.parameters, 1 << 32)
        self.expect_error("null gradient", task.put_gradient, 0, 0, None, 1)
        self.expect_error("null keys", task.name_keys, 1, None, 1, None)

    def before_pushes(self, batch):
        weights = self.weights
        self.expect_error("dtype", weights.push, np.zeros(FEATURES))
        self.expect_error("shape", weights.push, np.zeros((FEATURES, 1), "f4"))
        self.expect_error("rows' shape", self.rows.push, np.zeros((1, 2), "f4"))
        self.expect_error("nan", weights.push, np.array([0, np.nan, 0], "f4"))
        self.expect_error("no array", weights.push, [0.0] * FEATURES)
        self.expect_error("write", weights.pull().result().fill, 1)
        self.expect_error("no push", batch.finish, 0)
        self.expect_error("late table", capstan.table, "late", np.zeros(1, "f4"))
        if self.before is not None:
            self.expect_error("finished batch", self.before.finish, 0)
        self.below_python(weights._session.task)
        self.in_thread("thread", weights.pull)
        self.in_child("fork", weights.pull)
        self.before = batch

    def after_pushes(self, batch):
        self.expect_error("second push", self.weights.push, np.zeros(FEATURES, "f4"))
        lent = self.weights.pull(copy=False).result()
        part = lent[1:]
        del lent
        self.expect_error("held", batch.finish, 0)
        del part

    def after_the_job(self):
        self.expect_error("pull afterwards", self.weights.pull)
        self.expect_error("push afterwards", self.weights.push, np.zeros(FEATURES, "f4"))
        self.expect_error("second loop", next, capstan.batches(1, 1))
        self.expect_error("finish afterwards", self.before.finish, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--log")
    parser.add_argument("--misuse")
    parser.add_argument("--end")
    options = parser.parse_args()
    data = Clicks()
    job = capstan.init(slots=options.slots)
    sgd = capstan.optimizers.SGD(RATE) | capstan.optimizers.Step(EVERY, FACTOR)
    weights = capstan.table("weights", np.zeros(FEATURES, "f4"), optimizer=sgd)
    rows = capstan.rows("ads", 1, keys=lambda batch: data.keys[batch.samples], optimizer=sgd,
                        initial_std=0)
    misuse = Misuse(weights, rows)
    for batch in capstan.batches(SAMPLES, BATCH, epochs=EPOCHS):
        assert (job.rank, job.workers) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        if options.misuse:
            misuse.before_pushes(batch)
        loss, of_weights, of_rows = gradients_of(
            weights.pull().result(), rows.pull(copy=False).result(), rows.places,
            data.features[batch.samples], data.labels[batch.samples])
        if batch.iteration == 3 and options.end == "next":
            continue
        if batch.iteration == 3 and options.end == "break":
            break
        if batch.iteration == 3 and options.end == "error":
            raise LookupError("told to fail")
        weights.push(of_weights)
        rows.push(of_rows)
        if options.misuse:
            misuse.after_pushes(batch)
        if options.log:
            with open(options.log, "a", encoding="utf-8") as log:
                log.write(json.dumps({"loss": float(loss), "samples": batch.samples.tolist()})
                          + "\n")
        batch.finish(np.nan if batch.iteration == 3 and options.end == "nan" else loss)
    if options.misuse:
        misuse.after_the_job()
        with open(options.misuse, "w", encoding="utf-8") as file:
            json.dump(misuse.told, file)


if __name__ == "__main__":
    main()
