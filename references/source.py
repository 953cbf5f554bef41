"""Where the step indexes of a run come from: its mirror, or the versions of its artifact in W&B."""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from mirror.errors import StoreError
from mirror.location import Location, parse_location
from references.artifact_name import ARTIFACT_TYPE
from references.codec import decode
from references.errors import ConfigError, IndexFormatError, SourceError
from references.reference import Reference
from references.run_index import PHASES, Phase, StepIndex

AHEAD = 4  # indexes that are read before they are needed
_REF = re.compile(
    rf"(?P<entity>(?![.~])[^/:]+)/(?P<project>[^/:]+)/(?P<name>{ARTIFACT_TYPE}-(?P<phase>{'|'.join(PHASES)})-[A-Za-z0-9_.\-]+)"
    r"(?::(?P<alias>[^/:\s]+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRef:
    """The artifact of one phase of a run in W&B: all its versions, or the one that an alias names."""

    path: str  # entity/project/name
    phase: Phase
    alias: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStep:
    """A step that a source has.

    Attributes:
        phase: its phase.
        step: its number.
        origin: where its index is: a key in the mirror, or a version in W&B.
        contents: how many contents it had over time; with more than one it was run again. A mirror keeps the last only.
        is_left_behind: the run went back to a lower step after it, and has not come here again.
    """

    phase: Phase
    step: int
    origin: str
    contents: int = 1
    is_left_behind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A step's index as its source gave it; nothing of it is checked yet.

    Attributes:
        data: the bytes of ``step.json``.
        references: what W&B refers to for this step; None where W&B was not asked.
    """

    data: bytes
    references: tuple[Reference, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedStep:
    """A step whose index was read."""

    known: KnownStep
    data: bytes
    index: StepIndex
    references: tuple[Reference, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BadStep:
    """A step whose index could not be read."""

    known: KnownStep
    reason: str


class Source(Protocol):
    """Gives the step indexes of one run. Used on one event loop."""

    async def find(self) -> list[KnownStep]:
        """Return every step that there is, each once, by phase and number.

        Raises:
            SourceError: they cannot be listed.
            StoreError: likewise, where a store has them.
        """
        ...

    async def fetch(self, known: KnownStep) -> Fetched:
        """Return the index of a step that ``find`` gave.

        Raises:
            IndexFormatError: what is there is no step index.
            SourceError: it cannot be read.
            StoreError: likewise, where a store has it.
        """
        ...


def parse_source(text: str | os.PathLike[str]) -> ArtifactRef | Location:
    """Tell a W&B artifact, ``entity/project/skycap-records-<phase>-<run>[:alias]``, from a mirror's URL or path.

    Raises:
        ConfigError: it is neither; ``mirror.errors.ConfigError`` when it is a URL that no mirror has.
    """
    match = _REF.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        if isinstance(text, str) and re.match(rf"([^/:]*/)?{ARTIFACT_TYPE}-", text):
            raise ConfigError(
                f"{text!r} is no W&B artifact of a run's steps: write entity/project/{ARTIFACT_TYPE}-train-<run id>, "
                "with :<alias> for one version"
            )
        return parse_location(text)
    phase = next(phase for phase in PHASES if phase == match["phase"])
    return ArtifactRef(path=f"{match['entity']}/{match['project']}/{match['name']}", phase=phase, alias=match["alias"])


async def find_steps(source: Source, name: str) -> list[KnownStep]:
    """Return every step that there is, of which there must be one.

    Args:
        source: has the steps.
        name: what it is called, without credentials.

    Raises:
        SourceError: there is none, or they cannot be listed.
        StoreError: they cannot be listed, where a store has them.
    """
    known = await source.find()
    if not known:
        raise SourceError(f"no step index is in {name}: check the source, and that steps of this run were indexed")
    return known


async def load_steps(source: Source, wanted: Iterable[KnownStep]) -> AsyncGenerator[LoadedStep | BadStep, None]:
    """Read the indexes of these steps, some ahead, and give them in that order; a bad one does not hide the next."""
    todo = iter(wanted)
    ahead = deque((known, asyncio.create_task(_fetch(source, known))) for known in islice(todo, AHEAD))
    try:
        while ahead:
            known, task = ahead[0]
            fetched = await task
            ahead.popleft()
            ahead += [(later, asyncio.create_task(_fetch(source, later))) for later in islice(todo, 1)]
            yield _read(known, fetched) if isinstance(fetched, Fetched) else fetched  # one at a time: it may grow large
    finally:
        for _, task in ahead:
            task.cancel()


async def _fetch(source: Source, known: KnownStep) -> Fetched | BadStep:
    try:
        return await source.fetch(known)
    except (IndexFormatError, SourceError, StoreError) as error:
        return BadStep(known=known, reason=str(error))


def _read(known: KnownStep, fetched: Fetched) -> LoadedStep | BadStep:
    try:
        index = decode(fetched.data)
    except IndexFormatError as error:
        return BadStep(known=known, reason=str(error))
    if (index.phase, index.step) != (known.phase, known.step):
        return BadStep(known=known, reason=f"the index says that it is {index.phase} step {index.step}")
    return LoadedStep(known=known, data=fetched.data, index=index, references=fetched.references)
