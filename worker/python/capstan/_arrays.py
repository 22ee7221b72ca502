"""Arrays of any library by their memory: the buffer protocol and DLPack, without other packages."""

import ctypes
import functools
import math
import struct
from dataclasses import dataclass
from typing import Any, Optional

from capstan._client import Error

# The address of arrays without values, for which torch gives none.
_NO_VALUES = ctypes.create_string_buffer(1)
_CPU, _PINNED = 1, 3  # Kinds of devices (DLDeviceType) whose memory is the host's.
_DLPACK_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_STRUCT_KINDS = {"f": "float", "d": "float", "e": "float", "?": "bool"}  # Else int or uint.


@dataclass(frozen=True)
class Memory:
    """Values in the host's memory, row by row without gaps."""

    address: int  # Not 0, even without values.
    shape: tuple[int, ...]
    dtype: str  # As NumPy names it.
    owner: Any  # The memory is there as long as this is.

    @property
    def count(self) -> int:
        """The number of values."""
        return math.prod(self.shape)

    def expect(self, what: str, dtype: str, shape: Optional[tuple[int, ...]] = None) -> None:
        """Raises Error, with `what` in front, for another dtype, or another shape than that."""
        if self.dtype != dtype or shape not in (None, self.shape):
            expected = dtype if shape is None else f"{dtype} of shape {shape}"
            raise Error(f"{what} is {self.dtype} of shape {self.shape}, expected {expected}")


class _Buffer(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_void_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


class _DlTensor(ctypes.Structure):
    """DLTensor, with which a DLManagedTensor begins."""

    _fields_ = [("data", ctypes.c_void_p), ("device_kind", ctypes.c_int32),
                ("device_number", ctypes.c_int32), ("dimensions", ctypes.c_int32),
                ("kind", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


# Prototypes of our own: attributes of ctypes.pythonapi are shared with all other users.
_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Buffer),
                                ctypes.c_int)(("PyObject_GetBuffer", ctypes.pythonapi))
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_Buffer))(
    ("PyBuffer_Release", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


def memory_of(array: Any, what: str) -> Memory:
    """The values of anything with the buffer protocol, or with __dlpack__ on the CPU.

    Nothing is copied, except a buffer whose values are not row by row without gaps. `what` begins
    the messages. Raises Error for anything else, for an array on another device, and for one with
    such gaps and no buffer.
    """
    try:
        view = memoryview(array)
    except (TypeError, ValueError, BufferError) as error:
        if hasattr(array, "__dlpack__"):
            return _of_dlpack(array, what)
        raise Error(f"{what} is {type(array).__name__}, expected an array: something with the "
                    f"buffer protocol or __dlpack__ ({error})") from error
    dtype = _dtype_of_format(view.format, view.itemsize)
    shape = tuple(view.shape or ())
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    return Memory(_address(view), shape, dtype, view)


def _dtype_of_format(letters: str, size: int) -> str:
    letter = letters.lstrip("@=<")
    if len(letter) != 1 or letter not in "fde?bBhHiIlLqQ":
        return f"'{letters}'"
    kind = _STRUCT_KINDS.get(letter, "int" if letter.islower() else "uint")
    return kind if kind == "bool" else f"{kind}{8 * size}"


def _address(view: memoryview) -> int:
    buffer = _Buffer()
    _get_buffer(view, ctypes.byref(buffer), 0)
    address = int(buffer.buf or ctypes.addressof(_NO_VALUES))
    _release_buffer(ctypes.byref(buffer))  # The view still has it.
    return address


def _of_dlpack(array: Any, what: str) -> Memory:
    device = int(array.__dlpack_device__()[0])
    if device not in (_CPU, _PINNED):
        raise Error(f"{what} is on a device of DLPack's kind {device}, expected the host's memory")
    try:
        capsule = array.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise Error(f"{what}: {error}") from error
    # The capsule is not consumed: it frees what it holds when it goes.
    tensor = _DlTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[:tensor.dimensions])
    if tensor.strides:
        _expect_without_gaps(shape, tuple(tensor.strides[:tensor.dimensions]), what)
    kind = _DLPACK_KINDS.get(tensor.kind, f"DLPack's type {tensor.kind} of bits ")
    dtype = (kind if kind == "bool" else f"{kind}{tensor.bits}") + (
        f"x{tensor.lanes}" if tensor.lanes != 1 else "")
    address = int(tensor.data or ctypes.addressof(_NO_VALUES)) + int(tensor.byte_offset)
    return Memory(address, shape, dtype, capsule)


def _expect_without_gaps(shape: tuple[int, ...], strides: tuple[int, ...], what: str) -> None:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size > 1 and stride != expected:
            raise Error(f"{what} has the strides {strides}, expected values row by row without "
                        "gaps: make it contiguous")
        expected *= size


@functools.lru_cache(maxsize=None)
def _numpy() -> Any:
    """NumPy; None: it is not there."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def as_array(content: memoryview, letter: str, shape: tuple[int, ...]) -> Any:
    """A numpy.ndarray of this memory, which may be written if the memory may.

    content: bytes. letter: the type of its values, as in `struct` ('f', 'q'). Without NumPy the
    result is a memoryview, in which an array without values has no shape.
    """
    numpy = _numpy()
    if numpy is not None:
        return numpy.frombuffer(content, dtype=numpy.dtype(letter)).reshape(shape)
    return content.cast(letter, shape) if content.nbytes else content.cast(letter)


def new_floats(shape: tuple[int, ...]) -> Memory:
    """New memory of float32; its owner is an array of that memory, as `as_array` makes it."""
    numpy = _numpy()
    count = math.prod(shape)
    array = (numpy.empty(shape, numpy.float32) if numpy is not None else
             as_array(memoryview(bytearray(ctypes.sizeof(ctypes.c_float) * count)), "f", shape))
    return Memory(_address(memoryview(array)), shape, "float32", array)


def int64s(numbers: tuple[int, ...]) -> Any:
    """Whole numbers as an array of int64, [n], as `as_array` makes it."""
    return as_array(memoryview(struct.pack(f"={len(numbers)}q", *numbers)), "q", (len(numbers),))


def copy_of_floats(memory: Memory) -> bytes:
    """The values of memory of float32."""
    return ctypes.string_at(memory.address, memory.count * ctypes.sizeof(ctypes.c_float))
