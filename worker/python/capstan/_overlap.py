"""Gradients that leave for the servers while backward() computes the others."""

from typing import Any, Callable, Optional

import torch

from capstan import _client
from capstan._client import Error, Table, Tensor


def _when_accumulated(parameter: torch.Tensor, call: Callable[[], None]) -> Any:
    """Lets `call` be called whenever backward() has added to the parameter's gradient, until the
    returned object is gone."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):  # From PyTorch 2.1 on.
        return parameter.register_post_accumulate_grad_hook(lambda _: call())
    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_: call())
    return node


class Overlap:
    """Puts the gradients of the first table of parameters as they come, and releases them.

    The table is sent from its end on, so that the order of its tensors should be that in which the
    forward pass uses them. Tensors of other tables, and those without a gradient, are left to the
    session's push().

    put: takes a tensor's gradient for the current batch. release: is told the element from which on
        all have been put and may leave.
    """

    def __init__(self, parameters: dict[str, torch.Tensor], table: Table,
                 put: Callable[[str, Optional[torch.Tensor]], None],
                 release: Callable[[int], None]) -> None:
        of_first = table.tensors if table.kind == _client.PARAMETERS else ()
        self._parameters, self._put, self._release = parameters, put, release
        self._from_end = sorted(of_first, key=lambda spec: spec.first, reverse=True)
        self._released = 0  # How many of _from_end have left.
        self._put_as: dict[str, tuple[int, int]] = {}  # The gradient's identity, by name.
        self._trains = False
        self._hooks = [self._hooked(spec) for spec in self._from_end]

    def _hooked(self, spec: Tensor) -> Any:
        return _when_accumulated(self._parameters[spec.name], lambda: self._came(spec))

    def begin(self) -> None:
        """A batch begins."""
        self._released, self._trains = 0, True
        self._put_as.clear()

    def _came(self, spec: Tensor) -> None:
        if not self._trains:
            return
        if spec.name in self._put_as:
            raise Error(f"backward() adds to the gradient of {spec.name!r}, which has left: "
                        "expected one backward() a batch with overlap=True")
        self._put(spec.name, self._parameters[spec.name].grad)
        self._put_as[spec.name] = self._identity(spec.name)
        released = self._released
        while (self._released < len(self._from_end)
               and self._from_end[self._released].name in self._put_as):
            self._released += 1
        if self._released > released:
            self._release(self._from_end[self._released - 1].first)

    def _identity(self, name: str) -> tuple[int, int]:
        gradient = self._parameters[name].grad
        return (0, 0) if gradient is None else (gradient.data_ptr(), gradient._version)

    def end(self) -> set[str]:
        """The batch ends. Returns the tensors whose gradients were put.

        Raises Error if one was changed afterwards, as by clipping.
        """
        for name, identity in self._put_as.items():
            if self._identity(name) != identity:
                raise Error(f"the gradient of {name!r} was changed after backward(), as by "
                            "clipping, and has left before: expected overlap=False")
        self._trains = False
        return set(self._put_as)
