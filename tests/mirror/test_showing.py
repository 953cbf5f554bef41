"""A wrong value in a sentence: as it was written, and no page of it."""

from __future__ import annotations

import pytest

from mirror.showing import MAX_CHARS, show


@pytest.mark.parametrize("value", ["s3:/bucket", 5, None, ["a", "b"], "line\nline"])
def test_a_short_value_is_shown_as_it_was_written(value: object) -> None:
    """In Python's form, so that blanks and line ends are seen."""
    assert show(value) == repr(value)


def test_a_long_one_is_cut() -> None:
    """And it shows that it is."""
    assert show("x" * 5_000) == "'" + "x" * (MAX_CHARS - 1) + "..."


def test_what_python_does_not_write_is_named_by_its_kind() -> None:
    """Numbers of thousands of digits, tables of tables of tables."""
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert show(10**10_000) == "this int"
    assert show(nested) == "this list"
    while nested:  # or taking it apart would be as deep
        nested = nested.pop()  # type: ignore[assignment] # each holds a list
