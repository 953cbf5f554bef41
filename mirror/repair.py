"""Mend what a verification found: plan, then apply. Only damage is sent, from the records on disk or a second mirror.

What could not be checked is left alone. A file that is put back gets a new receipt, for the store gave it a new
identity. A plan may be hours old when it is confirmed, and mirrors may be running: a record on disk is copied as they
copy it, and one of a second mirror only while the damage is the very one that the plan saw.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import xxhash

from mirror.address import record_host
from mirror.allowance import Allowance
from mirror.checking import check_copy
from mirror.config import MirrorConfig
from mirror.connecting import connect
from mirror.copying import Copier, copy_record
from mirror.errors import ConfigError, MirrorError, RecordChangedError, RecordError
from mirror.judging import Finding, FindingKind, judge
from mirror.location import parse_location
from mirror.loop import run_in_loop
from mirror.names import document_name, parse_name
from mirror.place import place_id
from mirror.receipts.ledger import Ledger
from mirror.receipts.manifest import Manifest
from mirror.receipts.receipt import FileReceipt, Receipt, encode_line, following
from mirror.receipts.segments import SegmentReader, SegmentWriter, make_writer_id
from mirror.record import find_kinds, read_state
from mirror.record_directory import RecordReceipts
from mirror.reliable import ReliableStore
from mirror.sharing import Shared
from mirror.store import read_whole
from mirror.stores.threads import DaemonThreads
from mirror.verify import GRACE_S, Progress, Verification, Verifier, VerifyLevel

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 30  # of a file that is copied from a second mirror; it is held in memory
_REPAIRABLE = frozenset(FindingKind) - {FindingKind.UNCHECKED, FindingKind.LOST}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """One record to mend."""

    record_id: str
    names: tuple[str, ...]  # of the damaged files
    directory: Path | None  # where the record lies; None: the second mirror has it


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """What a repair would do."""

    steps: tuple[RepairStep, ...]
    hopeless: tuple[Finding, ...]  # no source has them
    verification: Verification


@dataclass(slots=True, kw_only=True)
class RepairResult:
    """What a repair did."""

    plan: RepairPlan
    restored_files: int = 0
    restored_bytes: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # record id -> why


def plan_repair(
    verification: Verification,
    directories: Iterable[Path],
    has_file: Callable[[Path, str], bool],
    elsewhere: Manifest | None,
) -> RepairPlan:
    """Decide from findings what to send from where.

    A record's source is the one that has the most of its damaged files, of several the first directory; a directory
    is none without the document. What the source has not is hopeless.
    """
    places = list(directories)
    damaged: dict[str, list[Finding]] = {}
    for finding in verification.findings:
        if finding.kind in _REPAIRABLE:
            damaged.setdefault(finding.record_id, []).append(finding)
    steps: list[RepairStep] = []
    hopeless: list[Finding] = []
    for record_id, findings in sorted(damaged.items()):
        names = [finding.name for finding in findings]
        sources: list[tuple[Path | None, tuple[str, ...]]] = [
            (place, tuple(name for name in names if has_file(place, name)))
            for place in places
            if has_file(place, document_name(record_id))
        ]
        second = elsewhere.get(record_id) if elsewhere else None
        if second is not None:
            sources.append((None, tuple(name for name in names if second.file(name))))
        directory, found = max(sources, key=lambda source: len(source[1]), default=(None, ()))
        if found:
            steps.append(RepairStep(record_id=record_id, names=found, directory=directory))
        hopeless += [finding for finding in findings if finding.name not in found]
    return RepairPlan(steps=tuple(steps), hopeless=tuple(hopeless), verification=verification)


def repair(
    url: str | os.PathLike[str],
    record_dirs: Iterable[str | os.PathLike[str]] = (),
    *,
    source_url: str | os.PathLike[str] | None = None,
    config: MirrorConfig | None = None,
    level: VerifyLevel | None = None,
    confirm: Callable[[RepairPlan], bool] = lambda _plan: True,
    progress: Progress | None = None,
    grace_s: float = GRACE_S,
) -> RepairResult:
    """Verify a mirror, then put back what is damaged.

    Args:
        url: the mirror to mend.
        record_dirs: directories that hold its records.
        source_url: a second mirror of them, opened with the same settings.
        config: settings.
        level: how closely to look for damage.
        confirm: shown the plan; False leaves everything as it is.
        progress: called now and then while looking.
        grace_s: as for ``verify``.

    Raises:
        StoreError: the mirror could not be verified.
        ConfigError: a setting is wrong, or no source is given.
    """
    settings = config or MirrorConfig()
    directories = [Path(directory).absolute() for directory in record_dirs]
    if not directories and source_url is None:
        raise ConfigError("a repair needs a source: give the record directories, or a second mirror")

    async def work() -> RepairResult:
        location = parse_location(url)
        store = connect(location, settings)
        source = connect(parse_location(source_url), settings) if source_url is not None else None
        manifest, elsewhere = Manifest(), Manifest() if source else None
        try:
            verifier = Verifier(store, manifest, level or VerifyLevel(), settings, progress)
            verification = await verifier.run(directories, grace_s=grace_s)
            if source is not None and elsewhere is not None:
                await elsewhere.read(SegmentReader(source).read())
            excluded = frozenset(settings.exclude)
            plan = plan_repair(
                verification, directories, lambda place, name: _has_file(place, name, excluded), elsewhere
            )
            result = RepairResult(plan=plan)
            if plan.steps and confirm(plan):
                place = place_id(location, settings.storage_options)
                mender = _Mender(store, source, manifest, elsewhere, place, location.shown, settings, result)
                await mender.apply(plan.steps)
            return result
        finally:
            for manifest_or_none in (manifest, elsewhere):
                if manifest_or_none is not None:
                    manifest_or_none.close()
            for store_or_none in (store, source):
                if store_or_none is not None:
                    await store_or_none.aclose()

    return run_in_loop(work())


class _Mender:
    """Applies steps, a bounded number at a time."""

    def __init__(
        self,
        store: ReliableStore,
        source: ReliableStore | None,
        manifest: Manifest,
        elsewhere: Manifest | None,
        place: str,
        url: str,
        config: MirrorConfig,
        result: RepairResult,
    ) -> None:
        self._store = store
        self._source = source
        self._manifest = manifest
        self._elsewhere = elsewhere
        self._place = place
        self._url = url
        self._workers = config.workers
        self._result = result
        self._copier = Copier(
            store=store,
            in_flight=Allowance(config.max_bytes_in_flight),
            exclude=frozenset(config.exclude),
            writer=make_writer_id(),
            host=record_host(None, config.host),
        )
        self._segments = SegmentWriter(store, self._copier.writer)
        self._threads = DaemonThreads(1, "record-mirror-repair")
        self._directories: dict[Path, _Directory] = {}
        self._kinds: dict[Path, set[str]] = {}
        self._findings = {finding.name: finding for finding in result.plan.verification.findings}
        self._news = Manifest()  # the mirror's receipts as they are by now
        reader = SegmentReader(store)
        self._reading = Shared(lambda: self._news.read(reader.read()))

    async def apply(self, steps: Iterable[RepairStep]) -> None:
        """Take every step; a record that cannot be mended is noted, and the next one goes on."""
        queue = iter(steps)

        async def work() -> None:
            for step in queue:
                try:
                    await self._take(step)
                except (MirrorError, OSError) as error:
                    logger.error("could not repair %s: %s", step.record_id, error)  # noqa: TRY400 - the sentence is enough
                    self._result.failed[step.record_id] = str(error)

        try:
            await asyncio.gather(*(work() for _ in range(self._workers)))
            await self._segments.flush()
        finally:
            for directory in self._directories.values():
                directory.ledger.close()
            self._threads.close()
            self._news.close()

    async def _take(self, step: RepairStep) -> None:
        if step.directory is None:
            await self._from_mirror(step)
        else:
            await self._from_disk(step, step.directory)

    async def _from_disk(self, step: RepairStep, directory: Path) -> None:
        if directory not in self._directories:
            ledger = Ledger(directory, self._place, self._copier.writer, url=self._url)
            self._directories[directory] = _Directory(ledger, Shared(lambda: self._threads.run(ledger.refresh)))
            self._kinds[directory] = find_kinds(directory)
        known = self._manifest.get(step.record_id)
        damaged = {parsed.kind for name in step.names if (parsed := parse_name(name))}
        left_out = set(known.excluded if known else ()) - damaged  # by whoever copied it: a repair adds nothing
        copier = dataclasses.replace(self._copier, exclude=self._copier.exclude | left_out)
        receipts = RecordReceipts(*self._directories[directory], step.record_id)
        doubtful = _Doubtful(receipts, self._copier.writer, known, frozenset(step.names))
        copied = await copy_record(copier, directory, step.record_id, kinds=self._kinds[directory], receipts=doubtful)
        receipt = following(doubtful.agreed, doubtful.without_doubt(copied.receipt))
        line, mark = self._directories[directory].ledger.append(receipt)
        self._segments.add(line, mark)
        self._result.restored_files += copied.sent_files
        self._result.restored_bytes += copied.sent_bytes

    async def _from_mirror(self, step: RepairStep) -> None:
        """Copy the damaged files from the second mirror, sidecars first, each against its receipt's hash."""
        source, wanted = self._source, self._elsewhere.get(step.record_id) if self._elsewhere else None
        if source is None or wanted is None:
            raise RecordError(f"no source has {step.record_id}")
        known = self._manifest.get(step.record_id)
        files: list[FileReceipt] = []
        for file in sorted(wanted.files, key=lambda file: file.name == document_name(step.record_id)):
            kept = known.file(file.name) if known and file.name not in step.names else None
            if kept is not None and kept.xxh3_128 == file.xxh3_128:
                files.append(kept)
                continue
            async with self._copier.in_flight.take(file.size):
                data = await source.repeat(lambda name=file.name: read_whole(source, name, max_bytes=MAX_FILE_BYTES))  # type: ignore[misc] # mypy infers no lambda with a default
                if xxhash.xxh3_128_hexdigest(data) != file.xxh3_128:
                    raise RecordError(f"{file.name} is damaged in the second mirror too")
                await self._check_still_as_planned(known, step.record_id, file.name)
                stored = await self._copier.store.put(file.name, data, file.xxh3_128)
            files.append(dataclasses.replace(file, etag=stored.etag, version_id=stored.version_id, md5=stored.md5))
            self._result.restored_files += 1
            self._result.restored_bytes += file.size
        receipt = dataclasses.replace(wanted, at=time.time(), writer=self._copier.writer, files=tuple(files))
        self._segments.add(encode_line(following(known, receipt)), None)

    async def _check_still_as_planned(self, known: Receipt | None, record_id: str, name: str) -> None:
        """Look once more at a file and its receipt, right before it is replaced.

        Raises:
            RecordChangedError: somebody has copied the record since the plan was made.
            StoreError: the mirror could not be asked.
        """
        await self._reading.anew()
        is_same = self._news.get(record_id) == known
        expected = self._manifest.file(name)
        if is_same and expected is not None:
            found = await self._store.stat(name)
            verdict, planned = judge(expected, found), self._findings.get(name)
            if planned is None:
                is_same = not isinstance(verdict, Finding)
            elif verdict != planned:  # it takes the hash to see it
                alone = Allowance(1)  # the file that is about to replace it holds its bytes already
                is_same = await check_copy(self._store, expected, alone, found) == planned
        if not is_same:
            raise RecordChangedError(
                f"{name} was changed in the mirror meanwhile, and is left alone: repair again if it is still damaged"
            )


