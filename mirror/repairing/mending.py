"""Applies a plan that may be hours old by now, while mirrors may be running.

A record on disk is copied as they copy it, and one of a second mirror only while the damage is the very one that the
plan saw. A file that is put back gets a new receipt, for the store gave it a new identity.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import xxhash

from mirror.address import record_host
from mirror.allowance import Allowance
from mirror.checking import check_copy
from mirror.config import MirrorConfig
from mirror.copying import Copier, copy_record
from mirror.errors import MirrorError, RecordChangedError, RecordError
from mirror.judging import Finding, judge
from mirror.names import document_name, parse_name
from mirror.receipts.ledger import Ledger
from mirror.receipts.manifest import Manifest
from mirror.receipts.receipt import FileReceipt, Receipt, encode_line, following
from mirror.receipts.segments import SegmentReader, SegmentWriter, make_writer_id
from mirror.record import find_kinds
from mirror.record_directory import RecordReceipts
from mirror.reliable import ReliableStore
from mirror.repairing.doubtful import DoubtfulReceipts
from mirror.repairing.plan import RepairResult, RepairStep
from mirror.sharing import Shared
from mirror.store import read_whole
from mirror.stores.threads import DaemonThreads

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 30  # of a file that is copied from a second mirror; it is held in memory


class _Directory(NamedTuple):
    """A record directory's receipts, and what reads those that other mirrors have added."""

    ledger: Ledger
    others: Shared


class Mender:
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
        """Write nothing yet; ``manifest`` and ``elsewhere`` are the receipts that the plan was made from."""
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
            self._copier.threads.close()
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
        doubtful = DoubtfulReceipts(receipts, self._copier.writer, known, frozenset(step.names))
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
