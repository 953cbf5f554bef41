"""A record gets other bytes, then those that it had before: the receipt of the first time proves nothing any more."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash

from mirror.allowance import Allowance
from mirror.copying import Copier, copy_record
from mirror.errors import StoreRefusedError, TryAgainError
from mirror.names import document_name
from mirror.receipts.receipt import Receipt
from mirror.store import Data, Stored
from mirror.testing.stores import FaultyStore, MemoryStore, Moment, Stall, StoreFault, StoreThenRaise
from tests.campaign.shared_bucket import SharedBucket
from tests.mirror.forks import exit_of_child
from tests.mirror.local_records import write_files
from tests.mirror.mirrors_in_memory import (
    AtOnce,
    NobodyElses,
    eventually,
    failing,
    is_record,
    mirror_on,
    on_disk,
    receipts_in,
)

FLUSH_S = 30.0
DOCUMENT = document_name("tr_a")
ANSWER_LOST = StoreThenRaise(error=TryAgainError("put", DOCUMENT, "reset"))


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A record with the first of its bytes."""
    directory = tmp_path / "records"
    directory.mkdir()
    write_first(directory)
    return directory


def write_first(directory: Path) -> None:
    write_files(directory, "tr_a", b"first", tokens=b"first tokens")


def write_second(directory: Path) -> None:
    write_files(directory, "tr_a", b"second", tokens=b"second tokens")


def is_document(operation: str, key: str) -> bool:
    return operation.startswith("put") and key == DOCUMENT


def assert_true(memory: MemoryStore, records: Path) -> None:
    """The mirror holds what is on disk, and the newest receipt says so."""
    assert memory.records == on_disk(records)
    assert {file.name: file.xxh3_128 for file in receipts_in(memory)["tr_a"].files} == {
        name: xxhash.xxh3_128_hexdigest(data) for name, data in memory.records.items()
    }


def test_another_mirror_sent_the_second(records: Path) -> None:
    """A mirror that copies what came back asks first what the others on the directory have sent meanwhile."""
    memory = MemoryStore()
    with mirror_on(memory) as one, mirror_on(memory) as other:
        assert one.submit(records, "tr_a")
        assert one.flush(FLUSH_S)
        write_second(records)
        assert other.submit(records, "tr_a")
        assert other.flush(FLUSH_S)
        write_first(records)
        assert one.submit(records, "tr_a")
        assert one.flush(FLUSH_S)
        assert_true(memory, records)


def test_the_second_is_under_way_by_another_mirror(records: Path) -> None:
    """What comes back is sent though nobody knows yet of the second; and whoever sent that sees to what it replaced."""
    memory = MemoryStore()
    stall = Stall()
    with (
        mirror_on(memory) as one,
        mirror_on(FaultyStore(memory, StoreFault(action=stall, match=is_document))) as other,
    ):
        assert one.submit(records, "tr_a")
        assert one.flush(FLUSH_S)
        write_second(records)
        assert other.submit(records, "tr_a")
        stall.reached.wait()
        write_first(records)
        assert one.submit(records, "tr_a")
        assert one.flush(FLUSH_S)
        assert memory.objects[DOCUMENT] == b"first"
        stall.released.happen()
        assert other.flush(FLUSH_S)
        assert_true(memory, records)


def test_the_second_landed_last_and_its_mirror_was_closed_before_it_could_see_to_that(records: Path) -> None:
    """It says beside the records that no receipt counts, be it newer: the next look sends what is on disk."""
    memory = MemoryStore()
    first, again = Stall(), Stall()
    faults = [StoreFault(action=stall, match=is_document) for stall in (first, again)]
    other = mirror_on(FaultyStore(memory, *faults))
    with mirror_on(memory) as one:
        assert one.submit(records, "tr_a")
        assert one.flush(FLUSH_S)
        write_second(records)
        other.submit(records, "tr_a")
        first.reached.wait()
        write_first(records)
        assert one.submit(records, "tr_a")
        assert one.flush(FLUSH_S)
        first.released.happen()
        again.reached.wait()
        assert memory.objects[DOCUMENT] == b"second"
        assert not other.close(0)
        one.scan(records)
        assert one.flush(FLUSH_S)
        assert_true(memory, records)


class Slow(FaultyStore):
    """Does what it is asked, and holds the answer to the first write of the document."""

    def __init__(self, memory: MemoryStore, *faults: StoreFault) -> None:
        super().__init__(memory, *faults)
        self.stored, self.answered = Moment(), Moment()

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
        stored = await super().put(key, data, xxh3_128)
        if key == DOCUMENT:
            self.stored.happen()
            await self.answered.awaited()
        return stored


