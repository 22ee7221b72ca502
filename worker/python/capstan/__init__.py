"""Capstan: train with a parameter server from Python.

`capstan.torch` trains PyTorch modules; the functions here train arrays of NumPy, JAX and others:

    capstan.init(slots=4)
    w = capstan.table("w", np.zeros((784, 10), "f4"), optimizer=capstan.optimizers.Adam(1e-3))
    for batch in capstan.batches(len(images), 64, epochs=3):
        loss, gradient = ...                  # of w.pull().result() and images[batch.samples]
        w.push(gradient)
        batch.finish(loss)

`capstan run train.py` starts a script on a cluster of this machine; `load` reads the model that the
job has written. Needs Python 3.10 or newer; NumPy and PyTorch only where they are used.
"""

from capstan import optimizers
from capstan._client import Diverged, Error, Work
from capstan._future import Future
from capstan._model import Rows, load
from capstan._tables import Batch, Job, RowTable, Table, batches, init, rows, table

__all__ = ["Batch", "Diverged", "Error", "Future", "Job", "RowTable", "Rows", "Table", "Work",
           "batches", "init", "load", "optimizers", "rows", "table"]
__version__ = "0.1.0"
