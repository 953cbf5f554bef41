"""Which attempts belong to one sample, and which of them is final.

A sample is one ``(instance_id, repetition_id)`` of one generate call. A retry within it supersedes the attempt before.
The same prompt drawn again in the same step (a refill) is another sample with attempts of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from references.entry import Entry

Key: TypeAlias = tuple[str, int]  # instance_id, repetition_id


@dataclass(slots=True, eq=False)
class Sample:
    """The attempts of one sample.

    Attributes:
        attempts: in the order in which they were logged.
        final: the attempt that no other one supersedes.
    """

    attempts: list[Entry]
    final: Entry

    def add(self, entry: Entry) -> None:
        """Take in another attempt."""
        self.attempts.append(entry)
        if entry.attempt > self.final.attempt:
            self.final = entry

    def came_from(self, source: object) -> bool:
        """Say whether an attempt was logged with this very trajectory id object."""
        return source is not None and any(entry.source is source for entry in self.attempts)

    def has_attempt(self, number: int) -> bool:
        """Say whether this attempt of the sample has been logged."""
        return any(entry.attempt == number for entry in self.attempts)


def by_key(entries: Iterable[Entry]) -> dict[Key, list[Entry]]:
    """Sort attempts by prompt and repetition, in the order in which they were logged."""
    attempts: dict[Key, list[Entry]] = {}
    for entry in sorted(entries, key=attrgetter("order")):
        attempts.setdefault(entry.key, []).append(entry)
    return attempts


def split_samples(attempts: Iterable[Entry]) -> list[Sample]:
    """Tell apart the samples of one key: one, or several where a prompt was drawn again.

    An attempt joins the sample that was logged with the same trajectory id object, else the newest one, unless that has
    an attempt of this number: numbers start again at 0 with each draw.
    """
    samples: list[Sample] = []
    for entry in attempts:
        home = next((sample for sample in reversed(samples) if sample.came_from(entry.source)), None)
        if home is None and samples:
            home = samples[-1]
        if home is None or home.has_attempt(entry.attempt):
            samples.append(Sample([entry], entry))
        else:
            home.add(entry)
    return samples
