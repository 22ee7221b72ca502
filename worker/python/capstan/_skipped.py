"""Steps that a torch GradScaler leaves out, because its scale has made a gradient infinite.

PyTorch drops such a batch. Here it comes again, with the scale that the scaler has lowered, so that
every sample is trained once an epoch.
"""

from typing import Callable, Iterable

import torch

from capstan._client import Diverged

_REPEATS_MAX = 40  # A scale of 2^24 would be below 2^-16 then.


class SkippedSteps:
    """Notices, for each batch, that its step was left out.

    parameters: returns those that a scaler looks at now. A loop may clear their gradients at its
    beginning: then comes_again() still sees them. If it clears them at its end, before_clearing()
    looks at them first.
    """

    def __init__(self, parameters: Callable[[], Iterable[torch.Tensor]]) -> None:
        self._parameters = parameters
        self._sent = False  # The parameters' gradients are those of an earlier batch.
        self._skipped = False
        self._repeats = 0

    def _some_are_infinite(self) -> bool:
        return any(parameter.grad is not None and not bool(parameter.grad.isfinite().all())
                   for parameter in self._parameters())

    def before_clearing(self) -> None:
        """Called before the gradients are cleared."""
        if not self._sent:
            self._skipped = self._skipped or self._some_are_infinite()
        self._sent = False

    def stepped(self) -> None:
        """The gradients were sent."""
        self._sent, self._skipped, self._repeats = True, False, 0

    def comes_again(self) -> bool:
        """Whether the batch without a step has been skipped; then clears its gradients.

        Raises Diverged if that was too often.
        """
        if not self._skipped and not self._some_are_infinite():
            return False
        self._repeats += 1
        if self._repeats > _REPEATS_MAX:
            raise Diverged(f"a batch's gradient is infinite after {_REPEATS_MAX} skipped steps, "
                           "expected a scale that scaler.update() lowers")
        for parameter in self._parameters():
            parameter.grad = None
        self._skipped = False
        return True
