"""One record's way into the mirror: read, hash, send; sidecars together, the document last, a receipt at the end.

Another mirror may copy the same record at the same time, and any of them may be cut short after its bytes replaced
others. So that no receipt speaks for bytes that are no longer there, also when a server writes what was there before
that: a file on disk is looked at first and the receipts after it; a receipt is withdrawn before its bytes are replaced,
and again when nobody knows what became of that; and it bears the time at which the disk was looked at.
"""

from __future__ import annotations

import asyncio
import functools
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import xxhash

from mirror.allowance import Allowance
from mirror.errors import RecordChangedError, RecordError, RecordGoneError
from mirror.names import check_name, document_name
from mirror.reading import read_at, reading_threads
from mirror.receipts.receipt import FileReceipt, Receipt, following
from mirror.record import FileState, Record, read_record, read_state
from mirror.store import PART_BYTES, WHOLE_BYTES, Data, Parts, Stored
from mirror.stores.threads import DaemonThreads

MAX_ROUNDS = 5  # how often a record may change under our hands before it is left for later


@dataclass(frozen=True, slots=True, kw_only=True)
class Copier:
    """What every copy of one mirror shares."""

    store: Sink
    in_flight: Allowance  # bytes
    exclude: frozenset[str]
    writer: str
    host: str
    clock: Callable[[], float] = time.time
    threads: DaemonThreads = field(default_factory=reading_threads)  # to be closed


class Sink(Protocol):
    """Where files are sent: a store that tries as often as it takes."""

    async def put(self, key: str, data: Data, xxh3_128: str, *, before: Callable[[], None] = ...) -> Stored:
        """Write an object as ``Store.put``; ``before`` is called right before each request, which it may prevent."""
        ...

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:
        """Write an object as ``Store.put_parts``."""
        ...


class Receipts(Protocol):
    """The receipts of one record beside it, to which other mirrors may add at any time."""

    async def latest(self) -> Receipt | None:
        """Return the newest line of all that were there when this was called."""

    def withdraw(self, line: Receipt) -> Receipt:
        """Keep a line without files as newer than all that are known, and return it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A record that is in the mirror now."""

    receipt: Receipt
    is_known: bool  # the last receipt before it says the same
    sent_files: int
    sent_bytes: int


@dataclass(slots=True)
class _Progress:
    """What is known of a record's files in the mirror while it is copied."""

    record_id: str
    receipts: Receipts
    previous: Receipt | None = None  # the newest line, this copy's own included
    proof: Receipt | None = None  # the newest line of others
    known: dict[str, FileReceipt] = field(default_factory=dict)
    sent_files: int = 0
    sent_bytes: int = 0
    states: dict[str, FileState] = field(default_factory=dict)  # of the files as they were read
    has_begun: bool = False  # to send
    is_doubtful: bool = False  # what it sends may replace what a receipt speaks of

    def take_in(self, latest: Receipt | None) -> None:
        """Know what a receipt proves, unless this copy has begun to replace what it speaks of."""
        if latest != self.previous:
            self.previous = self.proof = latest
            self.known = {file.name: file for file in latest.files} if latest and not self.has_begun else {}
            self.states.clear()

    def begin(self, name: str) -> None:
        """Take note that a file is about to be sent: from here on nobody knows what is there, until it was sent."""
        self.known.pop(name, None)
        self.has_begun = True
        is_added = self.previous is not None and self.previous.files and self.previous.file(name) is None
        self.is_doubtful |= not is_added

    def replaces_receipted(self, name: str, writer: str) -> bool:
        """Whether sending a file makes the newest line untrue."""
        if self.previous is None:
            return False
        return self.previous.file(name) is not None if self.previous.files else self.previous.writer != writer


async def copy_record(
    copier: Copier,
    directory: Path,
    record_id: str,
    *,
    kinds: Collection[str],
    receipts: Receipts,
) -> Copied:
    """Bring a record into the mirror; a file that ``receipts`` prove to be there with the same bytes is not sent.

    A record that is written again meanwhile is followed until mirror and disk hold one generation.

    Raises:
        RecordGoneError: its document is not there.
        BadNameError: a name is refused.
        RecordChangedError: it kept changing.
        StoreError: the store refused or kept failing.
        OSError: a local file cannot be read.
    """
    check_name(document_name(record_id))
    progress = _Progress(record_id, receipts)
    try:
        return await _follow(copier, directory, progress, kinds)
    except RecordGoneError:
        raise  # nobody can send it again, and others may have sent it before it went
    except BaseException:
        if progress.is_doubtful:
            receipts.withdraw(_withdrawal(copier, directory, record_id))
        raise


async def _follow(copier: Copier, directory: Path, progress: _Progress, kinds: Collection[str]) -> Copied:
    for _ in range(MAX_ROUNDS):
        looked_at = copier.clock()
        record = read_record(directory, progress.record_id, set(kinds) - copier.exclude)
        progress.take_in(await progress.receipts.latest())
        try:
            await _send_all(copier, directory, record.sidecars, progress)
            if record.sidecars and not _is_still(record):
                continue
            await _send_all(copier, directory, (record.document,), progress)
        except RecordChangedError:
            continue
        if _is_still(record):
            files = tuple(progress.known[state.name] for state in record.files)
            receipt = _receipt(copier, directory, progress.record_id, looked_at, files)
            receipt = following(progress.proof, following(progress.previous, receipt))
            last = progress.previous
            return Copied(
                receipt=receipt,
                is_known=last is not None and (receipt.files, receipt.excluded) == (last.files, last.excluded),
                sent_files=progress.sent_files,
                sent_bytes=progress.sent_bytes,
            )
    raise RecordChangedError(
        f"{progress.record_id} in {directory} is being written again and again: it is copied later"
    )


