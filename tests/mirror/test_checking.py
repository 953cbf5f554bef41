"""How a file of the mirror is verified by its hash, and how much of it is held meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
import xxhash

from mirror.allowance import Allowance
from mirror.breaker import Breaker
from mirror.checking import ask_store, check_copy
from mirror.judging import Finding, FindingKind, Standing
from mirror.limiter import Limiter
from mirror.loop import run_in_loop
from mirror.receipts.manifest import ExpectedFile
from mirror.reliable import ReliableStore
from mirror.retry import RetryPolicy
from mirror.store import ObjectInfo, Store
from mirror.testing.stores import WAIT_S, MemoryStore

NAME = "tr_a.json.zst"
FILES = [f"tr_{number}.json.zst" for number in range(6)]
DATA = b"ten bytes."


class Counting(MemoryStore):
    """Knows the greatest number of reads that were under way at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0

    async def read(self, key: str) -> AsyncIterator[bytes]:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(100):  # whoever is not held back has begun to read by then
            await asyncio.sleep(0)
        async for chunk in super().read(key):
            yield chunk
        self.now -= 1


class Meeting(MemoryStore):
    """Answers reads once two of them have met."""

    def __init__(self) -> None:
        super().__init__()
        self.barrier = asyncio.Barrier(2)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        async with asyncio.timeout(WAIT_S):
            await self.barrier.wait()
        async for chunk in super().read(key):
            yield chunk


def reliable(store: Store) -> ReliableStore:
    breaker = Breaker("memory", waiting=None, clock=itertools.count(0.0, 5.0).__next__)
    policy = RetryPolicy(attempts=2, backoff_s=0, timeout_s=2 * WAIT_S)
    return ReliableStore(store, policy, limiter=Limiter(16), breaker=breaker)


def expect(name: str, size_bytes: int = len(DATA)) -> ExpectedFile:
    return ExpectedFile(name, size_bytes, xxhash.xxh3_128_hexdigest(DATA))


@pytest.mark.parametrize(("capacity", "most"), [(1, 1), (25, 2), (1_000, 6)])
def test_no_more_bytes_are_held_than_allowed(capacity: int, most: int) -> None:
    """Six files of ten bytes each; one that is larger than the whole allowance is read alone."""
    memory = Counting()
    for name in FILES:
        memory.keep(name, DATA)

    async def work() -> list[Finding | Standing]:
        store, in_flight = reliable(memory), Allowance(capacity)
        return await asyncio.gather(*(check_copy(store, expect(name), in_flight) for name in FILES))

    assert run_in_loop(work()) == [Standing.INTACT] * 6
    assert memory.most == most


def test_a_large_file_is_held_part_by_part_and_leaves_room_for_another() -> None:
    """It is streamed: however large it is, no more than a part of it counts."""
    size = 5 << 30

    async def work() -> list[Finding | Standing]:
        memory = Meeting()
        for name in FILES[:2]:
            memory.keep(name, DATA)
        store, in_flight = reliable(memory), Allowance(64 << 20)
        listed = [ObjectInfo(name, size) for name in FILES[:2]]
        checks = (check_copy(store, expect(found.key, size), in_flight, found) for found in listed)
        return await asyncio.gather(*checks)

    assert run_in_loop(work()) == [Standing.INTACT] * 2


def test_a_store_is_taken_at_its_word_only_where_it_gives_one() -> None:
    """Asked alone, it may know nothing of the hash, and yet of a wrong size or of absence."""
    memory = MemoryStore()
    memory.keep(NAME, DATA)

    async def asked(expected: ExpectedFile) -> Finding | Standing:
        return await ask_store(reliable(memory), expected)

    verdicts = [run_in_loop(asked(expected)) for expected in (expect(NAME), expect(NAME, 11), expect("tr_b.json.zst"))]
    kinds = [verdict.kind for verdict in verdicts if isinstance(verdict, Finding)]
    assert kinds == [FindingKind.UNCHECKED, FindingKind.WRONG_SIZE, FindingKind.MISSING]
    assert not [call for call in memory.calls if call.operation == "read"]
