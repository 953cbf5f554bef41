"""What names a run: a mirror's URL, or an artifact in W&B; and its steps, read ahead and in order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mirror import ConfigError as MirrorConfigError
from mirror import StoreError
from mirror.errors import NotFoundError
from mirror.location import Location
from references.codec import encode
from references.errors import ConfigError, SourceError
from references.run_index import StepIndex
from references.source import AHEAD, ArtifactRef, BadStep, Fetched, KnownStep, LoadedStep, load_steps, parse_source


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        (
            "team/proj/skycap-records-train-8xk2",
            ArtifactRef(path="team/proj/skycap-records-train-8xk2", phase="train", alias=None),
        ),
        (
            "team/my proj/skycap-records-eval-a.b_c-1:eval-step-7",
            ArtifactRef(path="team/my proj/skycap-records-eval-a.b_c-1", phase="eval", alias="eval-step-7"),
        ),
        (
            "team/proj/skycap-records-train-skycap-records-eval-x:v3",
            ArtifactRef(path="team/proj/skycap-records-train-skycap-records-eval-x", phase="train", alias="v3"),
        ),
    ],
)
def test_an_artifact_is_told_by_its_name(text: str, ref: ArtifactRef) -> None:
    """Entity, project, the name that a run's steps have, and perhaps an alias or a version."""
    assert parse_source(text) == ref


@pytest.mark.parametrize(
    ("text", "protocol"),
    [
        ("s3://bucket/skycap-records-train-x", "s3"),
        ("gs://bucket/run", "gs"),
        ("/data/team/skycap-records-train-x", "file"),
        ("./team/proj/skycap-records-train-x", "file"),
        ("../proj/skycap-records-train-x", "file"),
        ("~/proj/skycap-records-train-x", "file"),
        (Path("team/proj/skycap-records-train-x"), "file"),
    ],
)
def test_anything_else_is_a_mirror(text: str | Path, protocol: str) -> None:
    """URLs and paths; one that looks like an artifact can be given as ``./...`` or as a Path."""
    parsed = parse_source(text)
    assert isinstance(parsed, Location)
    assert parsed.protocol == protocol


@pytest.mark.parametrize(
    "text", ["proj/skycap-records-train-x", "skycap-records-train-x", "skycap-records-train-x:latest"]
)
def test_an_incomplete_artifact_is_refused(text: str) -> None:
    """It would be taken for a relative path otherwise; the sentence says how it is written."""
    with pytest.raises(ConfigError, match="write entity/project/skycap-records-train-<run id>"):
        parse_source(text)


@pytest.mark.parametrize("text", ["", "zip://x::s3://bucket/run", "simplecache::s3://bucket/run"])
def test_a_url_that_no_mirror_has_is_refused(text: str) -> None:
    """Chained protocols and empty ones, as everywhere."""
    with pytest.raises(MirrorConfigError):
        parse_source(text)


@dataclass
class ScriptedSource:
    """Gives steps, or errors for some of them, and counts how many it was asked for."""

    errors: dict[int, Exception] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    async def find(self) -> list[KnownStep]:
        return [KnownStep(phase="train", step=step, origin=f"v{step}") for step in range(10)]

    async def fetch(self, known: KnownStep) -> Fetched:
        self.asked.append(known.step)
        for _ in range(10 - known.step):  # later ones answer sooner
            await asyncio.sleep(0)
        if known.step in self.errors:
            raise self.errors[known.step]
        return Fetched(data=encode(StepIndex(run="r", phase="train", step=known.step, rows=())))


def loaded(source: ScriptedSource) -> list[LoadedStep | BadStep]:
    """Return all steps as they are given."""

    async def load() -> list[LoadedStep | BadStep]:
        return [step async for step in load_steps(source, await source.find())]

    return asyncio.run(load())


def test_steps_come_in_order() -> None:
    """Whichever was read first."""
    assert [step.known.step for step in loaded(ScriptedSource())] == list(range(10))


@pytest.mark.parametrize(
    "error", [SourceError("W&B says no"), StoreError("get", "k", "no"), NotFoundError("get", "k", "gone")]
)
def test_a_step_that_cannot_be_read_hides_no_other(error: Exception) -> None:
    """It comes in its place, with the reason."""
    steps = loaded(ScriptedSource(errors={3: error}))
    assert [step.known.step for step in steps if isinstance(step, BadStep)] == [3]
    assert [step.reason for step in steps if isinstance(step, BadStep)] == [str(error)]
    assert len(steps) == 10


def test_a_bug_is_not_a_bad_step() -> None:
    """It is raised."""
    with pytest.raises(ZeroDivisionError):
        loaded(ScriptedSource(errors={3: ZeroDivisionError()}))


def test_few_steps_are_read_ahead() -> None:
    """However long the run: what waits to be taken is bounded."""
    source = ScriptedSource()

    async def take_one() -> None:
        steps = load_steps(source, await source.find())
        await anext(steps)
        await asyncio.sleep(0)
        assert len(source.asked) <= AHEAD + 1
        await steps.aclose()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(source.asked) <= AHEAD + 1

    asyncio.run(take_one())