def test_the_second_landed_last_and_its_mirror_never_heard_so(records: Path) -> None:
    """Whoever is closed without an answer withdraws what others have receipted since, too."""
    memory = MemoryStore()
    stall = Stall()
    slow = Slow(memory, StoreFault(action=stall, match=is_document))
    other = mirror_on(slow)
    with mirror_on(memory) as one:
        write_second(records)
        other.submit(records, "tr_a")
        stall.reached.wait()
        write_first(records)
        assert one.submit(records, "tr_a")
        assert one.flush(FLUSH_S)
        stall.released.happen()
        slow.stored.wait()
        assert memory.objects[DOCUMENT] == b"second"
        assert not other.close(0)
        one.scan(records)
        assert one.flush(FLUSH_S)
        assert_true(memory, records)


def test_the_second_landed_while_what_came_back_was_sent(records: Path) -> None:
    """A receipt is as old as the look at the disk that it comes from: what was withdrawn since stays so."""
    memory = MemoryStore()
    stall = Stall()
    late, slow = Slow(memory, StoreFault(action=stall, match=is_document)), Slow(memory)
    other = mirror_on(late)
    with mirror_on(slow) as one:
        write_second(records)
        other.submit(records, "tr_a")
        stall.reached.wait()
        write_first(records)
        assert one.submit(records, "tr_a")
        slow.stored.wait()
        stall.released.happen()
        late.stored.wait()
        assert memory.objects[DOCUMENT] == b"second"
        assert not other.close(0)
        slow.answered.happen()
        assert one.flush(FLUSH_S)
        one.scan(records)
        assert one.flush(FLUSH_S)
        assert_true(memory, records)


def test_a_mirror_that_knew_no_receipt_asks_the_others_in_each_round(records: Path) -> None:
    """It has sent the first sidecar when another brings the second generation whole, and the first comes back."""
    memory, stall = MemoryStore(), Stall()

    def write(generation: bytes) -> None:
        write_files(records, "tr_a", generation, tokens=generation + b" tokens", experts=generation + b" experts")

    def is_experts(operation: str, key: str) -> bool:
        return operation.startswith("put") and key == "tr_a.experts.zst"

    write(b"first")
    slow = FaultyStore(memory, StoreFault(action=stall, match=is_experts))
    with mirror_on(slow, rescan_s=3600) as one, mirror_on(memory, rescan_s=3600) as other:
        one.submit(records, "tr_a")
        stall.reached.wait()
        eventually(lambda: memory.objects.get("tr_a.tokens.zst") == b"first tokens")
        write(b"second")
        other.submit(records, "tr_a")
        assert other.flush(FLUSH_S)
        write(b"first")
        stall.released.happen()
        assert one.flush(FLUSH_S)
        other.submit(records, "tr_a")
        assert other.flush(FLUSH_S)
        assert_true(memory, records)


def test_what_had_to_wait_is_not_sent_once_the_disk_has_other_bytes(records: Path) -> None:
    """A mirror that is let in again after hours, while another copied and pruned what is newer, replaces nothing."""
    memory = MemoryStore()
    refused = FaultyStore(memory, failing(StoreRefusedError("put", "", "the token ran out")))
    late = mirror_on(refused)
    late.submit(records, "tr_a")
    eventually(lambda: late.stats()["breaker"] == "refused")
    write_second(records)
    with mirror_on(memory) as other:
        other.submit(records, "tr_a")
        assert other.flush(FLUSH_S)
    second = dict(memory.records)
    assert second == on_disk(records)
    for name in second:  # as a prune does
        (records / name).unlink()
    refused.heal()
    eventually(lambda: late.stats()["pending"] == 0)
    late.close(FLUSH_S)
    assert memory.records == second


class Noticed(NobodyElses):
    """The receipts of a record that comes back when its first receipt is withdrawn, and is copied by another then."""

    def __init__(self, records: Path, first: Receipt) -> None:
        super().__init__(first)
        self._records = records

    def withdraw(self, line: Receipt) -> Receipt:
        write_first(self._records)
        return super().withdraw(line)


