"""Which steps, records and files of a run are wanted."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass

from mirror.names import parse_name
from references.errors import ConfigError, SourceError
from references.run_index import Phase, Row
from references.source import KnownStep

_RANGE = re.compile(r"\s*(\d{1,18})?\s*(-)?\s*(\d{1,18})?\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class StepRanges:
    """Steps as a person writes them: ``3``, ``5-9``, ``100-`` (from there on), ``-7`` (up to there)."""

    ranges: tuple[tuple[int, float], ...]  # first and last step of each

    def __contains__(self, step: object) -> bool:
        """Whether one of the ranges has this step."""
        return isinstance(step, int) and any(first <= step <= last for first, last in self.ranges)


def parse_steps(text: str) -> StepRanges:
    """Read steps and ranges of steps, separated by commas.

    Raises:
        ConfigError: a part is neither, or ends before it begins.
    """
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or not (match[1] or match[3]) or (match[1] and match[3] and not match[2]):
            raise ConfigError(f"steps must be like 3,5-9,100- and not {text!r}")
        first = int(match[1] or 0)
        last = first if not match[2] else int(match[3]) if match[3] else math.inf
        if first > last:
            raise ConfigError(f"steps {part.strip()!r} end before they begin: write {last}-{first}")
        ranges.append((first, last))
    return StepRanges(tuple(ranges))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is wanted; whatever is None does not restrict.

    Attributes:
        phases: of these phases.
        steps: of these steps.
        only_trained: records that the step's batch trained on.
        kinds: sidecars of these kinds, e.g. ``tokens``; documents are always wanted.
        ids: records with these ids.
        min_reward: records with a reward of at least this.
        max_reward: records with a reward of at most this.
    """

    phases: Collection[Phase] | None = None
    steps: Container[int] | None = None
    only_trained: bool = False
    kinds: Collection[str] | None = None
    ids: Collection[str] | None = None
    min_reward: float | None = None
    max_reward: float | None = None

    def wants_step(self, phase: Phase, step: int) -> bool:
        """Whether records of this step may be wanted."""
        return (self.phases is None or phase in self.phases) and (self.steps is None or step in self.steps)

    def choose(self, known: Sequence[KnownStep]) -> list[KnownStep]:
        """Return those steps of a run whose records may be wanted.

        Raises:
            SourceError: the run has steps, and not one of those.
        """
        wanted = [step for step in known if self.wants_step(step.phase, step.step)]
        if known and not wanted:
            numbers = sorted(step.step for step in known)
            raise SourceError(
                f"none of these steps is there: the run has steps {numbers[0]} to {numbers[-1]} of phase "
                f"{' and '.join(sorted({step.phase for step in known}))}; correct --steps or --phase"
            )
        return wanted

    def wants_row(self, row: Row) -> bool:
        """Whether a row's record is wanted, given that its step is."""
        if self.only_trained and row.trained is not True:
            return False
        if self.ids is not None and row.id not in self.ids:
            return False
        if self.min_reward is None and self.max_reward is None:
            return True
        reward = reward_of(row)
        return reward is not None and (
            (self.min_reward is None or reward >= self.min_reward)
            and (self.max_reward is None or reward <= self.max_reward)
        )

    def wants_file(self, name: str) -> bool:
        """Whether a file of a wanted record is wanted."""
        if self.kinds is None:
            return True
        parsed = parse_name(name)
        return parsed is not None and (parsed.kind is None or parsed.kind in self.kinds)


def reward_of(row: Row) -> float | None:
    """Return the reward that an attempt was finished with, or None when it has no finite number."""
    reward = (row.annotations or {}).get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        return None
    try:
        number = float(reward)
    except OverflowError:  # JSON has integers of any size
        return None
    return number if math.isfinite(number) else None
