"""Receipts in the mirror: many to an object, each object owned by one writer, so that servers need no coordination.

``_receipts/<writer>/<seq, 8 digits>.jsonl``: a writer rewrites its current segment as it grows and begins the next one
at about 1 MiB or 10,000 receipts, and after a write that was tried more than once: the earlier try may still arrive,
and would take away what came since. The first, number 0, stays empty: it is what a probe writes, at any time, whatever
receipts are on their way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import xxhash

from mirror.errors import NotFoundError, ReceiptError
from mirror.receipts.ledger import Mark
from mirror.receipts.receipt import MAX_LINE_BYTES, Receipt, decode_lines
from mirror.reliable import ReliableStore
from mirror.store import ObjectInfo, Store, read_whole

logger = logging.getLogger(__name__)

PREFIX = "_receipts/"
SEGMENT_BYTES = 1 << 20
SEGMENT_RECEIPTS = 10_000
MAX_SEGMENT_BYTES = 64 << 20  # what is read of a segment at most, whoever wrote it
READ_AT_ONCE = 16
WARNED_LINES = 3  # of a segment that is none, whose every line would be told otherwise
Seen = tuple[int, str | None]  # the size and the ETag of a segment when it was read
_KEY = re.compile(r"_receipts/([A-Za-z0-9_.\-]{1,200})/([0-9]{8})\.jsonl", re.ASCII)


def make_writer_id() -> str:
    """Return a name that no other process has."""
    host = re.sub(r"[^A-Za-z0-9\-]", "-", socket.gethostname())[:64] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(6)}"


def segment_key(writer: str, sequence: int) -> str:
    """Return the key of a writer's n-th segment, from 0."""
    return f"{PREFIX}{writer}/{sequence:08d}.jsonl"


async def write_probe(store: Store, writer: str) -> None:
    """Write a writer's empty segment, as every writer must be able to.

    Raises:
        StoreError: the store did not take it.
    """
    await store.put(segment_key(writer, 0), b"", xxhash.xxh3_128_hexdigest(b""))


@dataclass(frozen=True, slots=True)
class _Line:
    text: bytes
    mark: Mark | None


class SegmentWriter:
    """One writer's segments. Used on one event loop."""

    def __init__(self, store: Store, writer: str) -> None:
        """Begin with an empty segment; nothing is written."""
        self._store = store
        self._writer = writer
        self._sequence = 1
        self._lines: list[_Line] = []  # of the current segment, and what will not fit into it
        self._flushed = 0  # lines of it that are in the mirror
        self._sent = 0  # of all segments
        self._is_sealed = False  # an earlier write of it may still arrive, with fewer lines than a later one
        self._flushing = asyncio.Lock()

    @property
    def key(self) -> str:
        """The key of the current segment."""
        return segment_key(self._writer, self._sequence)

    @property
    def waiting(self) -> int:
        """How many receipts are not in the mirror yet."""
        return len(self._lines) - self._flushed

    def add(self, line: bytes, mark: Mark | None) -> None:
        """Take a receipt's line, and its mark if it is in a journal, which hears when the line is in the mirror."""
        self._lines.append(_Line(line, mark))

    async def flush(self) -> None:
        """Bring every receipt taken so far into the mirror, and of those that come meanwhile only what happens to fit.

        Raises:
            StoreError: the store did not take them; they are kept and go with the next flush.
        """
        taken = self._sent + self.waiting
        while self._sent < taken:
            async with self._flushing:
                if self._sent < taken:
                    await self._write()

    async def _write(self) -> None:
        if self._is_sealed:
            self._begin_next()
        lines = self._fitting()
        body = b"".join(line.text for line in lines)
        self._is_sealed = True
        stored = await self._store.put(self.key, body, xxhash.xxh3_128_hexdigest(body))
        self._is_sealed = stored.may_be_overtaken
        marks = [line.mark for line in lines[self._flushed :] if line.mark]
        for mark in {mark.journal: mark for mark in marks}.values():
            mark.note_sent()  # the last of each journal speaks for those before it
        self._sent += len(lines) - self._flushed
        self._flushed = len(lines)
        if len(body) >= SEGMENT_BYTES or len(lines) >= SEGMENT_RECEIPTS:
            self._begin_next()

    def _begin_next(self) -> None:
        del self._lines[: self._flushed]
        self._flushed = 0
        self._is_sealed = False
        self._sequence += 1

    def _fitting(self) -> list[_Line]:
        """Return the lines of the current segment, up to the one that fills it."""
        size_bytes = 0
        for count, line in enumerate(self._lines[:SEGMENT_RECEIPTS], 1):
            size_bytes += len(line.text)
            if size_bytes >= SEGMENT_BYTES:
                return self._lines[:count]
        return self._lines[:SEGMENT_RECEIPTS]


class SegmentReader:
    """Reads every writer's receipts, each time only the segments that are new or have changed."""

    def __init__(self, store: ReliableStore, seen: dict[str, Seen] | None = None) -> None:
        """Read nothing yet.

        ``seen`` is what earlier readers of this mirror have read, by key; it is added to as segments are read.
        """
        self._store = store
        self._seen = {} if seen is None else seen

    async def read(self) -> AsyncIterator[Receipt]:
        """Yield the receipts of new and changed segments, in no order; what is no receipt is skipped with a warning.

        Raises:
            StoreError: the store could not be listed or a segment not read.
        """
        pending: list[ObjectInfo] = []
        async for page in self._store.list_pages(PREFIX):
            for info in page:
                if not _KEY.fullmatch(info.key):
                    logger.warning("skipped %r, which is not a segment of receipts", info.key)
                elif info.size_bytes > MAX_SEGMENT_BYTES:
                    logger.warning("skipped %s of %d bytes: no writer makes one so large", info.key, info.size_bytes)
                elif info.size_bytes and self._seen.get(info.key) != (info.size_bytes, info.etag):
                    pending.append(info)
        for start in range(0, len(pending), READ_AT_ONCE):
            batch = pending[start : start + READ_AT_ONCE]
            for info, data in zip(batch, await asyncio.gather(*map(self._fetch, batch)), strict=True):
                for receipt in decode_segment(info.key, data):
                    yield receipt
                self._seen[info.key] = (info.size_bytes, info.etag)

    async def _fetch(self, info: ObjectInfo) -> bytes:
        try:
            return await self._store.repeat(lambda: read_whole(self._store, info.key, max_bytes=MAX_SEGMENT_BYTES))
        except NotFoundError:
            return b""  # deleted since it was listed


def decode_segment(key: str, data: bytes) -> list[Receipt]:
    """Return a segment's receipts; lines that are none are skipped, the first few with a warning each."""
    receipts: list[Receipt] = []
    skipped = 0
    for item in decode_lines(data):
        if not isinstance(item, ReceiptError):
            receipts.append(item)
            continue
        skipped += 1
        if skipped <= WARNED_LINES:
            logger.warning("skipped a line of %s: %s", key, item)
    if skipped > WARNED_LINES:
        logger.warning("skipped %d more lines of %s", skipped - WARNED_LINES, key)
    return receipts


assert MAX_LINE_BYTES <= MAX_SEGMENT_BYTES  # noqa: S101 - a line must fit into what is read
