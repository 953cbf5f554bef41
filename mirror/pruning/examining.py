"""The facts that decide if a record may go from disk: what lies there, its hashes, and those of the mirror's copies.

The mirror's receipt must speak of the very bytes on disk, hashed now, and the mirror must hold them: read back now, or
vouched for by a store that keeps our hash. Nothing is changed anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import stat
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from mirror.allowance import Allowance
from mirror.checking import check_copy
from mirror.config import MirrorConfig
from mirror.disk_check import hash_file
from mirror.errors import BadNameError
from mirror.judging import Finding, Standing
from mirror.looking import CHUNK, matcher
from mirror.names import KNOWN_KINDS, check_name, document_name, sidecar_name
from mirror.pruning.judging import (
    Keep,
    LocalFile,
    PruneRules,
    PruneStep,
    Reason,
    judge_age,
    judge_copies,
    judge_coverage,
    judge_hashes,
    judge_last_line,
    to_verify,
)
from mirror.receipts.ledger import DIRECTORY, Ledger, places, read_url, reading
from mirror.receipts.manifest import Manifest
from mirror.record import FileState, find_kinds, iter_batches, read_status
from mirror.reliable import ReliableStore
from mirror.stores.threads import DaemonThreads

T = TypeVar("T")

TICK_S = 0.5  # whoever waits for results hears at least so often that there are none yet


class Examiner:
    """Examines the records of one mirror, on an event loop."""

    def __init__(
        self,
        store: ReliableStore,
        manifest: Manifest,
        rules: PruneRules,
        config: MirrorConfig,
        place: str,
        threads: DaemonThreads,
    ) -> None:
        """Look at nothing yet; ``manifest`` holds the mirror's receipts, ``place`` is its name beside the records."""
        self._store = store
        self._manifest = manifest
        self._rules = rules
        self._place = place
        self._threads = threads
        self._workers = config.workers
        self._in_flight = Allowance(config.max_bytes_in_flight)
        self._wanted = matcher(rules.include)

    async def examine(self, directory: Path) -> AsyncGenerator[list[PruneStep], None]:
        """Yield what is to become of each finished record of a directory, a few at a time; at times none.

        Raises:
            OSError: the directory cannot be read.
        """
        now_s = time.time()
        checks: set[asyncio.Task[PruneStep | None]] = set()
        with contextlib.ExitStack() as stack:
            kinds = KNOWN_KINDS | await self._threads.run(find_kinds, directory)
            newest = await self._threads.run(_newest, directory, kinds, self._rules.keep_newest)
            own = await self._threads.run(stack.enter_context, reading(directory, self._place))
            others = await self._threads.run(_other_mirrors, directory, self._place, stack)
            try:
                async for documents in self._documents(directory, kinds):
                    stay = {
                        record_id: keep
                        for record_id, document in documents.items()
                        if (keep := judge_age(document, self._rules, now_s=now_s, newest=newest))
                    }
                    yield [
                        PruneStep(directory=directory, record_id=record_id, keep=keep)
                        for record_id, keep in stay.items()
                    ]
                    candidates = {name: state for name, state in documents.items() if name not in stay}
                    lacking = _lacking(others, candidates)
                    for record_id in candidates:
                        while len(checks) >= self._workers:
                            yield _present(await next_done(checks))
                        check = self._check_record(directory, record_id, kinds, own, lacking.get(record_id))
                        checks.add(asyncio.create_task(check))
                while checks:
                    yield _present(await next_done(checks))
            finally:
                for task in checks:
                    task.cancel()
                await asyncio.gather(*checks, return_exceptions=True)

    async def _documents(self, directory: Path, kinds: Collection[str]) -> AsyncIterator[dict[str, FileState]]:
        async for batch in self._threads.iterate(iter_batches(directory, CHUNK, but=kinds)):
            yield {record_id: state for record_id, state in batch.documents.items() if self._wanted(record_id)}

    async def _check_record(
        self, directory: Path, record_id: str, kinds: Collection[str], own: Ledger, lacking: str | None
    ) -> PruneStep | None:
        """Decide about one record; None: it is gone. ``lacking``: what is to be said of a mirror that lacks it."""
        files: tuple[LocalFile, ...] = ()
        findings: list[Finding] = []
        try:
            check_name(document_name(record_id))
            files = await self._threads.run(_look, directory, record_id, kinds)
            if not files:
                return None
            # After the look: what replaces the copy of these very files has withdrawn its receipt by now.
            await self._threads.run(own.refresh)
            reason = judge_last_line(own.last(record_id))
            if reason is None:
                reason, findings = await self._look_closely(directory, record_id, files, lacking)
        except BadNameError as error:
            reason = Keep.NO_RECEIPT, str(error)
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = Keep.FAILED, f"it cannot be read: {error.strerror or error}"
        keep, detail = reason or (None, "")
        return PruneStep(
            directory=directory,
            record_id=record_id,
            files=tuple(file.state for file in files),
            keep=keep,
            detail=detail,
            findings=tuple(findings),
        )

    async def _look_closely(
        self, directory: Path, record_id: str, files: Sequence[LocalFile], lacking: str | None
    ) -> tuple[Reason | None, list[Finding]]:
        """Look ever more closely until there is a reason to keep a record; also say what is wrong with its copy."""
        receipt = self._manifest.get(record_id)
        reason = judge_coverage(files, receipt, self._rules.discard)
        if receipt is None or reason is not None:
            return reason, []
        if lacking is not None:
            return (Keep.ELSEWHERE, lacking), []
        known = to_verify(files, receipt)
        digests = [await self._threads.run(hash_file, directory / file.name) for file in known]
        reason = judge_hashes(known, digests)
        if reason is not None:
            return reason, []
        verdicts = [await self._check_copy(file.name) for file in known]
        findings = [verdict for verdict in verdicts if isinstance(verdict, Finding)]
        return judge_copies(findings), findings

    async def _check_copy(self, name: str) -> Finding | Standing:
        expected = self._manifest.file(name)
        assert expected is not None  # noqa: S101 - the manifest has every file of the receipts that it has
        return await check_copy(self._store, expected, self._in_flight)


