"""The servers' rules that do what optimizers and schedules of torch.optim do."""

import copy
import warnings
from typing import Any, Callable

import torch

from capstan._client import Error

PIECES_MAX = 100_000  # Rates of a schedule (proto/job.proto).


def _fixed(kind: str, group: dict[str, Any], expected: dict[str, Any]) -> None:
    """Refuses settings of an optimizer that the servers' rule does not have."""
    for name, value in expected.items():
        if group.get(name, value) != value:
            raise Error(f"torch.optim.{kind}: {name} is {group[name]}, expected {value}: the "
                        "servers have no such rule")


def _sgd(group: dict[str, Any]) -> dict[str, Any]:
    _fixed("SGD", group, {"dampening": 0, "maximize": False})
    if group["momentum"] == 0:
        return {"sgd": {}}
    return {"nesterov" if group["nesterov"] else "momentum": {"momentum": group["momentum"]}}


def _adam(kind: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def rule(group: dict[str, Any]) -> dict[str, Any]:
        # Newer PyTorch's AdamW is its Adam with decoupled_weight_decay=True.
        _fixed("Adam", group, {"maximize": False} if kind == "adamw" else
               {"maximize": False, "decoupled_weight_decay": False})
        if group["amsgrad"] and kind == "adamw":
            _fixed("AdamW", group, {"amsgrad": False})
        beta1, beta2 = group["betas"]
        return {"amsgrad" if group["amsgrad"] else kind:
                {"beta1": beta1, "beta2": beta2, "epsilon": group["eps"]}}
    return rule


def _adagrad(group: dict[str, Any]) -> dict[str, Any]:
    _fixed("Adagrad", group, {"lr_decay": 0, "maximize": False})
    return {"adagrad": {"epsilon": group["eps"],
                        "initial_accumulator": group["initial_accumulator_value"]}}


def _rmsprop(group: dict[str, Any]) -> dict[str, Any]:
    _fixed("RMSprop", group, {"centered": False, "maximize": False})
    return {"rmsprop": {"alpha": group["alpha"], "epsilon": group["eps"],
                        "momentum": group["momentum"]}}


def _adadelta(group: dict[str, Any]) -> dict[str, Any]:
    _fixed("Adadelta", group, {"maximize": False})
    return {"adadelta": {"rho": group["rho"], "epsilon": group["eps"]}}


_RULES = {"SGD": _sgd, "Adam": _adam("adam"), "AdamW": _adam("adamw"), "Adagrad": _adagrad,
          "RMSprop": _rmsprop, "Adadelta": _adadelta}


def group_rule(kind: str, group: dict[str, Any], scheduled: bool) -> dict[str, Any]:
    """The `optimizer` of a job file that does what torch does with a parameter group."""
    rate = float(group.get("initial_lr", group["lr"]) if scheduled else group["lr"])
    return {**_RULES[kind](group), "learning_rate": rate, "weight_decay": group["weight_decay"]}


def server_optimizers(optimizer: torch.optim.Optimizer, scheduled: bool = False
                      ) -> list[dict[str, Any]]:
    """One rule for each parameter group, with its learning rate; if it is scheduled, with the rate
    that the schedule multiplies.

    Raises Error for optimizers and settings that the servers do not have.
    """
    kind = type(optimizer).__name__
    if kind not in _RULES or not type(optimizer).__module__.startswith("torch.optim"):
        raise Error(f"the optimizer is {kind}, expected one of torch.optim's {', '.join(_RULES)}")
    return [group_rule(kind, group, scheduled) for group in optimizer.param_groups]


def _settings(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Each group's settings except its rate and parameters."""
    return [{name: value for name, value in group.items() if name not in ("lr", "params")}
            for group in optimizer.param_groups]


def _expect_unchanged(optimizer: torch.optim.Optimizer, settings: list[dict[str, Any]]) -> None:
    """Raises Error if a scheduler has changed settings that the servers never change."""
    for before, after in zip(settings, _settings(optimizer)):
        for name, value in after.items():
            if before.get(name) != value:
                raise Error(f"the scheduler changes {name} of torch.optim."
                            f"{type(optimizer).__name__}, expected one of the learning rate alone "
                            "(cycle_momentum=False)")


def server_schedules(optimizer: torch.optim.Optimizer, scheduler: Any, updates: int,
                     every: int) -> list[dict[str, Any]]:
    """The `schedule` of each group's rule: the scheduler's rates, in pieces.

    scheduler: is stepped once for every `every` of all `updates`, and then restored.
    Raises Error if it needs losses, changes more than the rates, or has too many pieces.
    """
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise Error("the scheduler is ReduceLROnPlateau, expected one that needs no losses")
    pieces: list[tuple[list[int], list[float]]] = [([], []) for _ in optimizer.param_groups]
    settings = _settings(optimizer)
    rates = [copy.deepcopy(group["lr"]) for group in optimizer.param_groups]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The optimizer is not stepped.
        before = scheduler.state_dict()
        for update in range(0, updates, every):
            for (begins, factors), group in zip(pieces, optimizer.param_groups):
                factor = float(group["lr"]) / float(group.get("initial_lr", group["lr"]))
                if not factors or factors[-1] != factor:
                    begins.append(update)
                    factors.append(factor)
            if max(len(begins) for begins, _ in pieces) > PIECES_MAX:
                raise Error(f"the schedule has more than {PIECES_MAX} rates: step it once an "
                            "epoch (schedule_every='epoch')")
            scheduler.step()
            _expect_unchanged(optimizer, settings)
        scheduler.load_state_dict(before)
    for group, rate in zip(optimizer.param_groups, rates):
        group["lr"] = rate
    return [{"pieces": {"begins": begins, "factors": factors}} for begins, factors in pieces]
