"""The exit code says the worst that can be said of a run."""

from __future__ import annotations

import pytest

from mirror.terminal.exits import Exit, decide


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, Exit.COMPLETE),
        ({"done": 5}, Exit.COMPLETE),
        ({"left": 2}, Exit.FAILED),
        ({"done": 5, "left": 2}, Exit.PARTIAL),
        ({"done": 5, "left": 2, "findings": 1, "unchecked": 1}, Exit.PARTIAL),
        ({"findings": 1}, Exit.DIFFERENCES),
        ({"findings": 1, "unchecked": 1}, Exit.DIFFERENCES),
        ({"unchecked": 1}, Exit.UNCHECKED),
        ({"done": 5, "interrupted": True}, Exit.COMPLETE),
        ({"done": 5, "left": 1, "interrupted": True}, Exit.INTERRUPTED),
        ({"left": 1, "interrupted": True}, Exit.INTERRUPTED),
    ],
)
def test_the_worst_decides(facts: dict[str, int], expected: Exit) -> None:
    """What is left counts more than what a check found, and that more than what could not be checked."""
    assert decide(**facts) is expected  # type: ignore[arg-type] # a table of keyword arguments


def test_the_codes_are_those_that_scripts_rely_on() -> None:
    """The numbers are part of the command's contract."""
    assert {code.name: int(code) for code in Exit} == {
        "COMPLETE": 0,
        "FAILED": 1,
        "USAGE": 2,
        "PARTIAL": 3,
        "DIFFERENCES": 4,
        "UNCHECKED": 5,
        "INTERRUPTED": 130,
    }