async def next_done(tasks: set[asyncio.Task[T]]) -> list[T]:
    """Wait for some of the tasks, take them out, and return their results; none if that takes more than TICK_S."""
    done, _ = await asyncio.wait(tasks, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
    tasks -= done
    return [task.result() for task in done]


def _present(steps: Sequence[PruneStep | None]) -> list[PruneStep]:
    return [step for step in steps if step is not None]


def _look(directory: Path, record_id: str, kinds: Collection[str]) -> tuple[LocalFile, ...]:
    """Return what lies under the names of a record, sidecars, then the document; nothing if there is no document."""
    names = [(sidecar_name(record_id, kind), kind) for kind in sorted(kinds)]
    found = [_local_file(directory, name, kind) for name, kind in names]
    document = _local_file(directory, document_name(record_id), None)
    return (*(file for file in found if file), document) if document else ()


def _local_file(directory: Path, name: str, kind: str | None) -> LocalFile | None:
    status = read_status(directory, name)
    if status is None:
        return None
    is_regular = stat.S_ISREG(status.st_mode)
    return LocalFile(state=FileState.of(name, status), kind=kind, is_regular=is_regular, links=status.st_nlink)


def _newest(directory: Path, kinds: Collection[str], count: int) -> frozenset[str]:
    """Return the names of the documents that were written last."""
    if not count:
        return frozenset()
    batches = iter_batches(directory, CHUNK, but=kinds)
    documents = ((state.ctime_ns, state.name) for batch in batches for state in batch.documents.values())
    return frozenset(name for _, name in heapq.nlargest(count, documents))


class _Other(NamedTuple):
    """Another mirror that records of a directory were copied to."""

    ledger: Ledger
    lacks: str  # what is to be said of a record that it does not have


def _other_mirrors(directory: Path, place: str, stack: contextlib.ExitStack) -> list[_Other]:
    """Read what the receipts beside the records say of every other mirror; the stack closes them.

    One that never got a record may be away since it was named: it is not told from a slip, whose user can give it up.
    """
    return [
        _Other(
            stack.enter_context(reading(directory, name)),
            f"another mirror of the directory, {(read_url(directory, name) or name).expandtabs(1)}, does not have it "
            f"as it is now (if that one is given up, delete {directory / DIRECTORY / name})",
        )
        for name in places(directory)
        if name != place
    ]


def _lacking(others: Sequence[_Other], documents: Mapping[str, FileState]) -> dict[str, str]:
    """Return the records that another mirror does not have, with what is to be said; it may leave kinds out."""
    lacking: dict[str, str] = {}
    for other in others:
        covered = other.ledger.covered(documents, None)
        lacking |= {record_id: other.lacks for record_id in documents if record_id not in covered}
    return lacking
