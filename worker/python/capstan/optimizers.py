"""Update rules of the servers, for tables that no torch optimizer has, and their schedules.

A rule is the `optimizer` of a job file (proto/job.proto), to which other fields of it may be added:
SGD(0.1) | {"clip_value": 1.0}. server/optimizer/README.md has the formulas.

A schedule is added in the same way: Adam(1e-3) | Cosine(10_000, warmup=500). Steps are updates of a
table, from 0; during `warmup` of them the rate grows linearly to its value.
"""

from typing import Any, Sequence

Rule = dict[str, Any]


def SGD(lr: float, *, momentum: float = 0.0, nesterov: bool = False,  # pylint: disable=invalid-name
        weight_decay: float = 0.0) -> Rule:
    """Stochastic gradient descent."""
    kind: Rule = {"sgd": {}}
    if momentum:
        kind = {"nesterov" if nesterov else "momentum": {"momentum": momentum}}
    return {**kind, "learning_rate": lr, "weight_decay": weight_decay}


def Adagrad(lr: float, *, eps: float = 1e-10, initial_accumulator: float = 0.0,
            row_wise: bool = False) -> Rule:
    """Adagrad (Duchi et al. 2011). row_wise: one accumulator a row, of the mean square."""
    return {"adagrad": {"epsilon": eps, "initial_accumulator": initial_accumulator,
                        "row_wise": row_wise}, "learning_rate": lr}


def Adam(lr: float = 1e-3, *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
         weight_decay: float = 0.0) -> Rule:
    """Adam (Kingma and Ba 2015); each row counts its own updates."""
    return {"adam": {"beta1": betas[0], "beta2": betas[1], "epsilon": eps},
            "learning_rate": lr, "weight_decay": weight_decay}


def Ftrl(lr: float, *, beta: float = 1.0, l1: float = 0.0, l2: float = 0.0) -> Rule:
    """FTRL-proximal (McMahan et al. 2013)."""
    return {"ftrl": {"beta": beta, "l1": l1, "l2": l2}, "learning_rate": lr}


def Plugin(rule: str, lr: float, numbers: Sequence[float] = (), *,  # pylint: disable=invalid-name
           weight_decay: float = 0.0) -> Rule:
    """A rule that the servers' operator has added (--rule-plugin of capstan-server, or of
    `capstan run` for a cluster that it starts).

    numbers: all numbers of the rule; empty: its own defaults. weight_decay: L2, before the rule.
    """
    return {"plugin": {"rule": rule, "numbers": list(numbers)}, "learning_rate": lr,
            "weight_decay": weight_decay}


def Step(every: int, factor: float, *, warmup: int = 0) -> Rule:  # pylint: disable=invalid-name
    """A schedule: the rate times `factor`, of (0, 1], after every so many steps."""
    return {"schedule": {"step": {"every": every, "factor": factor}, "warmup_steps": warmup}}


def Cosine(steps: int, *, minimum: float = 0.0,  # pylint: disable=invalid-name
           warmup: int = 0) -> Rule:
    """A schedule: half a cosine from the rate to `minimum`, reached after so many steps and kept
    (Loshchilov and Hutter 2017)."""
    return {"schedule": {"cosine": {"steps": steps, "minimum": minimum}, "warmup_steps": warmup}}


def Pieces(factors: dict[int, float], *, warmup: int = 0) -> Rule:  # pylint: disable=invalid-name
    """A schedule: the rate times factors[s] from step s on. The first step is 0.

    factors: at most 100,000, each at least 0.
    """
    begins = sorted(factors)
    return {"schedule": {"pieces": {"begins": begins, "factors": [factors[s] for s in begins]},
                         "warmup_steps": warmup}}
