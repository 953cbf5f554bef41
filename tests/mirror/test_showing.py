"""A wrong value in a sentence: as it was written, and no page of it; a wrong name with what may have been meant."""

from __future__ import annotations

import pytest

from mirror.showing import MAX_CHARS, show, suggest


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


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("worker", "did you mean 'mirror.workers'?"),
        ("nothing like it", "known are workers, attempts"),
        ("w" * 1_000_000, "known are workers, attempts"),  # and it takes no time
    ],
)
def test_an_unknown_name_is_met_by_the_nearest(name: str, end: str) -> None:
    """Or by what to do where none is near."""
    assert suggest(name, ["workers", "attempts"], "known are workers, attempts", prefix="mirror.") == end
