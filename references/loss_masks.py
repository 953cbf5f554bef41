"""Which rows of a batch have a trainable token, whatever the loss masks are made of.

Lists, NumPy arrays and torch tensors are told apart by what they can do: neither library is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from references.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Sized


def trainable_rows(loss_masks: Sized, count: int) -> list[bool]:
    """Say of each of the first ``count`` rows whether a token of it is trained; the rows after them are padding.

    Args:
        loss_masks: one row of numbers per trajectory id, 0 for a token that is not trained; a two-dimensional array or
            tensor, or a sequence of sequences, arrays or tensors of any lengths.
        count: how many rows have a trajectory id.

    Raises:
        BatchError: there are fewer rows than that, or no rows of numbers.
    """
    if not hasattr(loss_masks, "__len__") or getattr(loss_masks, "ndim", 1) == 0 or isinstance(loss_masks, Mapping):
        raise BatchError(f"the loss masks are a {type(loss_masks).__name__}: give one row of numbers per trajectory id")
    if len(loss_masks) < count:
        raise BatchError(
            f"the batch has {count} trajectory ids but {len(loss_masks)} rows of loss masks: "
            "hand over the ids of the rows that the loss masks have, in their order"
        )
    masks: Any = loss_masks
    if getattr(masks, "ndim", 0) == 2:  # noqa: PLR2004 - rows and tokens
        if getattr(masks, "itemsize", 0) == 1 and hasattr(masks, "__array_interface__"):
            return list(map(bool, masks[:count].any(axis=1).tolist()))  # NumPy widens each byte before it sums
        # summed, since torch takes six times as long for any(); no token has a negative weight
        return [total > 0 for total in masks[:count].sum(axis=1).tolist()]
    return [_has_token(mask) for mask, _ in zip(masks, range(count), strict=False)]


def _has_token(mask: Any) -> bool:  # noqa: ANN401 - duck typing is the point
    if isinstance(mask, list | tuple):
        if not mask or isinstance(mask[0], int | float):
            return 1 in mask or any(mask)  # looking for a 1 is the faster half
        return any(map(_has_token, mask))
    if hasattr(mask, "any"):
        return bool(mask.any())
    if isinstance(mask, str | Mapping):
        raise BatchError(f"a loss mask is a {type(mask).__name__}: give a row of numbers, 0 for what is not trained")
    if isinstance(mask, Iterable):
        return any(map(_has_token, mask))
    return bool(mask)
