"""What ``references/plain.py`` makes of foreign values."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from enum import Enum
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from references import plain


class _Hostile:
    """Refuses every question but those of the test's own tools."""

    def __getattr__(self, name: str) -> object:
        raise AttributeError(name) if name.startswith("_") else RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError


class _Number(int):
    """What a library may take for a number, and is no ``int`` by type."""


class _Endless(dict[str, int]):
    """Never comes to its last item."""

    def items(self) -> Any:  # noqa: ANN401 - no view
        """Give the same item for ever."""
        return repeat(("a", 1))


class _Broken(list[int]):
    """Cannot be looked through."""

    def __iter__(self) -> Iterator[int]:
        raise RuntimeError


class _Reason(Enum):
    DONE = "complete"


def test_a_field_is_read_from_objects_and_mappings_alike() -> None:
    """An attribute and an item are the same; what is missing or raises is None."""
    assert plain.field({"id": "tr"}, "id") == "tr"
    assert plain.field(_Reason.DONE, "value") == "complete"
    assert plain.field({"id": "tr"}, "status") is None
    assert plain.field(None, "id") is None
    assert plain.field(_Hostile(), "id") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (np.bool_(1), True),
        (np.int64(7), 7),
        (_Number(7), 7),
        (np.float32(0.5), 0.5),
        (np.arange(3), [0, 1, 2]),
        (float("nan"), None),
        (float("-inf"), None),
        (1 << 80, str(1 << 80)),
        ((1, "a"), [1, "a"]),
        ({3, 1, 2}, [1, 2, 3]),
        ({1: {"reward": np.float64(1)}}, {"1": {"reward": 1.0}}),
        (_Reason.DONE, "complete"),
        ("\ud800", "\\ud800"),
        (object(), "<object>"),
        (deque(), "<deque>"),
        pytest.param(_Hostile(), "<_Hostile>", id="hostile"),
    ],
)
def test_values_become_what_json_has(value: object, expected: object) -> None:
    """Each kind of value has one plain form; what has none is named by its type."""
    made = plain.plain(value)
    assert made == expected
    assert type(made) is type(expected)


def test_a_cycle_ends() -> None:
    """A structure that contains itself is cut off, not followed for ever."""
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    assert json.dumps(plain.plain(loop)).count("loop") == plain.MAX_DEPTH


def _branching_cycle() -> list[Any]:
    loop: list[Any] = []
    loop += [loop, loop]
    return loop


@pytest.mark.parametrize(
    ("value", "name"),
    [
        pytest.param(_Hostile(), "<_Hostile>", id="hostile"),
        pytest.param(_branching_cycle(), "<list>", id="a cycle that doubles at each turn"),
        pytest.param(np.zeros(plain.MAX_VALUES), "<ndarray>", id="a tensor"),
        pytest.param(_Endless(), "<_Endless>", id="endless"),
        pytest.param(_Broken([1]), "<_Broken>", id="broken"),
    ],
)
def test_a_strange_value_does_not_cost_its_neighbours(value: object, name: str) -> None:
    """Annotations keep what can be written beside what cannot, which is named, and nobody waits for it."""
    assert plain.plain({"env": value, "reward": 1.0}) == {"env": name, "reward": 1.0}


def test_annotations_that_never_end_are_cut_off() -> None:
    """Even the annotations themselves may be anything."""
    assert plain.plain(_Endless()) == {"a": 1}


def test_a_plain_value_is_a_copy() -> None:
    """What a generator changes after it was logged does not change what was logged."""
    annotations = {"turns": [1]}
    logged = plain.plain(annotations)
    annotations["turns"].append(2)
    assert logged == {"turns": [1]}


foreign = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(_Hostile()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
)


@given(foreign)
def test_whatever_is_handed_over_can_be_encoded(value: object) -> None:
    """No value makes the encoder raise, and its JSON is read back as the same plain value."""
    made = plain.plain(value)
    assert msgspec.json.decode(msgspec.json.encode(made)) == made


@given(st.text(alphabet=st.characters()))
def test_text_always_has_a_utf8_form(value: str) -> None:
    """Lone surrogates are escaped, all other text stays as it is."""
    made = plain.text(value)
    assert made is not None
    assert made.encode().decode() == made


class _NoIndex:
    """Fails where it is to be a number."""

    def __index__(self) -> int:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3), (np.int32(3), 3), (None, 0), ("3", 0), (1.5, 0), (1 << 63, 0), (_NoIndex(), 0)],
)
def test_numbers_are_whole_or_zero(value: object, expected: int) -> None:
    """NumPy's integers are integers; what is no integer of 64 bits is 0."""
    assert plain.whole_number(value) == expected
