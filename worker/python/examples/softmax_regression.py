"""Logistic regression on Fashion-MNIST with NumPy alone, by Adam.

    capstan run --workers=2 --output=model softmax_regression.py --data=FOLDER
    python3 softmax_regression.py --data=FOLDER --evaluate=model
"""

import argparse

import idx
import numpy as np

import capstan

PIXELS, CLASSES = 784, 10


def read(folder, part, limit=None):
    """Images [n, 784] from 0 to 1, and their labels [n]."""
    images, labels = (np.frombuffer(values, "u1").reshape(shape)[:limit] for values, shape in (
        idx.read(folder, idx.images_file(part)), idx.read(folder, idx.labels_file(part))))
    return images.reshape(-1, PIXELS).astype("f4") / 255, labels


def logits_of(weights, bias, images):
    return images @ weights + bias


def gradients_of(weights, bias, images, labels):
    """Returns (loss, hits, gradient of weights, gradient of bias) of the mean cross-entropy."""
    logits = logits_of(weights, bias, images)
    odds = np.exp(logits - logits.max(1, keepdims=True))
    chances = odds / odds.sum(1, keepdims=True)
    own = np.arange(len(labels)), labels
    loss = -np.log(chances[own]).mean()
    hits = (chances.argmax(1) == labels).sum()
    chances[own] -= 1
    errors = chances / len(labels)
    return loss, hits, images.T @ errors, errors.sum(0)


def train(images, labels, epochs):
    capstan.init(slots=4)
    adam = capstan.optimizers.Adam(3e-3)
    weights = capstan.table("weights", np.zeros((PIXELS, CLASSES), "f4"), optimizer=adam)
    bias = capstan.table("bias", np.zeros(CLASSES, "f4"), optimizer=adam)
    for batch in capstan.batches(len(images), 64, epochs=epochs):
        loss, hits, of_weights, of_bias = gradients_of(
            weights.pull().result(), bias.pull().result(),
            images[batch.samples], labels[batch.samples])
        weights.push(of_weights)
        bias.push(of_bias)
        batch.finish(loss, correct=hits)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=60000)
    parser.add_argument("--evaluate", metavar="FOLDER", help="test its model instead of training")
    options = parser.parse_args()
    if options.evaluate:
        model = capstan.load(options.evaluate)
        images, labels = read(options.data, "t10k")
        found = logits_of(model["weights"], model["bias"], images).argmax(1)
        print(f"test accuracy {(found == labels).mean():.4f}")
        return
    train(*read(options.data, "train", options.samples), options.epochs)


if __name__ == "__main__":
    main()
