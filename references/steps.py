"""What a run's steps hold, one line of facts a step: rows, what trained, what is in the mirror, rewards, gaps."""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from mirror.config import MirrorConfig
from mirror.errors import StoreError
from mirror.loop import run_in_loop
from references.mirrors import Mirrors, RefusedMirrorError
from references.opening import open_run
from references.run_index import Phase, Row, StepIndex
from references.selection import Selection, reward_of
from references.source import BadStep, KnownStep, LoadedStep, find_steps, load_steps

Progress = Callable[[int, int], None]  # steps read, of how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards:
    """The rewards of a step's final attempts, of those that have one."""

    count: int
    mean: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """One step.

    Attributes:
        known: which step it is, from where, and whether it was run again or left behind.
        rows: attempts, retries included.
        trained: attempts that the batch trained on.
        superseded: attempts that were retried.
        recorded: attempts whose record was written.
        mirrored: records with a receipt in the mirror; None when the receipts were not or could not be read.
        missing: records that were to be in the mirror and have no receipt; None likewise.
        local_only: records that no mirror was to have, and none has.
        rewards: None when no attempt has one.
    """

    known: KnownStep
    rows: int
    trained: int
    superseded: int
    recorded: int
    mirrored: int | None
    missing: int | None
    local_only: int
    rewards: Rewards | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The steps of a run.

    Attributes:
        steps: by phase and number.
        gaps: steps of the run that should be there and are not, by phase, whatever the selection.
        bad_steps: steps whose index could not be read.
        unread_mirrors: why the receipts of a mirror could not be read.
    """

    steps: tuple[StepFacts, ...]
    gaps: Mapping[Phase, tuple[range, ...]]
    bad_steps: tuple[BadStep, ...]
    unread_mirrors: tuple[str, ...]


def list_steps(
    source: str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    config: MirrorConfig | None = None,
    allow_protocols: Collection[str] = (),
    read_receipts: bool = True,
    progress: Progress | None = None,
) -> RunFacts:
    """Say what the steps of a run hold.

    Args:
        source: a mirror's URL or path, or an artifact in W&B, as for ``pull``.
        selection: which steps are listed, and which of their rows are counted.
        config: settings, of which the storage options, workers, timeout and attempts matter.
        allow_protocols: as for ``pull``.
        read_receipts: ask the mirror which records it has; without, only the indexes are read.
        progress: called on another thread after each step.

    Raises:
        SourceError: there are no step indexes, or they cannot be listed.
        StoreError: the step indexes of the mirror cannot be listed.
        ConfigError: a setting or the source is wrong; of this package or of ``mirror``.
    """
    chosen = selection or Selection()

    async def work() -> RunFacts:
        async with open_run(source, config or MirrorConfig(), allow_protocols) as run:
            known = await find_steps(run.source, run.name)
            wanted = [step for step in known if chosen.wants_step(step.phase, step.step)]
            facts: list[StepFacts] = []
            bad: list[BadStep] = []
            unread: set[str] = set()
            async with contextlib.aclosing(load_steps(run.source, wanted)) as steps:
                async for step in steps:
                    if isinstance(step, BadStep):
                        bad.append(step)
                    else:
                        has = await _receipts(step.index, run.mirrors, unread) if read_receipts else None
                        facts.append(describe_step(step, chosen, has))
                    if progress is not None:
                        progress(len(facts) + len(bad), len(wanted))
            return RunFacts(
                steps=tuple(facts),
                gaps=find_gaps((step.phase, step.step) for step in known),
                bad_steps=tuple(bad),
                unread_mirrors=tuple(sorted(unread)),
            )

    return run_in_loop(work())


def describe_step(step: LoadedStep, selection: Selection, has_receipt: Callable[[str], bool] | None) -> StepFacts:
    """Count what a step holds.

    Args:
        step: the step.
        selection: which of its rows count.
        has_receipt: whether the mirror has a record; None when nobody knows.
    """
    rows = [row for row in step.index.rows if selection.wants_row(row)]
    records = [(row.record, has_receipt is not None and has_receipt(row.id)) for row in rows if row.record is not None]
    promised = [has for record, has in records if record.mirror is not None]
    return StepFacts(
        known=step.known,
        rows=len(rows),
        trained=sum(row.trained is True for row in rows),
        superseded=sum(row.superseded for row in rows),
        recorded=len(records),
        mirrored=None if has_receipt is None else sum(has for _, has in records),
        missing=None if has_receipt is None else promised.count(False),
        local_only=sum(record.mirror is None and not has for record, has in records),
        rewards=_rewards(rows),
    )


def find_gaps(steps: Iterable[tuple[Phase, int]]) -> dict[Phase, tuple[range, ...]]:
    """Return the steps that are missing between those that are there.

    Every step trains. Evaluation is expected as often as it mostly came.
    """
    of_phase: dict[Phase, set[int]] = {}
    for phase, step in steps:
        of_phase.setdefault(phase, set()).add(step)
    gaps: dict[Phase, tuple[range, ...]] = {}
    for phase, found in of_phase.items():
        ordered = sorted(found)
        pairs = list(pairwise(ordered))
        stride = 1 if phase == "train" or not pairs else _most_common(after - before for before, after in pairs)
        missing = (range(before + stride, after, stride) for before, after in pairs)
        if between := tuple(gap for gap in missing if gap):
            gaps[phase] = between
    return gaps


async def _receipts(index: StepIndex, mirrors: Mirrors, unread: set[str]) -> Callable[[str], bool] | None:
    """Read the receipts of a step's mirrors, where that was not done yet, and return who has one.

    None when a mirror cannot be read, whose name and reason go to ``unread``.
    """
    complete = True
    for row in index.rows:
        try:
            mirror = mirrors.of(row.record) if row.record is not None else None
            if mirror is not None:
                await mirror.read()
        except (StoreError, RefusedMirrorError) as error:
            unread.add(str(error))
            complete = False
    return (lambda record_id: mirrors.find(record_id) is not None) if complete else None


def _rewards(rows: Iterable[Row]) -> Rewards | None:
    rewards = [reward for row in rows if not row.superseded and (reward := reward_of(row)) is not None]
    if not rewards:
        return None
    total = sum(rewards)
    mean = total / len(rewards) if math.isfinite(total) else sum(reward / len(rewards) for reward in rewards)
    return Rewards(count=len(rewards), mean=mean, lowest=min(rewards), highest=max(rewards))


def _most_common(differences: Iterable[int]) -> int:
    """Return the most frequent one; of several the smallest."""
    counts = Counter(differences)
    return min(counts, key=lambda difference: (-counts[difference], difference))
