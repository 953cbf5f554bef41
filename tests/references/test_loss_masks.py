"""What ``references/loss_masks.py`` takes for a loss mask."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from references.errors import BatchError
from references.loss_masks import trainable_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sized


class _Tensor:
    """What a torch tensor offers and is used here: it is no sequence, no array, and has no truth of its own."""

    def __init__(self, values: Any) -> None:  # noqa: ANN401 - whatever NumPy takes
        self._values = np.asarray(values)
        self.ndim = self._values.ndim

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int | slice) -> _Tensor:
        return _Tensor(self._values[index])

    def __bool__(self) -> bool:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    def sum(self, axis: int) -> _Tensor:
        return _Tensor(self._values.sum(axis=axis))

    def tolist(self) -> Any:  # noqa: ANN401 - nested lists or a scalar
        return self._values.tolist()


class _Scalar(_Tensor):
    """The answer of ``any()`` over everything has a truth."""

    def __bool__(self) -> bool:
        return bool(self._values)


class _RowTensor(_Tensor):
    """One row of a jagged batch."""

    def any(self) -> _Tensor:
        return _Scalar(self._values.any())


MAKERS: list[Callable[[list[list[int]]], Sized]] = [
    list,
    lambda rows: [tuple(row) for row in rows],
    lambda rows: [[float(token) for token in row] for row in rows],
    lambda rows: [[bool(token) for token in row] for row in rows],
    lambda rows: [np.asarray(row) for row in rows],
    lambda rows: [[np.int64(token) for token in row] for row in rows],
    lambda rows: [[[token] for token in row] for row in rows],
    lambda rows: [deque(row) for row in rows],
    lambda rows: [_RowTensor(row) for row in rows],
]
RECTANGULAR: list[Callable[[list[list[int]]], Sized]] = [
    np.asarray,
    lambda rows: np.asarray(rows, dtype=np.float32),
    lambda rows: np.asarray(rows, dtype=bool),
    lambda rows: np.asarray(rows, dtype=np.int8),
    lambda rows: np.asarray(rows)[:, :, None],
    _Tensor,
]


@pytest.mark.parametrize("make", MAKERS + RECTANGULAR)
def test_every_kind_of_mask_is_read_alike(make: Callable[[list[list[int]]], Sized]) -> None:
    """Lists, tuples, arrays and tensors say the same; the rows after the ids are padding."""
    assert trainable_rows(make([[0, 0], [0, 1], [1, 1], [1, 0]]), 3) == [False, True, True]


@pytest.mark.parametrize("make", MAKERS)
def test_rows_may_differ_in_length(make: Callable[[list[list[int]]], Sized]) -> None:
    """A jagged batch is read row by row; a row without tokens trains nothing."""
    assert trainable_rows(make([[], [0], [0, 0, 1]]), 3) == [False, False, True]


@pytest.mark.parametrize("make", [list, np.asarray, _Tensor])
def test_fewer_rows_than_ids_are_refused(make: Callable[[list[list[int]]], Sized]) -> None:
    """Ids that no row belongs to are a mistake of the trainer's, not trained or untrained by guess."""
    with pytest.raises(BatchError, match="3 trajectory ids but 2 rows"):
        trainable_rows(make([[0], [1]]), 3)


@pytest.mark.parametrize("masks", [5, np.asarray(1), {"a": [1]}, ["1"], [{"a": 1}]], ids=repr)
def test_what_is_no_rows_of_numbers_is_refused(masks: Any) -> None:  # noqa: ANN401 - any mistake
    """The sentence says what to give."""
    with pytest.raises(BatchError, match="of numbers"):
        trainable_rows(masks, 1)


@given(st.lists(st.lists(st.integers(0, 1), min_size=3, max_size=3), min_size=1))
def test_arrays_and_lists_agree(rows: list[list[int]]) -> None:
    """What a row trains does not depend on what it is made of."""
    assert trainable_rows(np.asarray(rows), len(rows)) == trainable_rows(rows, len(rows)) == [any(row) for row in rows]
