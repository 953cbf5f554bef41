"""One record's way into the mirror: read, hash, send; sidecars together, the document last, a receipt at the end."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import xxhash

from mirror.allowance import Allowance
from mirror.errors import RecordChangedError, RecordError
from mirror.names import check_name, document_name
from mirror.receipts.receipt import FileReceipt, Receipt, following
from mirror.record import FileState, Record, read_record, read_state
from mirror.store import PART_BYTES, WHOLE_BYTES, Store, Stored

MAX_ROUNDS = 5  # how often a record may change under our hands before it is left for later


@dataclass(frozen=True, slots=True, kw_only=True)
class Copier:
    """What every copy of one mirror shares."""

    store: Store
    in_flight: Allowance  # bytes
    exclude: frozenset[str]
    writer: str
    host: str
    clock: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A record that is in the mirror now."""

    receipt: Receipt
    sent_files: int
    sent_bytes: int


@dataclass(slots=True)
class _Progress:
    """What is known of a record's files in the mirror while it is copied."""

    known: dict[str, FileReceipt]
    sent_files: int = 0
    sent_bytes: int = 0
    states: dict[str, FileState] = field(default_factory=dict)  # of the files as they were read


async def copy_record(
    copier: Copier, directory: Path, record_id: str, *, kinds: Collection[str], previous: Receipt | None
) -> Copied:
    """Bring a record into the mirror; a file that ``previous`` proves to be there with the same bytes is not sent.

    A record that is written again meanwhile is followed until mirror and disk hold one generation.

    Raises:
        RecordGoneError: its document is not there.
        BadNameError: a name is refused.
        RecordChangedError: it kept changing.
        StoreError: the store refused or kept failing.
        OSError: a local file cannot be read.
    """
    check_name(document_name(record_id))
    progress = _Progress({file.name: file for file in previous.files} if previous else {})
    for _ in range(MAX_ROUNDS):
        record = read_record(directory, record_id, set(kinds) - copier.exclude)
        try:
            await _send_all(copier, directory, record.sidecars, progress)
            if record.sidecars and not _is_still(record):
                continue
            await _send_all(copier, directory, (record.document,), progress)
        except RecordChangedError:
            continue
        if _is_still(record):
            receipt = Receipt(
                id=record_id,
                at=copier.clock(),
                writer=copier.writer,
                host=copier.host,
                path=str(directory / record.document.name),
                files=tuple(progress.known[state.name] for state in record.files),
                excluded=tuple(sorted(copier.exclude)),
            )
            return Copied(
                receipt=following(previous, receipt),
                sent_files=progress.sent_files,
                sent_bytes=progress.sent_bytes,
            )
    raise RecordChangedError(f"{record_id} in {directory} is being written again and again: it is copied later")


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
        descriptor = _open(directory / name)
        try:
            now = FileState.of(name, os.fstat(descriptor))
            if now != state:  # a newer document must not go before its own sidecars
                raise RecordChangedError(f"{name} was written again before its turn came")
            if progress.states.get(name) == now:
                return  # sent in an earlier round and not written again
            known = progress.known.get(name)
            if now.size_bytes > WHOLE_BYTES:
                receipt, sent = await _send_large(copier.store, descriptor, now, known)
            else:
                receipt, sent = await _send_whole(copier.store, descriptor, now, known)
        finally:
            os.close(descriptor)
    progress.known[name] = receipt
    progress.states[name] = now
    if sent:
        progress.sent_files += 1
        progress.sent_bytes += now.size_bytes


async def _send_whole(
    store: Store, descriptor: int, state: FileState, known: FileReceipt | None
) -> tuple[FileReceipt, bool]:
    data = _read_at(descriptor, state.size_bytes, 0)
    digest = xxhash.xxh3_128_hexdigest(data)
    if known and (known.size, known.xxh3_128) == (len(data), digest):
        return replace(known, ctime_ns=state.ctime_ns, inode=state.inode), False
    return _receipt(state, digest, await store.put(state.name, data, digest)), True


async def _send_large(
    store: Store, descriptor: int, state: FileState, known: FileReceipt | None
) -> tuple[FileReceipt, bool]:
    """Send a file part by part; twice read where a receipt may make sending needless."""
    if known and known.size == state.size_bytes:
        hasher = xxhash.xxh3_128()
        for part in _parts(descriptor, state.size_bytes):
            hasher.update(part)
            await asyncio.sleep(0)
        if hasher.hexdigest() == known.xxh3_128:
            return replace(known, ctime_ns=state.ctime_ns, inode=state.inode), False
    hasher = xxhash.xxh3_128()

    async def parts() -> AsyncIterator[bytes]:
        hasher.reset()
        for part in _parts(descriptor, state.size_bytes):
            hasher.update(part)
            yield part

    stored = await store.put_parts(state.name, parts, state.size_bytes)
    return _receipt(state, hasher.hexdigest(), stored), True


def _parts(descriptor: int, size_bytes: int) -> Iterator[bytes]:
    for start in range(0, size_bytes, PART_BYTES):
        yield _read_at(descriptor, min(PART_BYTES, size_bytes - start), start)


def _receipt(state: FileState, digest: str, stored: Stored) -> FileReceipt:
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


def _open(path: Path) -> int:
    """Open a regular file; a link or a pipe that took its place is refused, and never waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise RecordChangedError(f"{path} disappeared while its record was copied") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RecordError(f"{path} is not a regular file: it is not copied")
    return descriptor


def _read_at(descriptor: int, size_bytes: int, start: int) -> bytes:
    data = os.pread(descriptor, size_bytes, start)
    while len(data) < size_bytes:
        more = os.pread(descriptor, size_bytes - len(data), start + len(data))
        if not more:
            raise RecordChangedError("a file became shorter while it was read")
        data += more
    return data
