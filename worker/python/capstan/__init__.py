"""Capstan: train with a parameter server from Python.

`capstan.torch` trains PyTorch modules; `capstan run train.py` trains by a script on the workers of
a cluster. Needs Python 3.10 or newer, and PyTorch for `capstan.torch`.
"""

from capstan import optimizers
from capstan._client import Diverged, Error, Work

__all__ = ["Diverged", "Error", "Work", "optimizers"]
__version__ = "0.1.0"
