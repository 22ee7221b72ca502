"""A network of two layers with dropout on Fashion-MNIST, computed by JAX under `jit`.

    capstan run --workers=2 --output=model jax_mlp.py --data=FOLDER
    python3 jax_mlp.py --data=FOLDER --evaluate=model

Needs jax (0.4 or newer) and NumPy. The parameters are a dictionary: one table for each.
"""

import argparse

import jax
import jax.numpy as jnp

import capstan
from softmax_regression import CLASSES, PIXELS, read

HIDDEN, KEPT = 64, 0.8  # KEPT: the part of the hidden units that dropout leaves.


def initial():
    """The parameters at first."""
    first, second = jax.random.split(jax.random.PRNGKey(1))
    normal = jax.random.normal
    return {"w1": normal(first, (PIXELS, HIDDEN)) / PIXELS**0.5, "b1": jnp.zeros(HIDDEN),
            "w2": normal(second, (HIDDEN, CLASSES)) / HIDDEN**0.5, "b2": jnp.zeros(CLASSES)}


def logits_of(parameters, images, mask=1.0):
    hidden = jax.nn.relu(images @ parameters["w1"] + parameters["b1"]) * mask
    return hidden @ parameters["w2"] + parameters["b2"]


def loss_of(parameters, images, labels, key):
    """The mean cross-entropy, and how many labels were found."""
    mask = jax.random.bernoulli(key, KEPT, (len(images), HIDDEN)) / KEPT
    logits = logits_of(parameters, images, mask)
    own = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -own.mean(), (logits.argmax(1) == labels).sum()


gradients_of = jax.jit(jax.value_and_grad(loss_of, has_aux=True))


def train(images, labels, epochs):
    capstan.init(slots=4)
    adam = capstan.optimizers.Adam(2e-3)
    tables = {name: capstan.table(name, value, optimizer=adam)
              for name, value in initial().items()}
    for batch in capstan.batches(len(images), 64, epochs=epochs):
        parameters = {name: table.pull().result() for name, table in tables.items()}
        (loss, hits), gradients = gradients_of(
            parameters, images[batch.samples], labels[batch.samples].astype(int),
            jax.random.PRNGKey(batch.seed % (1 << 31)))
        for name, table in tables.items():
            table.push(gradients[name])
        batch.finish(loss, correct=int(hits))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=60000)
    parser.add_argument("--evaluate", metavar="FOLDER", help="test its model instead of training")
    options = parser.parse_args()
    if options.evaluate:
        images, labels = read(options.data, "t10k")
        found = logits_of(capstan.load(options.evaluate), images).argmax(1)
        print(f"test accuracy {(found == labels).mean():.4f}")
        return
    train(*read(options.data, "train", options.samples), options.epochs)


if __name__ == "__main__":
    main()
