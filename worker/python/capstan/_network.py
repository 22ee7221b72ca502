"""A PyTorch module as what a session trains, and the models of jobs put into modules."""

import ctypes
import os
import pathlib
from typing import Any, Callable, Optional, Union

import torch

from capstan import _model
from capstan._arrays import Memory
from capstan._client import Error
from capstan._embedding import EmbeddingBag
from capstan._overlap import Overlap
from capstan._session import Group, Rows, Rule, Session

_DTYPES = {"f": torch.float32, "q": torch.int64}
_TRAINED_TYPES = (torch.float32, torch.float16, torch.bfloat16)
_EXACT_MAX = 1 << 24  # fp32 has all integers up to this one.


def _check_parameter(name: str, parameter: torch.Tensor) -> None:
    if parameter.dtype not in _TRAINED_TYPES:
        raise Error(f"the parameter {name!r} is {parameter.dtype}, expected float32, float16 or "
                    "bfloat16: the servers hold fp32")
    if parameter.device.type != "cpu":
        raise Error(f"the parameter {name!r} is on the device {str(parameter.device)!r}, expected "
                    "'cpu'")


def _check_average(name: str, tensor: torch.Tensor) -> None:
    if tensor.requires_grad:
        raise Error(f"the parameter {name!r} requires a gradient, and the optimizer does not have "
                    "it: expected it there, or requires_grad_(False)")
    if tensor.dtype.is_floating_point:
        return
    largest = int(tensor.to(torch.int64).abs().max())
    if largest > _EXACT_MAX:
        raise Error(f"{name!r} is {tensor.dtype} and has {largest}, expected at most {_EXACT_MAX}, "
                    "because the servers hold fp32: what scripts make anew may be left out "
                    "(register_buffer(..., persistent=False))")


def _bags_of(model: torch.nn.Module) -> dict[str, EmbeddingBag]:
    bags: dict[str, EmbeddingBag] = {}
    for module in model.modules():  # Each once.
        if not isinstance(module, EmbeddingBag):
            continue
        if module.name in bags:
            raise Error(f"there are two EmbeddingBags {module.name!r}, of the dimensions "
                        f"{bags[module.name].dim} and {module.dim}: expected a name for each")
        bags[module.name] = module
    return bags


def _fill(tensor: torch.Tensor, numbers: torch.Tensor) -> None:
    """Copies numbers of the servers; integers are rounded, because means in fp32 are not exact."""
    rounds = numbers.dtype.is_floating_point and not tensor.dtype.is_floating_point
    tensor.copy_(numbers.round() if rounds else numbers)


def _check_bags_alone(model: torch.nn.Module) -> None:
    """Raises Error if there is something that a torch optimizer is needed for."""
    needs = next((f"the parameter {name!r}" for name, parameter in model.named_parameters()
                  if parameter.requires_grad), None)
    if needs is None and not any(isinstance(module, EmbeddingBag) for module in model.modules()):
        needs = "a model without an EmbeddingBag"
    if needs is not None:
        raise Error(f"the optimizer is None, expected one of torch.optim for {needs}")


def _groups_of(model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer]
               ) -> list[dict[str, torch.Tensor]]:
    """The trained parameters of a model by name, for each of the optimizer's groups.

    As in PyTorch, those that require no gradient are not trained.
    """
    groups: list[dict[str, torch.Tensor]] = []
    if optimizer is None:
        _check_bags_alone(model)
        return groups
    for group in optimizer.param_groups:
        trained = {id(parameter) for parameter in group["params"]}
        found = {name: parameter for name, parameter in model.named_parameters()
                 if id(parameter) in trained}
        if len(found) != len(trained):
            raise Error(f"the optimizer has {len(trained)} parameters, and {len(found)} of them "
                        "are the model's: expected the model whose parameters it has")
        found = {name: parameter for name, parameter in found.items() if parameter.requires_grad}
        for name, parameter in found.items():
            _check_parameter(name, parameter)
        groups.append(found)
    if not any(groups):
        raise Error("the optimizer has no parameter that requires a gradient, expected None for "
                    "the optimizer, or one that is trained")
    return groups


def _averages_of(model: torch.nn.Module, groups: list[dict[str, torch.Tensor]]
                 ) -> dict[str, torch.Tensor]:
    """All other tensors of a model's state, by name."""
    averages = {}
    seen = {parameter.data_ptr() for group in groups for parameter in group.values()}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, torch.Tensor) or tensor.numel() == 0:
            continue
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            averages[name] = tensor
            _check_average(name, tensor)
    return averages


