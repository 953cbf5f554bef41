"""The steps of one run that wait to be linked: those in the spool, then those that only the mirror has."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field

import msgspec

from mirror.config import MirrorConfig
from mirror.loop import iterate_in_loop
from references.codec import decode, encode
from references.errors import IndexFormatError
from references.opening import open_run
from references.run_index import Phase, StepIndex
from references.source import BadStep, LoadedStep, load_steps
from references.spool import Spool, SpoolError, StepKey, content_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingStep:
    """A step that somebody has for W&B.

    Attributes:
        key: what it is to be called in W&B.
        data: its ``step.json``.
        index: the same, read.
        written_at_s: when it was written, in Unix time; None: nobody knows.
        spooled: where it is in the spool, and which content is there; None: it is in the mirror.
    """

    key: StepKey
    data: bytes
    index: StepIndex
    written_at_s: float | None = None
    spooled: tuple[StepKey, str] | None = None


@dataclass(slots=True, kw_only=True)
class PassedOver:
    """What is there and is not linked.

    Attributes:
        unreadable: why something is no step that could be linked.
        other_runs: runs that have steps in the same places; "": steps recorded while no run was known.
    """

    unreadable: list[str] = field(default_factory=list)
    other_runs: set[str] = field(default_factory=set)


def waiting_steps(
    run_id: str,
    spool: Spool,
    url: str | os.PathLike[str] | None,
    config: MirrorConfig,
    passed_over: PassedOver,
    *,
    adopt: bool,
) -> Generator[WaitingStep]:
    """Yield every step of a run once, one phase after the other from each place.

    Args:
        run_id: the run.
        spool: what is here comes before what the mirror has of the same step.
        url: the mirror, or None.
        config: settings of the mirror.
        passed_over: takes note of what is not yielded.
        adopt: steps that were recorded while no run was known are the run's too.

    Raises:
        SourceError: the mirror's step indexes cannot be listed.
        StoreError: likewise.
    """
    ours = {run_id, ""} if adopt else {run_id}
    seen: set[tuple[Phase, int]] = set()
    for key in list(spool.steps()):
        if key.run not in ours:
            passed_over.other_runs.add(key.run)
            continue
        try:
            step = _from_spool(key, run_id, spool)
        except (SpoolError, IndexFormatError) as error:
            passed_over.unreadable.append(f"{key.phase} step {key.step} in the spool: {error}")
            continue
        if step is not None:
            seen.add((key.phase, key.step))
            yield step
    for loaded in () if url is None else iterate_in_loop(_in_mirror(url, config)):
        if isinstance(loaded, BadStep):
            known = loaded.known
            passed_over.unreadable.append(f"{known.phase} step {known.step} in the mirror: {loaded.reason}")
        elif loaded.index.run not in ours:
            passed_over.other_runs.add(loaded.index.run)
        elif (loaded.known.phase, loaded.known.step) not in seen:
            yield _named(loaded.index, loaded.data, run_id)


def _from_spool(key: StepKey, run_id: str, spool: Spool) -> WaitingStep | None:
    """Read a step; None when another process has just crossed it off."""
    written_at_s, data = spool.written_at_s(key), spool.get(key)
    if data is None:
        return None
    return _named(decode(data), data, run_id, written_at_s=written_at_s, spooled=(key, content_hash(data)))


def _named(
    index: StepIndex,
    data: bytes,
    run_id: str,
    *,
    written_at_s: float | None = None,
    spooled: tuple[StepKey, str] | None = None,
) -> WaitingStep:
    if index.run != run_id:
        index = msgspec.structs.replace(index, run=run_id)
        data = encode(index)
    key = StepKey(run_id, index.phase, index.step)
    return WaitingStep(key=key, data=data, index=index, written_at_s=written_at_s, spooled=spooled)


async def _in_mirror(url: str | os.PathLike[str], config: MirrorConfig) -> AsyncGenerator[LoadedStep | BadStep, None]:
    async with open_run(url, config) as run:
        known = await run.source.find()
        async with contextlib.aclosing(load_steps(run.source, known)) as steps:
            async for step in steps:
                yield step