def test_the_second_is_gone_when_it_is_about_to_be_sent(records: Path) -> None:
    """Whoever wrote what came back found no withdrawal, and sent nothing: the second must not go any more."""
    memory = MemoryStore()
    copier = Copier(store=AtOnce(memory), in_flight=Allowance(1 << 20), exclude=frozenset(), writer="w", host="h")

    async def copy_both() -> None:
        copied = await copy_record(copier, records, "tr_a", kinds={"tokens"}, receipts=NobodyElses())
        write_second(records)
        receipts = Noticed(records, replace(copied.receipt, writer="other"))
        await copy_record(copier, records, "tr_a", kinds={"tokens"}, receipts=receipts)

    asyncio.run(copy_both())
    assert not [put.key for put in memory.puts if put.data.startswith(b"second")]
    assert memory.records == on_disk(records)


def test_the_answer_to_the_second_was_lost(records: Path) -> None:
    """One mirror alone: what it may have replaced counts no more, whatever the store said."""
    memory = MemoryStore()
    store = FaultyStore(memory)
    with mirror_on(store, rescan_s=3_600) as mirror:
        assert mirror.submit(records, "tr_a")
        assert mirror.flush(FLUSH_S)
        write_second(records)
        store.add(StoreFault(action=ANSWER_LOST, match=is_document, times=3))
        mirror.submit(records, "tr_a")
        eventually(lambda: mirror.stats()["late"] == 1)
        assert memory.objects[DOCUMENT] == b"second"
        write_first(records)
        assert mirror.submit(records, "tr_a")
        assert mirror.drain(FLUSH_S)
        assert_true(memory, records)


def test_killed_between_the_second_and_its_receipt(records: Path, tmp_path: Path) -> None:
    """The next start does not believe the receipt of the first."""
    bucket = SharedBucket(tmp_path / "bucket")
    store = FaultyStore(bucket)
    with mirror_on(bucket) as mirror:
        assert mirror.submit(records, "tr_a")
        assert mirror.flush(FLUSH_S)
    write_second(records)
    store.add(StoreFault(action=ANSWER_LOST, match=is_document))

    def live() -> bool:
        mirror_on(store, backoff_s=3_600).submit(records, "tr_a")
        eventually(lambda: bucket.objects[DOCUMENT] == b"second")
        os.kill(os.getpid(), signal.SIGKILL)
        return False

    assert exit_of_child(live) == -signal.SIGKILL
    bucket.catch_up()
    assert bucket.objects[DOCUMENT] == b"second"
    write_first(records)
    with mirror_on(bucket) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        assert_true(bucket, records)


class Interrupting(MemoryStore):
    """While it writes the first sidecar of the second, the first comes back; it keeps the sidecar and never says so."""

    def __init__(self, records: Path) -> None:
        super().__init__()
        self._records = records
        self._is_armed = True

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
        is_moment = self._is_armed and data == b"second experts"
        if is_moment:
            self._is_armed = False
            write_files(self._records, "tr_a", b"first", experts=b"first experts", tokens=b"first tokens")
        stored = await super().put(key, data, xxh3_128)
        if is_moment:
            await asyncio.Event().wait()
        return stored


def test_the_second_is_cut_short_while_it_is_sent(records: Path) -> None:
    """A sidecar whose write was given up half-way, as another one had changed: it may have got there."""
    write_files(records, "tr_a", b"first", experts=b"first experts", tokens=b"first tokens")
    memory = Interrupting(records)
    with mirror_on(memory) as mirror:
        assert mirror.submit(records, "tr_a")
        assert mirror.flush(FLUSH_S)
        write_files(records, "tr_a", b"second", experts=b"second experts", tokens=b"second tokens")
        assert mirror.submit(records, "tr_a")
        assert mirror.flush(FLUSH_S)
        assert b"second experts" in [put.data for put in memory.puts]
        assert_true(memory, records)


def test_what_failed_before_anything_was_replaced_changes_nothing(records: Path) -> None:
    """A new sidecar that does not get through: what is receipted is not sent again."""
    memory = MemoryStore()
    store = FaultyStore(memory)
    with mirror_on(store, rescan_s=3_600) as mirror:
        assert mirror.submit(records, "tr_a")
        assert mirror.flush(FLUSH_S)
        (records / "tr_a.experts.zst").write_bytes(b"experts")
        store.add(StoreFault(action=ANSWER_LOST, match=is_record, times=3))
        mirror.submit(records, "tr_a")
        eventually(lambda: mirror.stats()["late"] == 1)
        before = len(memory.puts)
        assert mirror.submit(records, "tr_a")
        assert mirror.drain(FLUSH_S)
        assert [key for key in memory.keys_put[before:] if is_record("put", key)] == ["tr_a.experts.zst"]
        assert_true(memory, records)
