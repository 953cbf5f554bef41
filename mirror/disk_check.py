"""Are the finished records of a directory in the mirror as they are now? Receipts against the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path

import xxhash

from mirror.errors import BadNameError, RecordGoneError
from mirror.judging import Finding, FindingKind
from mirror.names import check_name, document_name, parse_name
from mirror.receipts.manifest import Manifest
from mirror.receipts.receipt import Receipt
from mirror.record import FileState, find_kinds, iter_batches, read_record
from mirror.store import CHUNK_BYTES
from mirror.stores.threads import DaemonThreads

_BATCH = 100  # records: one may have to be hashed


async def check_directory(directory: Path, manifest: Manifest) -> AsyncIterator[Finding]:
    """Yield a finding for each file of a finished record that the mirror does not have as it is on disk.

    A file whose size, change time and inode are those of its receipt is not read; another is hashed.

    Raises:
        OSError: the directory cannot be read.
    """
    threads = DaemonThreads(1, "record-mirror-check")
    try:
        async for findings in threads.iterate(_check(directory, manifest)):
            for finding in findings:
                yield finding
    finally:
        threads.close()


def _check(directory: Path, manifest: Manifest) -> Iterator[list[Finding]]:
    """Yield what is found in some of the records, then in others."""
    kinds = find_kinds(directory)
    for documents, _ in iter_batches(directory, _BATCH, but=kinds):
        yield [finding for record_id in documents for finding in _check_record(directory, record_id, kinds, manifest)]


def _check_record(directory: Path, record_id: str, kinds: Collection[str], manifest: Manifest) -> Iterator[Finding]:
    try:
        check_name(document_name(record_id))
    except BadNameError as error:
        yield Finding(
            kind=FindingKind.MISSING,
            name=ascii(document_name(record_id))[1:-1],
            record_id=ascii(record_id)[1:-1],
            detail=f"it is in {directory} and was never copied: {error}",
        )
        return
    receipt = manifest.get(record_id)
    with contextlib.suppress(RecordGoneError, FileNotFoundError):  # deleted while we looked
        for state in read_record(directory, record_id, kinds).files:
            finding = _compare(directory, record_id, state, receipt)
            if finding is not None:
                yield finding


def _compare(directory: Path, record_id: str, state: FileState, receipt: Receipt | None) -> Finding | None:
    if receipt is None:
        return Finding(
            kind=FindingKind.MISSING,
            name=state.name,
            record_id=record_id,
            detail=f"it is in {directory} and was never copied",
        )
    known = receipt.file(state.name)
    if known is None:
        parsed = parse_name(state.name)
        if parsed is not None and parsed.kind in receipt.excluded:
            return None
        return Finding(
            kind=FindingKind.MISSING_SIDECAR,
            name=state.name,
            record_id=record_id,
            detail=f"it is in {directory}, and its record was copied without it",
        )
    if (known.size, known.ctime_ns, known.inode) == (state.size_bytes, state.ctime_ns, state.inode):
        return None
    if known.size == state.size_bytes and hash_file(directory / state.name) == known.xxh3_128:
        return None
    return Finding(
        kind=FindingKind.CHANGED,
        name=state.name,
        record_id=record_id,
        detail=f"it was written again in {directory} after it was copied",
    )


def hash_file(path: Path) -> str:
    """Return the xxh3_128 of a regular file; a link is not followed, a pipe not waited for.

    Raises:
        OSError: it cannot be read.
    """
    hasher = xxhash.xxh3_128()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        while chunk := os.read(descriptor, CHUNK_BYTES):
            hasher.update(chunk)
            del chunk  # or the next one gets fresh memory, which costs more than its hash
    finally:
        os.close(descriptor)
    return hasher.hexdigest()
