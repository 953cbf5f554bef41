"""Is the mirror whole? Receipts against the store's listing, hashes as far as asked for, and the records on disk.

Nothing is changed. A file is *present* when its size and the store's identity match its receipt, *intact* when its hash
does; what could not be checked is said to be so, and is neither.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mirror.allowance import Allowance
from mirror.checking import ask_store, check_copy
from mirror.config import MirrorConfig
from mirror.connecting import connect
from mirror.disk_check import check_directory
from mirror.errors import BadNameError, EmptyMirrorError, StoreError
from mirror.judging import Finding, FindingKind, Pair, Pairing, Standing, judge, unchecked
from mirror.listing import FIRST_RANGE, KeyRange, OutOfOrderError, files_in_a_range, list_ranges, ranges_between
from mirror.location import parse_location
from mirror.loop import run_in_loop
from mirror.names import check_name, document_name, parse_name
from mirror.receipts.manifest import ExpectedFile, Manifest
from mirror.receipts.segments import SegmentReader
from mirror.reliable import ReliableStore
from mirror.store import PAGE, ObjectInfo
from mirror.stores.opening import check_settings

GRACE_S = 4.0  # a record may be in the mirror this long before its receipt is
_EXPLICABLE = {FindingKind.CHANGED, FindingKind.WRONG_SIZE}  # by such a receipt, where the record was written again


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyLevel:
    """How closely to look: a listing always; beyond it, hashes.

    ``read_back``: the share of files, 0 to 1, that are read and hashed; ``ask_store``: ask the store for the hash that
    it keeps of each file, where it keeps ours.
    """

    read_back: float = 0.0
    ask_store: bool = False
    seed: int = 0  # of the sample


@dataclass(slots=True, kw_only=True)
class Verification:
    """What a verification found, and how much of the mirror it looked at."""

    records: int = 0  # that have a receipt
    files: int = 0  # that receipts name
    size_bytes: int = 0  # of those files
    present: int = 0  # files whose size and identity are right, and whose hash was not asked for
    by_size: int = 0  # of those present: files that have no identity in the store, such as an ETag
    intact: int = 0  # files whose hash is right
    foreign: int = 0  # objects that are no record's files
    is_empty: bool = False  # there are neither receipts nor record files
    findings: list[Finding] = field(default_factory=list)

    @property
    def counts(self) -> Counter[FindingKind]:
        """How many findings there are of each kind."""
        return Counter(finding.kind for finding in self.findings)

    @property
    def damage(self) -> int:
        """How many findings say that something is wrong."""
        return sum(finding.is_damage for finding in self.findings)

    @property
    def unchecked(self) -> int:
        """How many files could not be checked."""
        return len(self.findings) - self.damage


Progress = Callable[[Verification], None]


def verify(
    url: str | os.PathLike[str],
    record_dirs: Iterable[str | os.PathLike[str]] = (),
    *,
    config: MirrorConfig | None = None,
    level: VerifyLevel | None = None,
    progress: Progress | None = None,
    grace_s: float = GRACE_S,
) -> Verification:
    """Compare a mirror with its receipts and, where given, with the record directories that it is a copy of.

    Args:
        url: the mirror.
        record_dirs: directories whose finished records must all be in the mirror.
        config: settings, of which the storage options, workers, bytes in flight, timeout and attempts matter.
        level: how closely to look.
        progress: called now and then with what is known so far.
        grace_s: how long to wait for the receipts of records that are being copied just now, in seconds.

    Raises:
        StoreError: the store could not be listed, or its receipts not read: nothing is known.
        EmptyMirrorError: there is no mirror.
        OSError: a record directory cannot be read.
        ConfigError: a setting is wrong.
    """
    settings = config or MirrorConfig()
    directories = [Path(directory).absolute() for directory in record_dirs]
    location = parse_location(url)
    check_settings(location, settings)

    async def work() -> Verification:
        store = connect(location, settings)
        manifest = Manifest()
        try:
            verifier = Verifier(store, manifest, level or VerifyLevel(), settings, progress)
            result = await verifier.run(directories, grace_s=grace_s)
            if result.is_empty:
                raise EmptyMirrorError(location.shown)
            return result
        finally:
            manifest.close()
            await store.aclose()

    return run_in_loop(work())


class Verifier:
    """One verification of a mirror, on an event loop; the manifest is filled by it."""

    def __init__(
        self,
        store: ReliableStore,
        manifest: Manifest,
        level: VerifyLevel,
        config: MirrorConfig,
        progress: Progress | None = None,
    ) -> None:
        """Read nothing yet."""
        self._store = store
        self._manifest = manifest
        self._level = level
        self._workers = config.workers
        self._in_flight = Allowance(config.max_bytes_in_flight)
        self._progress = progress
        self._reader = SegmentReader(store)
        self._result = Verification()
        self._strays: dict[str, ObjectInfo] = {}  # record files that no receipt names, by name

    async def run(self, directories: Iterable[Path] = (), *, grace_s: float = GRACE_S) -> Verification:
        """Look at everything.

        Raises:
            StoreError: the store could not be listed, or its receipts not read.
            OSError: a record directory cannot be read.
        """
        result = self._result
        await self._manifest.read(self._reader.read())
        await self._compare_listing()
        await self._compare_misplaced()
        if self._strays or any(finding.kind in _EXPLICABLE for finding in result.findings):
            await asyncio.sleep(grace_s)
        await self._look_again()
        result.records = len(self._manifest)
        result.is_empty = not (result.records or self._strays)
        result.findings += self._judge_strays()
        for directory in directories:
            known = {finding.name for finding in result.findings}
            async for finding in check_directory(directory, self._manifest):
                if finding.name not in known:
                    result.findings.append(finding)
        result.findings.sort(key=lambda finding: finding.name.encode())
        return result

    async def _compare_listing(self) -> None:
        if self._store.lists_by_range:
            try:
                files = self._manifest.count_files()
                bounds = self._manifest.every(files_in_a_range(files), first=FIRST_RANGE) if files > PAGE else []
                await self._compare_all(self._pairs(ranges_between(bounds)))
            except OutOfOrderError:  # a bucket whose keys are in no order
                self._result, self._strays = Verification(), {}
            else:
                return
        await self._compare_all(self._pairs([KeyRange()]))

    async def _compare_misplaced(self) -> None:
        """Compare what a store that lists in no order made seem missing and without a receipt at once."""
        misplaced = [(file, found) for name, found in self._strays.items() if (file := self._manifest.file(name))]
        if not misplaced:
            return
        names = {expected.name for expected, _ in misplaced}
        self._strays = {name: found for name, found in self._strays.items() if name not in names}
        self._result.findings = [finding for finding in self._result.findings if finding.name not in names]
        self._result.files -= len(misplaced)
        self._result.size_bytes -= sum(expected.size_bytes for expected, _ in misplaced)

        async def pairs() -> AsyncIterator[Iterable[Pair]]:
            yield misplaced

        await self._compare_all(pairs())

    async def _compare_all(self, pages: AsyncIterator[Iterable[Pair]]) -> None:
        checks: set[asyncio.Task[None]] = set()
        nearest: tuple[float, ExpectedFile, ObjectInfo] | None = None  # to being in the sample
        any_read = False
        try:
            async for page in pages:
                for expected, found in self._right_by_listing(page):
                    drawn = self._draw(expected.name)
                    if self._level.ask_store or drawn < self._level.read_back:
                        any_read = True
                        while len(checks) >= self._workers:
                            done, checks = await asyncio.wait(checks, return_when=asyncio.FIRST_COMPLETED)
                            _raise_first(done)
                        checks.add(asyncio.create_task(self._check(expected, found)))
                    else:
                        self._note_present(found, 1)
                        if nearest is None or drawn < nearest[0]:
                            nearest = drawn, expected, found
            if self._level.read_back and not any_read and nearest is not None:  # a sample is never empty
                self._note_present(nearest[2], -1)
                checks.add(asyncio.create_task(self._check(nearest[1], nearest[2])))
            if checks:
                done, checks = await asyncio.wait(checks)
                _raise_first(done)
        finally:
            for task in checks:
                task.cancel()

    def _right_by_listing(self, page: Iterable[Pair]) -> Iterator[tuple[ExpectedFile, ObjectInfo]]:
        """Note what the listing decides, and yield the files whose hash may be wanted too."""
        is_enough = not (self._level.ask_store or self._level.read_back)
        for expected, found in page:
            if expected is None:
                if found is not None:
                    self._note_stray(found)
                continue
            self._result.files += 1
            self._result.size_bytes += expected.size_bytes
            verdict = judge(expected, found)
            if verdict is not Standing.PRESENT or found is None:  # the latter for the type alone
                self._note(verdict, found)
            elif is_enough:
                self._note_present(found, 1)
            else:
                yield expected, found

    async def _pairs(self, ranges: Sequence[KeyRange]) -> AsyncIterator[Iterable[Pair]]:
        pairings = {keys: Pairing(self._manifest.files(keys.after, keys.until)) for keys in ranges}
        async for keys, page in list_ranges(self._store, ranges):
            if page is None:
                yield pairings.pop(keys).rest()
            else:
                yield pairings[keys].page(found for found in page if "/" not in found.key)  # not receipts, nor indexes
            if self._progress:
                self._progress(self._result)

    def _draw(self, name: str) -> float:
        """Return a number from 0 to 1, without 1, that is the same for a file whenever the seed is."""
        drawn = hashlib.blake2b(f"{self._level.seed}:{name}".encode(), digest_size=6).digest()
        return int.from_bytes(drawn) / 2**48

    async def _check(self, expected: ExpectedFile, found: ObjectInfo) -> None:
        if self._level.ask_store:
            self._note(await ask_store(self._store, expected))
        else:
            self._note(await check_copy(self._store, expected, self._in_flight, found))
        if self._progress:
            self._progress(self._result)

    def _note(self, verdict: Finding | Standing, found: ObjectInfo | None = None) -> None:
        if verdict is Standing.PRESENT:
            self._note_present(found, 1)
        elif verdict is Standing.INTACT:
            self._result.intact += 1
        else:
            assert isinstance(verdict, Finding)  # noqa: S101 - the only other
            self._result.findings.append(verdict)

    def _note_present(self, found: ObjectInfo | None, count: int) -> None:
        self._result.present += count
        if found is None or not (found.etag or found.version_id):
            self._result.by_size += count

    def _note_stray(self, found: ObjectInfo) -> None:
        try:
            is_ours = parse_name(check_name(found.key)) is not None
        except BadNameError:
            is_ours = False
        if is_ours:
            self._strays[found.key] = found
        else:
            self._result.foreign += 1

    async def _look_again(self) -> None:
        """Judge anew what is explained by receipts that were written while we looked."""
        if not self._result.findings and not self._strays:
            return
        changed: set[str] = set()
        await self._manifest.read(self._reader.read(), changed)
        if not changed:
            return
        names = {finding.name for finding in self._result.findings if finding.record_id in changed}
        self._result.findings = [finding for finding in self._result.findings if finding.record_id not in changed]
        for name in sorted(names | {stray for stray in self._strays if self._manifest.file(stray)}):
            expected = self._manifest.file(name)
            if expected is None:
                continue
            if name not in names:
                self._result.files += 1
                self._result.size_bytes += expected.size_bytes
            try:
                found = await self._store.stat(name)
                self._note(judge(expected, found), found)
            except StoreError as error:
                self._note(unchecked(name, expected.record_id, error))
        self._strays = {name: found for name, found in self._strays.items() if self._manifest.file(name) is None}

    def _judge_strays(self) -> list[Finding]:
        findings = []
        for name in self._strays:
            parsed = parse_name(name)
            if parsed is None:
                continue
            document = document_name(parsed.record_id)
            if document in self._strays or self._manifest.file(document) is not None:
                kind, detail = FindingKind.NO_RECEIPT, "it is in the mirror, and no receipt proves what it should be"
                detail += ": repair it from its record directory, or delete it"
            else:
                kind, detail = FindingKind.NO_DOCUMENT, f"it is a sidecar, and {document} is not in the mirror"
                detail += ": repair that from its record directory, or delete this"
            findings.append(Finding(kind=kind, name=name, record_id=parsed.record_id, detail=detail))
        return findings


def _raise_first(done: Iterable[asyncio.Task[None]]) -> None:
    for task in done:
        task.result()
