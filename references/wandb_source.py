"""The step indexes that W&B has, as versions of a run's artifact: of each only ``step.json`` is downloaded.

Whatever is asked of W&B's client runs on a few daemon threads, for it blocks. What an artifact says is not trusted:
``step.json`` must be a file that W&B itself keeps, of a size that a step can have.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from mirror.stores.threads import DaemonThreads
from mirror.stores.translate import raise_alone
from references.artifact import STEP_FILE
from references.artifact_name import ARTIFACT_TYPE
from references.codec import MAX_BYTES
from references.errors import IndexFormatError, ReferencesError, SourceError
from references.reference import Reference
from references.source import AHEAD, ArtifactRef, Fetched, KnownStep
from references.versions import Version, newest_versions
from references.wandb_client import ASK_TIMEOUT_S, INDEX_HASH, in_words

if TYPE_CHECKING:
    import wandb

logger = logging.getLogger(__name__)
T = TypeVar("T")

MAX_VERSIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class _Listed:
    version: Version
    artifact: wandb.Artifact


class WandbSource:
    """The versions of one artifact."""

    def __init__(self, ref: ArtifactRef, *, timeout_s: float) -> None:
        """Ask nothing yet; ``timeout_s``: for one ``step.json``, for which W&B's client would try half an hour."""
        self._ref = ref
        self._timeout_s = timeout_s
        self._threads = DaemonThreads(AHEAD, "record-mirror-artifacts")
        self._artifacts: dict[str, wandb.Artifact] = {}  # by origin, of the versions that count

    async def find(self) -> list[KnownStep]:
        """List the versions, and choose the newest of each step; see ``references.source.Source``."""
        listed = await self._threads.run(_asked, self._ref, lambda: list(_list(self._ref)))
        artifacts = {one.version.number: one.artifact for one in listed}
        steps: list[KnownStep] = []
        for step, newest in newest_versions(one.version for one in listed).items():
            known = KnownStep(
                phase=self._ref.phase,
                step=step,
                origin=f"v{newest.number}",
                contents=newest.contents,
                is_left_behind=newest.is_left_behind,
            )
            self._artifacts[known.origin] = artifacts[newest.number]
            steps.append(known)
        return steps

    async def fetch(self, known: KnownStep) -> Fetched:
        """Download one ``step.json``; see ``references.source.Source``."""
        artifact = self._artifacts[known.origin]
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._threads.run(_asked, self._ref, lambda: _download(artifact))
        except TimeoutError:
            raise SourceError(
                f"W&B did not give {STEP_FILE} of {self._ref.path}:{known.origin} within {self._timeout_s:g} s: "
                "try again, with a longer timeout if it is large"
            ) from None

    def close(self) -> None:
        """Let the threads end."""
        self._threads.close()


def _asked(ref: ArtifactRef, call: Callable[[], T]) -> T:
    """Ask W&B's client, whose errors have no common base."""
    try:
        return call()
    except ReferencesError:
        raise
    except Exception as error:  # noqa: BLE001 - see above; an error of ours is raised in its place
        raise_alone(
            SourceError(
                f"W&B does not give {ref.path}{f':{ref.alias}' if ref.alias else ''} ({in_words(error)}): "
                "check its name, and that you are logged in and may read it"
            )
        )


def _list(ref: ArtifactRef) -> Iterator[_Listed]:
    import wandb  # noqa: PLC0415 - heavy, and only where W&B is asked

    api = wandb.Api(timeout=ASK_TIMEOUT_S)
    if ref.alias is not None:
        found = iter([api.artifact(f"{ref.path}:{ref.alias}", type=ARTIFACT_TYPE)])
    else:
        found = iter(api.artifacts(ARTIFACT_TYPE, ref.path))
    for artifact in islice(found, MAX_VERSIONS):
        version = _describe(str(artifact.version), artifact.metadata)
        if version is None:
            logger.warning("passed over %s of %s: its metadata has no global_step", artifact.version, ref.path)
        else:
            yield _Listed(version, artifact)
    if next(found, None) is not None:
        raise SourceError(f"{ref.path} has more than {MAX_VERSIONS} versions: this is no run's artifact")


def _describe(version: str, metadata: Mapping[str, Any]) -> Version | None:
    step, content = metadata.get("global_step"), metadata.get(INDEX_HASH)
    number = version.removeprefix("v")
    if isinstance(step, bool) or not isinstance(step, int) or step < 0 or not number.isdecimal():
        return None
    return Version(number=int(number), step=step, content=content if isinstance(content, str) else None)


def _download(artifact: wandb.Artifact) -> Fetched:
    try:
        entry = artifact.get_entry(STEP_FILE)
    except KeyError:
        raise IndexFormatError(f"{artifact.version} has no {STEP_FILE}") from None
    if entry.ref is not None:
        raise IndexFormatError(f"{STEP_FILE} of {artifact.version} is not kept by W&B but a reference: not followed")
    if (entry.size or 0) > MAX_BYTES:
        raise IndexFormatError(f"the step index has {entry.size} bytes, more than the {MAX_BYTES} that are read")
    with TemporaryDirectory(prefix="record-mirror-") as folder:
        entry.download(root=folder)
        data = _read(Path(folder, STEP_FILE))
    return Fetched(data=data, references=tuple(_references(artifact)))


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_BYTES + 1)  # one more than is taken, so that a longer one is refused


def _references(artifact: wandb.Artifact) -> Iterator[Reference]:
    for path, entry in artifact.manifest.entries.items():
        if entry.ref is not None:
            extra = {str(name): str(value) for name, value in entry.extra.items()}
            yield Reference(
                path=str(path),
                uri=str(entry.ref),
                digest=str(entry.digest),
                size_bytes=entry.size if entry.size is not None else -1,
                extra=extra,
            )
