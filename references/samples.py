"""Which attempts belong to one sample, and which of them is final.

A sample is one ``(instance_id, repetition_id)`` of one generate call. A retry within it supersedes the attempt before.
The same prompt drawn again in the same step (a refill) is another sample with attempts of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
        numbers: which attempts they are.
    """

    attempts: list[Entry]
    final: Entry
    numbers: set[int] = field(init=False)

    def __post_init__(self) -> None:
        """Note the numbers of the first attempts."""
        self.numbers = {entry.attempt for entry in self.attempts}

    def add(self, entry: Entry) -> None:
        """Take in another attempt."""
        self.attempts.append(entry)
        self.numbers.add(entry.attempt)
        if entry.attempt > self.final.attempt:
            self.final = entry


def owners_by_source(samples: Iterable[Sample]) -> dict[int, list[int]]:
    """Return which samples were logged with which trajectory id object: their places, by the object's identity."""
    owners: dict[int, list[int]] = {}
    for place, sample in enumerate(samples):
        for source in {id(entry.source) for entry in sample.attempts if entry.source is not None}:
            owners.setdefault(source, []).append(place)
    return owners


def by_key(entries: Iterable[Entry]) -> dict[Key, list[Entry]]:
    """Sort attempts by prompt and repetition, in the order in which they were logged."""
    attempts: dict[Key, list[Entry]] = {}
    for entry in sorted(entries, key=attrgetter("order")):
        known = attempts.get(entry.key)
        if known is None:
            attempts[entry.key] = [entry]
        else:
            known.append(entry)
    return attempts


def split_samples(attempts: Iterable[Entry]) -> list[Sample]:
    """Tell apart the samples of one key: one, or several where a prompt was drawn again.

    An attempt joins the sample that was logged with the same trajectory id object, else the newest one, unless that has
    an attempt of this number: numbers start again at 0 with each draw.
    """
    samples: list[Sample] = []
    homes: dict[int, Sample] = {}  # the newest sample of each trajectory id object
    for entry in attempts:
        home = homes.get(id(entry.source), samples[-1] if samples else None)
        if home is None or entry.attempt in home.numbers:
            home = Sample([entry], entry)
            samples.append(home)
        else:
            home.add(entry)
        if entry.source is not None:
            homes[id(entry.source)] = home
    return samples