def _receipt(
    copier: Copier, directory: Path, record_id: str, at: float, files: tuple[FileReceipt, ...] = ()
) -> Receipt:
    return Receipt(
        id=record_id,
        at=at,
        writer=copier.writer,
        host=copier.host,
        path=f"{directory}/{document_name(record_id)}",
        files=files,
        excluded=tuple(sorted(copier.exclude)) if files else (),
    )


def _withdrawal(copier: Copier, directory: Path, record_id: str) -> Receipt:
    return _receipt(copier, directory, record_id, copier.clock())


def _is_still(record: Record) -> bool:
    """Whether the record is the same generation as before: a newer one replaces its document too, and last."""
    return all(read_state(record.directory, state.name) == state for state in record.files)


async def _send_all(copier: Copier, directory: Path, states: Sequence[FileState], progress: _Progress) -> None:
    if len(states) == 1:
        await _send(copier, directory, states[0], progress)
        return
    try:
        async with asyncio.TaskGroup() as group:  # the first failure cancels the others
            for state in states:
                group.create_task(_send(copier, directory, state, progress))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _send(copier: Copier, directory: Path, state: FileState, progress: _Progress) -> None:
    name = check_name(state.name)
    held = 2 * PART_BYTES if state.size_bytes > WHOLE_BYTES else state.size_bytes
    async with copier.in_flight.take(held):
        descriptor, now = _open(directory, name)
        try:
            if now != state:  # a newer document must not go before its own sidecars
                raise RecordChangedError(f"{name} was written again before its turn came")
            if progress.states.get(name) == now:
                return  # sent in an earlier round and not written again
            known = progress.known.get(name)
            announce = functools.partial(_announce, copier, directory, now, progress)
            if now.size_bytes > WHOLE_BYTES:
                receipt, sent = await _send_large(copier, descriptor, now, known, announce)
            else:
                receipt, sent = await _send_whole(copier, descriptor, now, known, announce)
        finally:
            os.close(descriptor)
    progress.known[name] = receipt
    progress.states[name] = now
    if sent:
        progress.sent_files += 1
        progress.sent_bytes += now.size_bytes


def _announce(copier: Copier, directory: Path, state: FileState, progress: _Progress) -> None:
    """Withdraw the receipt of what is about to be replaced, and make sure that the disk still has what replaces it.

    Whoever finds other bytes on disk from here on finds the withdrawal, too. However long a request had to wait for its
    turn, it never brings bytes that were replaced on disk, mirrored and pruned meanwhile.

    Raises:
        RecordChangedError: the disk has other bytes already.
    """
    progress.begin(state.name)
    if progress.replaces_receipted(state.name, copier.writer):
        withdrawal = _withdrawal(copier, directory, progress.record_id)
        progress.previous = progress.receipts.withdraw(withdrawal)
    if read_state(directory, state.name) != state:
        raise RecordChangedError(f"{state.name} was written again before it was sent")


async def _send_whole(
    copier: Copier, descriptor: int, state: FileState, known: FileReceipt | None, announce: Callable[[], None]
) -> tuple[FileReceipt, bool]:
    data = await read_at(copier.threads, descriptor, state.size_bytes, 0)
    digest = xxhash.xxh3_128_hexdigest(data)
    if known and (known.size, known.xxh3_128) == (len(data), digest):
        return replace(known, ctime_ns=state.ctime_ns, inode=state.inode), False
    return _file_receipt(state, digest, await copier.store.put(state.name, data, digest, before=announce)), True


async def _send_large(
    copier: Copier, descriptor: int, state: FileState, known: FileReceipt | None, announce: Callable[[], None]
) -> tuple[FileReceipt, bool]:
    """Send a file part by part; twice read where a receipt may make sending needless."""
    if known and known.size == state.size_bytes:
        hasher = xxhash.xxh3_128()
        async for part in _parts(copier, descriptor, state.size_bytes):
            hasher.update(part)
        if hasher.hexdigest() == known.xxh3_128:
            return replace(known, ctime_ns=state.ctime_ns, inode=state.inode), False
    hasher = xxhash.xxh3_128()

    async def parts() -> AsyncIterator[Data]:
        announce()
        hasher.reset()
        async for part in _parts(copier, descriptor, state.size_bytes):
            hasher.update(part)
            yield part

    stored = await copier.store.put_parts(state.name, parts, state.size_bytes)
    return _file_receipt(state, hasher.hexdigest(), stored), True


async def _parts(copier: Copier, descriptor: int, size_bytes: int) -> AsyncIterator[Data]:
    for start in range(0, size_bytes, PART_BYTES):
        yield await read_at(copier.threads, descriptor, min(PART_BYTES, size_bytes - start), start)


def _file_receipt(state: FileState, digest: str, stored: Stored) -> FileReceipt:
    return FileReceipt(
        name=state.name,
        size=state.size_bytes,
        xxh3_128=digest,
        etag=stored.etag,
        version_id=stored.version_id,
        md5=stored.md5,
        ctime_ns=state.ctime_ns,
        inode=state.inode,
    )


def _open(directory: Path, name: str) -> tuple[int, FileState]:
    """Open a regular file; a link or a pipe that took its place is refused, and never waited for."""
    path = f"{directory}/{name}"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise RecordChangedError(f"{path} disappeared while its record was copied") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise RecordError(f"{path} is not a regular file: it is not copied")
    return descriptor, FileState.of(name, status)