def _shapes(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _floats(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's values as fp32 in the host's memory, row by row."""
    return tensor.detach().to("cpu", torch.float32).contiguous()


class Network:
    """A module, and which of its tensors are trained, averaged and looked up.

    optimizer: has the trained tensors; None: the module has EmbeddingBags alone.
    Raises Error if that is not so, or if the servers cannot hold a parameter.
    """

    def __init__(self, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer]) -> None:
        groups = _groups_of(model, optimizer)
        self._model = model
        self._groups, self._averages = groups, _averages_of(model, groups)
        self.parameters = {name: tensor for group in groups for name, tensor in group.items()}
        self._bags = _bags_of(model)

    def add_to(self, session: Session, rules: list[Rule]) -> None:
        """Makes a session train this network; rules: of the optimizer's groups."""
        session.groups = [Group(rule, _shapes(group)) for rule, group in zip(rules, self._groups)]
        session.averages = _shapes(self._averages)
        session.rows = {name: Rows(bag.optimizer, bag.described)
                        for name, bag in self._bags.items()}

    def row_groups(self) -> list[dict[str, Any]]:
        """A parameter group for each EmbeddingBag, with its rows of the current batch."""
        return [bag.group() for bag in self._bags.values()]

    def look_again(self) -> None:
        """Checks the module again, which may have been moved or changed since.

        Raises Error if it has other parameters now, or some that the servers cannot hold.
        """
        parameters = dict(self._model.named_parameters())
        for name, parameter in self.parameters.items():
            if parameters.get(name) is not parameter:
                raise Error(f"the model's parameter {name!r} is another one than "
                            "capstan.torch.Optimizer was made with: make it when the model is "
                            "complete")
            _check_parameter(name, parameter)
        self._averages = _averages_of(self._model, self._groups)  # Moving replaces buffers.

    def initial(self, name: str) -> bytes:
        """A tensor's values as bytes. (Not by numpy(): PyTorch may be installed without NumPy.)"""
        values = _floats({**self.parameters, **self._averages}[name])
        return ctypes.string_at(values.data_ptr(), values.numel() * values.element_size())

    def keys_of(self, batch: Any) -> dict[str, Memory]:
        """The keys that a batch will look up, for each table of rows."""
        named = {name: bag.keys_of(batch) for name, bag in self._bags.items()}
        return {name: Memory(keys.data_ptr(), tuple(keys.shape), "int64", keys)
                for name, keys in named.items()}

    def take(self, session: Session) -> None:
        """Copies the current batch's values into the module."""
        with torch.no_grad():
            for name, tensor in (*self.parameters.items(), *self._averages.items()):
                values = torch.frombuffer(session.values(name), dtype=torch.float32)
                _fill(tensor, values.view(tensor.shape))
            for name, bag in self._bags.items():
                assert session.made is not None
                values, places = session.values(name), session.made.places[name]
                rows = (torch.frombuffer(values, dtype=torch.float32).clone() if len(values)
                        else torch.empty(0))
                bag.take(rows.view(-1, bag.dim), session.made.keys[name].owner,
                         torch.frombuffer(places, dtype=torch.int64) if len(places)
                         else torch.empty(0, dtype=torch.int64))

    def evaluate(self, evaluate: Callable[[Any], Any], batch: Any) -> tuple[float, int]:
        """Calls a user's function, without gradients and in evaluation mode: mean loss, and hits.

        Raises Error if it returns neither a number nor two.
        """
        modes = [(module, module.training) for module in self._model.modules()]
        self._model.eval()
        try:
            with torch.no_grad():
                found = evaluate(batch)
        finally:
            for module, mode in modes:
                module.training = mode
            for bag in self._bags.values():
                bag.gradient()  # Drops its rows.
        loss, correct = found if isinstance(found, tuple) and len(found) == 2 else (found, 0)
        try:
            return float(loss), int(correct)
        except (TypeError, ValueError):
            raise Error(f"evaluate has returned {type(found).__name__}, expected a batch's mean "
                        "loss, or that and the number of samples classified correctly") from None

    def overlap(self, session: Session) -> Overlap:
        """Returns an object that sends gradients as `backward` makes them.

        REQUIRES: the session has begun.
        """
        assert session.task is not None
        return Overlap(self.parameters, session.task.tables[0],
                       lambda name, gradient: self._put(session, name, gradient),
                       session.task.release)

    def put(self, session: Session, already: set[str]) -> None:
        """Sends the gradients that `backward` has left, and the averages.

        already: parameters whose gradients were sent.
        """
        for name, bag in self._bags.items():
            self._put(session, name, bag.gradient())
        for name, tensor in self.parameters.items():
            if not tensor.requires_grad:
                raise Error(f"the parameter {name!r} requires no gradient any more: expected the "
                            "same trained parameters through the job")
            if name not in already:
                self._put(session, name, tensor.grad)
        for name, tensor in self._averages.items():
            self._put(session, name, tensor)

    @staticmethod
    def _put(session: Session, name: str, tensor: Optional[torch.Tensor]) -> None:
        if tensor is None:
            return
        if tensor.layout != torch.strided:
            raise Error(f"the gradient of {name!r} is {tensor.layout}, expected a dense one")
        values = _floats(tensor)
        session.put(name, values.data_ptr(), values.numel())


def _tensors(path: pathlib.Path) -> dict[str, torch.Tensor]:
    """The tensors of a model's file by name."""
    return {name: (torch.frombuffer(stored.content, dtype=_DTYPES[stored.letter])
                   if stored.content else torch.empty(0, dtype=_DTYPES[stored.letter])
                   ).view(stored.shape)
            for name, stored in _model.read(path).items()}


def load(model: torch.nn.Module, folder: Union[str, "os.PathLike[str]"]) -> None:
    """Puts the model that a job has written into a module, to evaluate or to use it.

    model: built as in the script that trained it. Its EmbeddingBags then look up the rows of the
        folder; keys without a row there count as zeros.
    folder: the job's output: model.safetensors, and rows-NAME.safetensors for each EmbeddingBag.

    Raises Error if the folder has no such files, or other tensors than the module.
    """
    path = pathlib.Path(folder)
    found = _tensors(path / _model.MODEL_FILE)
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
            _fill(tensor, found[name])
            loaded.add(tensor.data_ptr())
    for bag in (module for module in model.modules() if isinstance(module, EmbeddingBag)):
        rows = _tensors(path / _model.rows_file(bag.name))
        if rows["rows"].shape[1:] != (bag.dim,):
            raise Error(f"{path}: rows of {bag.name!r} have {rows['rows'].shape[1]} floats, "
                        f"expected {bag.dim}")
        bag.keep(rows["rows"], rows["keys"])
