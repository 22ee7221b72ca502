"""Embeddings of any size: a row for each key that was ever pushed, on the servers."""

from typing import Any, Callable, Optional, Union

import torch

from capstan import _job
from capstan._client import Error


class _Bags(torch.autograd.Function):  # type: ignore[misc]  # PyTorch counts as untyped.
    """torch.nn.functional.embedding_bag without weights, with a faster gradient of the same bits.

    PyTorch's own gradient sorts the places first: for 26,624 keys of 17 floats on one core both
    passes take 4 times as long in 1.13, and 8 times in 2.15.
    """

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, places: torch.Tensor,
                offsets: Optional[torch.Tensor], mode: str) -> torch.Tensor:
        """The bags: see EmbeddingBag.forward; places in the place of keys."""
        ctx.save_for_backward(places, offsets)
        ctx.row_shape, ctx.mode = rows.shape, mode
        if offsets is None and places.dim() == 2 and places.shape[1] == 1:
            return rows.index_select(0, places.view(-1))
        return torch.nn.functional.embedding_bag(places, rows, offsets, mode=mode)

    @staticmethod
    def backward(ctx: Any, bags: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """Adds each bag's gradient, [bags, dim], to those of its rows."""
        places, offsets = ctx.saved_tensors
        flat = places.reshape(-1)
        if offsets is None:
            sizes = torch.full((len(bags),), places.shape[1])
        else:
            sizes = torch.diff(offsets, append=offsets.new_tensor([len(flat)]))
        if ctx.mode == "mean":
            bags = bags * sizes.clamp(min=1).to(bags.dtype).reciprocal().unsqueeze(1)
        if len(bags) != len(flat) or offsets is not None:
            bags = bags.repeat_interleave(sizes, dim=0)
        rows = bags.new_zeros(ctx.row_shape)
        # Both add in the order of the keys, the faster index_put_ only if it has one thread.
        if torch.get_num_threads() == 1:
            rows.index_put_((flat,), bags, accumulate=True)
        else:
            rows.scatter_add_(0, flat.unsqueeze(1).expand_as(bags), bags)
        return rows, None, None, None


class EmbeddingBag(torch.nn.Module):  # type: ignore[misc]  # PyTorch counts as untyped.
    """Sums or means of rows by key, like torch.nn.EmbeddingBag, of a table without a size.

    keys: from a batch of `batches` to the keys that `forward` will look up for it: an int64 tensor.
    mode: "sum" or "mean".
    The other arguments, and when `keys` is called: see capstan.rows.

    Its rows are no parameters of the module: they are neither in its state_dict nor in a torch
    optimizer, but in the job's model and checkpoints.

    Raises ValueError for another `mode` or `ttl`.
    """

    def __init__(self, name: str, dim: int, *, keys: Callable[[Any], torch.Tensor],
                 optimizer: dict[str, Any], mode: str = "sum", initial_std: float = 0.01,
                 admit_after: int = 0, evict_after_updates: int = 0,
                 ttl: Optional[Union[str, float]] = None, rows_max: int = 0,
                 memory_mib: int = 0, buckets: Optional[int] = None) -> None:
        super().__init__()
        if mode not in ("sum", "mean"):
            raise ValueError(f"mode is {mode!r}, expected 'sum' or 'mean'")
        self.name, self.dim, self.mode, self.optimizer = name, dim, mode, optimizer
        self._keys = keys
        self.described = _job.described_rows(
            name, dim, initial_std=initial_std, admit_after=admit_after,
            evict_after_updates=evict_after_updates, ttl=ttl, rows_max=rows_max,
            memory_mib=memory_mib, buckets=buckets)
        self._rows: Optional[torch.Tensor] = None  # The batch's, or a model's: [rows, dim].
        self._group: dict[str, Any] = {"params": [], "lr": optimizer["learning_rate"],
                                       "weight_decay": optimizer.get("weight_decay", 0.0)}
        self._unknown: Optional[int] = None  # The row of keys that have none; None: an error.
        self._named = self._places = torch.empty(0, dtype=torch.int64)

    def forward(self, keys: torch.Tensor, offsets: Optional[torch.Tensor] = None,
                per_sample_weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        """The bags of keys of the current batch: [bags, dim].

        keys: int64, [bags, keys a bag], or [keys] with `offsets`, [bags], where each bag begins.
        per_sample_weights: have the shape of keys; mode "sum" alone.
        Raises Error for keys that were not named, and outside of the loop over `batches` unless a
        model was loaded.
        """
        if self._rows is None:
            raise Error(f"{self.name!r} has rows only in the loop over capstan.torch.batches")
        places = self._places_of(keys)
        if per_sample_weights is not None:
            return torch.nn.functional.embedding_bag(
                places, self._rows, offsets, mode=self.mode,
                per_sample_weights=per_sample_weights)
        return _Bags.apply(self._rows, places, offsets, self.mode)

    def _places_of(self, keys: torch.Tensor) -> torch.Tensor:
        flat = self._checked(keys)
        if torch.equal(flat, self._named):
            return self._places.view(keys.shape)
        named, order = torch.sort(self._named)
        at = torch.searchsorted(named, flat).clamp(max=max(named.numel() - 1, 0))
        known = named[at] == flat if named.numel() else torch.zeros_like(flat, dtype=torch.bool)
        if self._unknown is None and not bool(known.all()):
            raise Error(f"{self.name!r}: key {int(flat[~known][0])} is looked up, and `keys` has "
                        "not named it for this batch")
        places = self._places[order[at]] if named.numel() else flat
        if self._unknown is not None:
            places = torch.where(known, places, torch.full_like(places, self._unknown))
        return places.view(keys.shape)

    def _checked(self, keys: Any) -> torch.Tensor:
        if not isinstance(keys, torch.Tensor) or keys.dtype != torch.int64:
            found = keys.dtype if isinstance(keys, torch.Tensor) else type(keys).__name__
            raise Error(f"{self.name!r}: keys are {found}, expected a tensor of torch.int64")
        return keys.detach().to("cpu").reshape(-1).contiguous()

    # ---- for the session

    def keys_of(self, batch: Any) -> torch.Tensor:
        """The keys that a batch will look up, [keys]; a copy."""
        return self._checked(self._keys(batch)).clone()

    def group(self) -> dict[str, Any]:
        """The rows of the current batch as a parameter group, as torch's optimizers have them."""
        rows = self._rows
        self._group["params"] = [] if rows is None or not rows.requires_grad else [rows]
        return self._group

    def take(self, rows: torch.Tensor, keys: torch.Tensor, places: torch.Tensor) -> None:
        """Sets the current batch's rows: rows[places[i]] is the row of keys[i]."""
        self._rows, self._unknown = rows.requires_grad_(), None
        self._named, self._places = keys, places

    def keep(self, rows: torch.Tensor, keys: torch.Tensor) -> None:
        """Sets the rows of a model: rows[i] is the row of keys[i]. Other keys count as zeros."""
        self._rows = torch.cat([rows, rows.new_zeros(1, self.dim)])
        self._unknown = len(rows)
        self._named, order = torch.sort(keys)
        self._places = order

    def gradient(self) -> Optional[torch.Tensor]:
        """Returns the gradient that `backward` has left, [rows, dim], and drops the rows."""
        rows, self._rows = self._rows, None
        return None if rows is None else rows.grad
