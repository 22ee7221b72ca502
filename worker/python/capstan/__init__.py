"""Capstan: train with a parameter server from Python.

`capstan.torch` trains PyTorch modules; the functions here train arrays of NumPy, JAX and others:

    capstan.init(slots=4)
    w = capstan.table("w", np.zeros((784, 10), "f4"), optimizer=capstan.optimizers.Adam(1e-3))
    for batch in capstan.batches(len(images), 64, epochs=3):
        loss, gradient = ...                  # of w.pull().result() and images[batch.samples]
        w.push(gradient)
        batch.finish(loss)

`capstan run train.py` trains by a script on the workers of a cluster; `load` reads the model that
the job has written. Needs Python 3.10 or newer; NumPy and PyTorch only where they are used.
"""

from capstan import optimizers
from capstan._client import Diverged, Ended, Error, Failed, Work
from capstan._future import Future
from capstan._model import Rows, load
from capstan._own_pace import Snapshot
from capstan._tables import Batch, Job, RowTable, Table, batches, init, rows, snapshot, table

__all__ = ["Batch", "Diverged", "Ended", "Error", "Failed", "Future", "Job", "RowTable", "Rows",
           "Snapshot", "Table", "Work", "batches", "init", "load", "optimizers", "rows", "snapshot",
           "table"]
__version__ = "0.1.0"
