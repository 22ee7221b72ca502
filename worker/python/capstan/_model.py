"""Models that jobs have written: model.safetensors, and a file of rows for each table of rows."""

import json
import math
import mmap
import os
import pathlib
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple, Union

from capstan._arrays import as_array
from capstan._client import Error

MODEL_FILE = "model.safetensors"
_LETTERS = {"F32": "f", "U64": "q"}  # Keys of 64 bits, whatever their sign.


class Rows(NamedTuple):
    """The rows of a table by key."""

    keys: Any  # int64, [rows].
    values: Any  # float32, [rows, dim]: values[i] is the row of keys[i].


@dataclass(frozen=True)
class Stored:
    """A tensor of a model's file."""

    letter: str  # The type of its values, as in `struct`.
    shape: tuple[int, ...]
    content: bytearray

    def __post_init__(self) -> None:
        expected = math.prod(self.shape) * struct.calcsize(f"={self.letter}")
        if len(self.content) != expected:
            raise Error(f"a tensor of shape {self.shape} has {len(self.content)} bytes, expected "
                        f"{expected}")


def rows_file(name: str) -> str:
    """The file of a table of rows, beside that of the model."""
    return f"rows-{name}.safetensors"


def read(path: pathlib.Path) -> dict[str, Stored]:
    """The tensors of a safetensors file that Capstan has written, by name."""
    if not path.exists():
        raise Error(f"there is no file {path}: expected the folder of a job's model")
    try:
        return _read(path)
    except (Error, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise Error(f"{path} is not as Capstan writes it: {error}") from error


def _read(path: pathlib.Path) -> dict[str, Stored]:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = 8 + int(struct.unpack("<Q", data[:8])[0])
        with memoryview(data) as view:
            return {name: Stored(_LETTERS[entry["dtype"]], tuple(entry["shape"]),
                                 _copied(view[end:], *entry["data_offsets"]))
                    for name, entry in json.loads(data[8:end]).items() if name != "__metadata__"}


def _copied(view: memoryview, first: int, last: int) -> bytearray:
    with view, view[first:last] as part:
        return bytearray(part)


def load(folder: Union[str, "os.PathLike[str]"]) -> dict[str, Any]:
    """The model that a job has written: its tensors by name, and Rows for each table of rows.

    folder: the job's output. Arrays are the caller's own: numpy.ndarray, or memoryview where NumPy
    is missing; float32, and int64 for keys. Raises Error if the folder has no model.
    """
    path = pathlib.Path(folder)
    found: dict[str, Any] = {name: _array(stored)
                             for name, stored in read(path / MODEL_FILE).items()}
    prefix, suffix = rows_file("*").split("*")
    for file in sorted(path.glob(rows_file("*"))):
        rows = read(file)
        found[file.name[len(prefix):-len(suffix)]] = Rows(_array(rows["keys"]),
                                                          _array(rows["rows"]))
    return found


def _array(stored: Stored) -> Any:
    return as_array(memoryview(stored.content), stored.letter, stored.shape)
