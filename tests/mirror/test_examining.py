"""What is asked of the mirror before a record may go, and what its answers are worth."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import xxhash

from mirror import FindingKind, Keep, MirrorConfig, PruneRules, PruneStep
from mirror.breaker import Breaker
from mirror.errors import AccessDeniedError, NotFoundError, StoreRefusedError, TryAgainError
from mirror.limiter import Limiter
from mirror.location import parse_location
from mirror.loop import run_in_loop
from mirror.place import place_id
from mirror.pruning.examining import Examiner
from mirror.receipts.manifest import Manifest
from mirror.receipts.segments import SegmentReader
from mirror.reliable import ReliableStore
from mirror.retry import RetryPolicy
from mirror.samples import write_corpus
from mirror.store import ObjectInfo, Store
from mirror.stores.threads import DaemonThreads
from mirror.testing.stores import FaultyStore, FlipBit, MemoryStore, Raise, ShortRead, StoreFault
from tests.mirror.mirrors_in_memory import URL, mirror_on


class Vouching(MemoryStore):
    """Keeps the xxh3_128 of each object, as AWS does."""

    async def stat(self, key: str) -> ObjectInfo | None:
        found = await super().stat(key)
        return found._replace(xxh3_128=xxhash.xxh3_128_hexdigest(self.objects[key])) if found else None


class Counting(MemoryStore):
    """Knows the greatest number of bytes of records that were being read at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.four_asked = asyncio.Event()

    async def stat(self, key: str) -> ObjectInfo | None:
        found = await super().stat(key)
        if sum(call.operation == "stat" for call in self.calls) >= 4:
            self.four_asked.set()
        return found

    async def read(self, key: str) -> AsyncIterator[bytes]:
        size = len(self.objects[key]) if key in self.records else 0
        if size:
            await self.four_asked.wait()  # so many are examined at once, and want to read next
        self.now += size
        self.most = max(self.most, self.now)
        for _ in range(100):  # whoever is not held back has begun to read by then
            await asyncio.sleep(0)
        async for chunk in super().read(key):
            yield chunk
        self.now -= size


@pytest.fixture
def records(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "records", profile="tiny", count=8, seed=1)
    return tmp_path / "records"


def a_breaker() -> Breaker:
    """Return one whose clock leaps, so that no test waits until patience with a store is over."""
    return Breaker("memory", waiting=None, clock=itertools.count(0.0, 5.0).__next__)


def mirrored(records: Path, memory: MemoryStore) -> MemoryStore:
    with mirror_on(memory) as mirror:
        mirror.scan(records)
        assert mirror.flush(30)
    memory.calls.clear()
    return memory


def examine(store: Store, records: Path, **options: int) -> list[PruneStep]:
    """Return what is to become of each record, with two attempts at each request."""

    async def work() -> list[PruneStep]:
        policy = RetryPolicy(attempts=2, backoff_s=0, timeout_s=30)
        reliable = ReliableStore(store, policy, limiter=Limiter(4), breaker=a_breaker())
        manifest, threads = Manifest(), DaemonThreads(2, "test")
        await manifest.read(SegmentReader(reliable).read())
        config = MirrorConfig.from_mapping({"workers": 4, **options})
        rules = PruneRules(older_than_s=0)
        examiner = Examiner(reliable, manifest, rules, config, place_id(parse_location(URL), {}), threads)
        return [step async for steps in examiner.examine(records) for step in steps]

    return run_in_loop(work())


def reads(operation: str, key: str) -> bool:
    return operation == "read" and not key.startswith("_receipts/")


def asks(operation: str, _key: str) -> bool:
    return operation == "stat"


def test_every_file_is_read_back_where_the_store_keeps_no_hash(records: Path) -> None:
    """Once each, and a listing of nothing but the receipts."""
    memory = mirrored(records, MemoryStore())
    assert [step.keep for step in examine(memory, records)] == [None] * 8
    counts = Counter(call.operation for call in memory.calls if not call.key.startswith("_receipts/"))
    assert counts == {"stat": 16, "read": 16}


def test_a_store_that_keeps_our_hash_is_asked_for_it(records: Path) -> None:
    """Nothing is read back then; a hash that is not the receipt's is damage."""
    memory = mirrored(records, Vouching())
    name = min(memory.records)
    memory.objects[name] = bytes(len(memory.objects[name]))
    kept = [step for step in examine(memory, records) if step.keep]
    assert [(step.keep, step.findings[0].name, step.findings[0].kind) for step in kept] == [
        (Keep.DAMAGED, name, FindingKind.CHANGED)
    ]
    assert not [call for call in memory.calls if reads(call.operation, call.key)]


