"""Is one file of the mirror what its receipt says? By the store's own hash, or by that of the bytes read back."""

from __future__ import annotations

import xxhash

from mirror.allowance import Allowance
from mirror.errors import NotFoundError, StoreError
from mirror.judging import Finding, Standing, judge, unchecked
from mirror.receipts.manifest import ExpectedFile
from mirror.reliable import ReliableStore
from mirror.store import PART_BYTES, ObjectInfo


async def check_copy(
    store: ReliableStore, expected: ExpectedFile, in_flight: Allowance, found: ObjectInfo | None = None
) -> Finding | Standing:
    """Verify a file by its hash: the store's own where it keeps ours, or else that of the bytes read back.

    Args:
        store: the mirror.
        expected: what its receipt says of the file.
        in_flight: bytes of file contents that may be held.
        found: what a listing says of the file, or None: the store is asked.
    """
    try:
        found = found or await store.stat(expected.name)
        digest = found.xxh3_128 if found else None
        if judge(expected, found, digest) is Standing.PRESENT:
            digest = await _hash(store, expected, in_flight)
        return judge(expected, found, digest)
    except NotFoundError:
        return judge(expected, None)
    except StoreError as error:
        return unchecked(expected.name, expected.record_id, error)


async def ask_store(store: ReliableStore, expected: ExpectedFile) -> Finding | Standing:
    """Verify a file by the hash that the store keeps of it; where it keeps none, the file is unchecked."""
    try:
        found = await store.stat(expected.name)
    except StoreError as error:
        return unchecked(expected.name, expected.record_id, error)
    verdict = judge(expected, found, found.xxh3_128 if found else None)
    if verdict is Standing.PRESENT:
        reason = "the store keeps no xxh3_128 of it: have it read back (--download)"
        return unchecked(expected.name, expected.record_id, reason)
    return verdict


async def _hash(store: ReliableStore, expected: ExpectedFile, in_flight: Allowance) -> str:
    """Read a file back, again where a read breaks off, and return its xxh3_128."""

    async def read_once() -> str:
        hasher = xxhash.xxh3_128()
        async for chunk in store.read(expected.name):
            hasher.update(chunk)
        return hasher.hexdigest()

    async with in_flight.take(min(expected.size_bytes, PART_BYTES)):
        return await store.repeat(read_once)
