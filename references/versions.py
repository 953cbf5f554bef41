"""Which version of each step is the newest, and what the others tell: runs that went back, steps they left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a step as W&B lists it."""

    number: int  # 7 for "v7"; numbers ascend in the order of logging
    step: int
    content: str | None = None  # the same for versions that differ only in what has landed since; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The version of a step that counts.

    Attributes:
        number: its number.
        contents: how many contents the step had over time; with more than one the step was run again.
        is_left_behind: the run went back to a lower step after this one, and has not come here again.
    """

    number: int
    contents: int
    is_left_behind: bool


def newest_versions(versions: Iterable[Version]) -> dict[int, Newest]:
    """Return the version of each step that counts, by step, ascending; in whatever order the versions come."""
    of_step: dict[int, list[Version]] = {}
    for version in sorted(versions, key=lambda version: version.number):
        of_step.setdefault(version.step, []).append(version)
    found: dict[int, Newest] = {}
    went_back_at = -1  # the number of the last version with which a lower step was run again
    for step in sorted(of_step):
        history = of_step[step]
        begins = _beginnings(history)
        number = history[-1].number
        found[step] = Newest(number=number, contents=len(begins), is_left_behind=number < went_back_at)
        if len(begins) > 1:
            went_back_at = max(went_back_at, begins[-1])
    return found


def _beginnings(history: Sequence[Version]) -> list[int]:
    """Return the number of the first version of each content that a step had, in order."""
    begins: list[int] = []
    before: str | None = None
    for version in history:
        if version.content is None or version.content != before:
            begins.append(version.number)
        before = version.content
    return begins
