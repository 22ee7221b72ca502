"""Models that jobs have written: model.safetensors, and a file of rows for each embedding."""

import ctypes
import json
import mmap
import os
import pathlib
import struct
from typing import Union

import torch

from capstan._client import Error
from capstan._embedding import EmbeddingBag

_DTYPES = {"F32": torch.float32, "U64": torch.int64}  # Keys of 64 bits, whatever their sign.


def _tensors(path: pathlib.Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file that Capstan has written, by name."""
    if not path.exists():
        raise Error(f"there is no file {path}: expected the folder of a job's model")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = 8 + int(struct.unpack("<Q", data[:8])[0])
        found = {}
        for name, entry in json.loads(data[8:end]).items():
            if name == "__metadata__":
                continue
            first, last = entry["data_offsets"]
            tensor = torch.empty(entry["shape"], dtype=_DTYPES[entry["dtype"]])
            ctypes.memmove(tensor.data_ptr(), data[end + first:end + last], last - first)
            found[name] = tensor
    return found


def load(model: torch.nn.Module, folder: Union[str, "os.PathLike[str]"]) -> None:
    """Puts the model that a job has written into a module, to evaluate or to use it.

    model: built as in the script that trained it. Its EmbeddingBags then look up the rows of the
        folder; keys without a row there count as zeros.
    folder: the job's output: model.safetensors, and rows-NAME.safetensors for each EmbeddingBag.

    Raises Error if the folder has no such files, or other tensors than the module.
    """
    path = pathlib.Path(folder)
    found = _tensors(path / "model.safetensors")
    loaded = set()  # By address: tied weights are in the model once.
    with torch.no_grad():
        for name, tensor in model.state_dict(keep_vars=True).items():
            if not isinstance(tensor, torch.Tensor) or tensor.numel() == 0:
                continue
            if name not in found and tensor.data_ptr() in loaded:
                continue
            shape = tuple(found[name].shape) if name in found else None
            if shape != tuple(tensor.shape):
                raise Error(f"{path}: {name!r} has the shape {shape}, expected "
                            f"{tuple(tensor.shape)}")
            tensor.copy_(found[name])
            loaded.add(tensor.data_ptr())
    for bag in (module for module in model.modules() if isinstance(module, EmbeddingBag)):
        rows = _tensors(path / f"rows-{bag.name}.safetensors")
        if rows["rows"].shape[1:] != (bag.dim,):
            raise Error(f"{path}: rows of {bag.name!r} have {rows['rows'].shape[1]} floats, "
                        f"expected {bag.dim}")
        bag.keep(rows["rows"], rows["keys"])
