"""The goals of the comparisons, and whether their numbers reach them.

Pure: no GPU, no PyTorch.
"""

GOAL_MISSED = 4  # The exit code of a comparison that misses a goal; run_gpu.py knows it.

# Goals for our speed as a multiple of PyTorch's: of whole models; of convolutions, for which
# PyTorch has cuDNN take its fastest plan; of its fused optimizers. Other cases have no goal.
TRAINING = 1.0
_CONVOLUTIONS = 0.97
_OPTIMIZERS = 1.0
# Share of the rate at which the card copies its memory.
_OPTIMIZERS_OF_COPY = 0.85

_OPTIMIZER_KINDS = ("sgd_momentum", "adam")


class Ratio:
    """Our speed as a multiple of another one, and the least that it should be; None: unknown."""

    def __init__(self, value, goal=None):
        self.value, self.goal = value, goal

    @property
    def missed(self):
        # NaN does not reach the goal.
        return self.value is not None and self.goal is not None and not self.value >= self.goal

    def __str__(self):
        if self.value is None:
            return ""
        if self.goal is None:
            return f"{self.value:.2f}"
        # Cut, not rounded: what misses its goal must not look as if it were there.
        shown = int(self.value * 1000) / 1000 if self.value == self.value else self.value
        return f"{shown:.3f} {'missed' if self.missed else 'reached'}"


class Measured:
    """A line of gpu_bench: kind, sizes, microseconds, bytes moved, operations; by tabs."""

    def __init__(self, line):
        columns = line.split("\t")
        if len(columns) != 5:
            raise ValueError(f"a line of gpu_bench has {len(columns)} columns, expected 5: {line}")
        self.kind, self.sizes = columns[:2]
        self.microseconds, self.moved, self.operations = (float(text) for text in columns[2:])
        if not self.microseconds > 0:
            raise ValueError(f"gpu_bench took {columns[2]} microseconds, expected more than 0")

    def __str__(self):
        return f"{self.kind} {self.sizes}"

    @property
    def numbers(self):
        """The sizes by name."""
        return {name: int(value) for name, value in
                (pair.split("=") for pair in self.sizes.split())}

    @property
    def rate(self):
        if self.operations:
            return f"{self.operations / self.microseconds * 1e-6:.1f} Tflop/s"
        return f"{self.moved / self.microseconds * 1e-3:.0f} GB/s"


def beside_floor(case, copy, product):
    """How near a case is to what the card can do: the time to move its bytes at the rate of `copy`,
    or to do its operations at that of `product` (Measured; None: not known), whichever is longer.
    """
    times = [amount / limit for amount, limit in (
        (case.moved, copy and copy.moved / copy.microseconds),
        (case.operations, product and product.operations / product.microseconds)) if limit]
    return Ratio(max(times) / case.microseconds if times else None)


def beside_pytorch(case, microseconds):
    """Our speed in a Measured case beside PyTorch's, from its microseconds (None: not known)."""
    goal = None
    if case.kind.startswith("conv_"):
        goal = _CONVOLUTIONS
    if case.kind in _OPTIMIZER_KINDS:
        goal = _OPTIMIZERS
    return Ratio(microseconds / case.microseconds if microseconds else None, goal)


def beside_copy(case, copy):
    """How fast an optimizer moves its bytes, beside `copy`, the Measured copy (None: not known)."""
    if case.kind not in _OPTIMIZER_KINDS or copy is None:
        return Ratio(None)
    rate = (case.moved / case.microseconds) / (copy.moved / copy.microseconds)
    return Ratio(rate, _OPTIMIZERS_OF_COPY)