@pytest.mark.parametrize(("allowed", "is_alone"), [(1, True), (1 << 20, False)])
def test_little_is_held_at_once(records: Path, allowed: int, is_alone: bool) -> None:  # noqa: FBT001 - a parameter
    """However little memory is allowed, everything is read in the end: one file at a time, if need be."""
    memory = Counting()
    mirrored(records, memory)
    assert [step.keep for step in examine(memory, records, max_bytes_in_flight=allowed)] == [None] * 8
    assert (memory.most == max(map(len, memory.records.values()))) == is_alone


@pytest.mark.parametrize(
    "error",
    [
        TryAgainError("get", "", "503"),
        AccessDeniedError("get", "", "403"),
        StoreRefusedError("get", "", "no such bucket"),
    ],
)
@pytest.mark.parametrize("match", [reads, asks])
def test_what_could_not_be_checked_stays(records: Path, error: Exception, match: Callable[[str, str], bool]) -> None:
    """Whatever the store's reason: nothing is known, and nothing is damaged."""
    memory = mirrored(records, MemoryStore())
    steps = examine(FaultyStore(memory, StoreFault(action=Raise(error=error), match=match, times=10_000)), records)
    assert {step.keep for step in steps} == {Keep.UNCHECKED}
    assert {finding.kind for step in steps for finding in step.findings} == {FindingKind.UNCHECKED}


def test_a_store_that_goes_away_in_the_middle(records: Path) -> None:
    """What was proved before may go, the rest stays; no record is proved by half of its files."""
    memory = mirrored(records, MemoryStore())
    seen: list[str] = []

    def after_some(operation: str, key: str) -> bool:
        seen.extend([key] * reads(operation, key))
        return reads(operation, key) and len(seen) > 7

    away = StoreFault(action=Raise(error=TryAgainError("get", "", "reset")), match=after_some, times=10_000)
    steps = examine(FaultyStore(memory, away), records)
    counts = Counter(step.keep for step in steps)
    assert set(counts) == {None, Keep.UNCHECKED}
    for step in steps:
        assert (step.keep is None) == all(state.name in seen[:7] for state in step.files)


def test_an_object_that_goes_between_two_requests_is_missing(records: Path) -> None:
    """It was there a moment ago: that proves nothing."""
    memory = mirrored(records, MemoryStore())
    gone = StoreFault(action=Raise(error=NotFoundError("get", "", "NoSuchKey")), match=reads)
    kept = [step for step in examine(FaultyStore(memory, gone), records) if step.keep]
    assert [(step.keep, step.findings[0].kind) for step in kept] == [(Keep.DAMAGED, FindingKind.MISSING)]


def test_a_bit_flipped_on_the_way_back_keeps_the_record_and_a_read_cut_short_is_repeated(records: Path) -> None:
    """Only whole reads are hashed."""
    memory = mirrored(records, MemoryStore())
    steps = examine(FaultyStore(memory, StoreFault(action=FlipBit(), match=reads)), records)
    assert Counter(step.keep for step in steps) == {None: 7, Keep.DAMAGED: 1}
    cut = FaultyStore(memory, StoreFault(action=ShortRead(), match=reads, times=1))
    assert {step.keep for step in examine(cut, records)} == {None}


def test_whoever_has_enough_leaves_nothing_running(records: Path) -> None:
    """An examination that is closed early ends what is under way."""
    memory = mirrored(records, MemoryStore())

    async def work() -> int:
        policy = RetryPolicy(attempts=2, backoff_s=0, timeout_s=30)
        reliable = ReliableStore(memory, policy, limiter=Limiter(4), breaker=a_breaker())
        manifest, threads = Manifest(), DaemonThreads(2, "test")
        await manifest.read(SegmentReader(reliable).read())
        examiner = Examiner(reliable, manifest, PruneRules(older_than_s=0), MirrorConfig(), "place", threads)
        steps = examiner.examine(records)
        while not await anext(steps):
            pass
        await steps.aclose()
        return len(asyncio.all_tasks())

    assert run_in_loop(work()) == 1