class _Directory(NamedTuple):
    """A record directory's receipts, and what reads those that other mirrors have added."""

    ledger: Ledger
    others: Shared


class _Doubtful:
    """The receipts of a record on disk, of which a copy is to believe only what the plan knew and found intact.

    A file that is not believed has a size that none has: it is sent, and its receipt is withdrawn before.
    """

    def __init__(self, receipts: RecordReceipts, writer: str, planned: Receipt | None, damaged: frozenset[str]) -> None:
        self._receipts = receipts
        self._writer = writer
        self._planned = planned
        self._damaged = damaged
        self.agreed = planned  # as far as the newest line of others says the same, damaged files included

    async def latest(self) -> Receipt | None:
        """Return the newest line of any mirror when this is called, with its doubtful files marked."""
        line = await self._receipts.latest()
        if line is None:
            return None
        if self._planned is not None and line.writer != self._writer:
            files = tuple(file for file in self._planned.files if _says(line, file))
            self.agreed = dataclasses.replace(self._planned, files=files)
        files = tuple(file if self._is_intact(file) else _marked(file) for file in line.files)
        return dataclasses.replace(line, files=files)

    def withdraw(self, line: Receipt) -> Receipt:
        """Let no receipt that is known speak for the record any more."""
        return self._receipts.withdraw(line)

    def without_doubt(self, receipt: Receipt) -> Receipt:
        """Return a copy's receipt without the marked files: they were not sent."""
        return dataclasses.replace(receipt, files=tuple(file for file in receipt.files if file.size >= 0))

    def _is_intact(self, file: FileReceipt) -> bool:
        return file.name not in self._damaged and self._planned is not None and _says(self._planned, file)


def _says(receipt: Receipt, file: FileReceipt) -> bool:
    same = receipt.file(file.name)
    return same is not None and same.xxh3_128 == file.xxh3_128


def _marked(file: FileReceipt) -> FileReceipt:
    return dataclasses.replace(file, size=-1)


def _has_file(directory: Path, name: str, excluded: Collection[str]) -> bool:
    parsed = parse_name(name)
    return parsed is not None and parsed.kind not in excluded and read_state(directory, name) is not None
