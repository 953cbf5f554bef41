"""Receipts reach the mirror many to an object, survive a failing store, and are read back without reading all again."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest

from mirror.breaker import Breaker
from mirror.errors import StoreError, TryAgainError
from mirror.limiter import Limiter
from mirror.receipts import segments
from mirror.receipts.ledger import Mark
from mirror.receipts.receipt import FileReceipt, Receipt, decode_lines, encode_line
from mirror.receipts.segments import (
    SEGMENT_BYTES,
    SEGMENT_RECEIPTS,
    SegmentReader,
    SegmentWriter,
    decode_segment,
    make_writer_id,
    segment_key,
    write_probe,
)
from mirror.reliable import ReliableStore
from mirror.retry import RetryPolicy
from mirror.store import Data, Store, Stored
from mirror.testing.stores import FaultyStore, MemoryStore, Raise, ShortRead, Stall, StoreFault, StoreThenRaise
from tests.mirror.fake_clock import FakeSleep

DOWN = TryAgainError("put", "k", "connection refused")


def receipt(number: int, *, padding: int = 0) -> Receipt:
    record_id = f"tr_{number}"
    file = FileReceipt(name=f"{record_id}.json.zst", size=1, xxh3_128="0" * 32)
    return Receipt(id=record_id, at=number, writer="w", host="h", path="p" * padding, files=(file,))


def add(writer: SegmentWriter, *numbers: int, padding: int = 0) -> None:
    for number in numbers:
        writer.add(encode_line(receipt(number, padding=padding)), None)


def ids_in(data: bytes) -> list[str]:
    return [item.id for item in decode_lines(data) if isinstance(item, Receipt)]


def reader_of(store: Store) -> SegmentReader:
    policy = RetryPolicy(attempts=3, backoff_s=0, timeout_s=30)
    return SegmentReader(ReliableStore(store, policy, limiter=Limiter(8), breaker=Breaker("store"), sleep=FakeSleep()))


async def read(reader: SegmentReader) -> set[str]:
    return {found.id async for found in reader.read()}


def segment_reads(store: MemoryStore) -> list[str]:
    return [call.key for call in store.calls if call.operation == "read"]


def test_a_growing_segment_is_rewritten() -> None:
    """One object holds every receipt so far; nothing new means no request."""

    async def scenario() -> None:
        store = MemoryStore()
        writer = SegmentWriter(store, "w")
        await writer.flush()
        assert store.puts == []
        add(writer, 1)
        await writer.flush()
        add(writer, 2, 3)
        assert writer.waiting
        await writer.flush()
        await writer.flush()
        assert store.keys_put == [segment_key("w", 1)] * 2
        assert ids_in(store.objects["_receipts/w/00000001.jsonl"]) == ["tr_1", "tr_2", "tr_3"]
        assert not writer.waiting

    asyncio.run(scenario())


def test_a_segment_holds_at_most_so_many_receipts() -> None:
    """A full segment is never written again, and the next receipts begin the next one, however short they are."""

    async def scenario() -> None:
        store = MemoryStore()
        writer = SegmentWriter(store, "w")
        for _ in range(SEGMENT_RECEIPTS - 1):
            writer.add(b"{}\n", None)
        await writer.flush()
        for _ in range(3):
            writer.add(b"{}\n", None)
        await writer.flush()
        lines = {key: data.count(b"\n") for key, data in store.objects.items()}
        assert lines == {segment_key("w", 1): SEGMENT_RECEIPTS, segment_key("w", 2): 2}
        assert store.keys_put == [segment_key("w", 1), segment_key("w", 1), segment_key("w", 2)]

    asyncio.run(scenario())


def test_many_receipts_at_once_are_cut_into_segments() -> None:
    """However many wait after an outage, no segment grows beyond its bounds, and no receipt is lost or doubled."""

    async def scenario() -> None:
        store = MemoryStore()
        writer = SegmentWriter(store, "w")
        count = 2 * SEGMENT_RECEIPTS + 7
        add(writer, *range(count))
        await writer.flush()
        kept = [ids_in(store.objects[segment_key("w", number)]) for number in range(1, len(store.objects) + 1)]
        assert [record_id for ids in kept for record_id in ids] == [f"tr_{number}" for number in range(count)]
        assert all(len(ids) <= SEGMENT_RECEIPTS for ids in kept)
        assert all(len(data) < SEGMENT_BYTES + 1_000 for data in store.objects.values())
        assert len(store.puts) == len(store.objects)

    asyncio.run(scenario())


def test_a_segment_is_about_a_mebibyte() -> None:
    """Large receipts fill a segment before their number does."""

    async def scenario() -> None:
        store = MemoryStore()
        writer = SegmentWriter(store, "w")
        add(writer, *range(30), padding=100_000)
        await writer.flush()
        sizes = [len(store.objects[key]) for key in sorted(store.objects)]
        assert [size >= SEGMENT_BYTES for size in sizes] == [True, True, False]
        assert max(sizes) < SEGMENT_BYTES + 110_000

    asyncio.run(scenario())


def sent_of(journal: Path) -> str | None:
    file = journal.with_suffix(".sent")
    return file.read_text() if file.exists() else None


def test_a_failed_flush_keeps_the_receipts(tmp_path: Path) -> None:
    """What the store did not take goes with the next flush, and nothing is said to be sent before."""

    async def scenario() -> None:
        memory = MemoryStore()
        store = FaultyStore(memory, StoreFault(action=Raise(error=DOWN)), StoreFault(action=StoreThenRaise(error=DOWN)))
        writer = SegmentWriter(store, "w")
        journal = tmp_path / "j.jsonl"
        writer.add(encode_line(receipt(1)), Mark(journal, 10))
        for _ in range(2):
            with pytest.raises(TryAgainError):
                await writer.flush()
            assert writer.waiting
            assert sent_of(journal) is None
        add(writer, 2)
        await writer.flush()
        assert await read(reader_of(memory)) == {"tr_1", "tr_2"}
        assert sent_of(journal) == "10"

    asyncio.run(scenario())


def test_a_write_that_arrives_long_after_it_was_given_up_takes_no_receipt_away() -> None:
    """A gateway may hold a request back and let it through when the segment has grown: it replaces nothing newer."""

    async def scenario() -> None:
        memory = MemoryStore()
        writer = SegmentWriter(FaultyStore(memory, StoreFault(action=StoreThenRaise(error=DOWN))), "w")
        add(writer, 1)
        with pytest.raises(TryAgainError):
            await writer.flush()
        late = memory.puts[0]
        add(writer, 2)
        await writer.flush()
        memory.keep(late.key, late.data)
        assert await read(reader_of(memory)) == {"tr_1", "tr_2"}

    asyncio.run(scenario())


def test_neither_does_one_that_was_tried_again_at_once() -> None:
    """The segment that came through at the second try is never written again, for the first may still arrive."""

    async def scenario() -> None:
        memory = MemoryStore()
        faulty = FaultyStore(memory, StoreFault(action=StoreThenRaise(error=DOWN)))
        policy = RetryPolicy(attempts=3, backoff_s=0, timeout_s=30)
        store = ReliableStore(faulty, policy, limiter=Limiter(8), breaker=Breaker("store"), sleep=FakeSleep())
        writer = SegmentWriter(store, "w")
        for number in (1, 2, 3):
            add(writer, number)
            await writer.flush()
        late = memory.puts[0]
        memory.keep(late.key, late.data)
        assert await read(reader_of(memory)) == {"tr_1", "tr_2", "tr_3"}
        assert len(memory.objects) == 2  # all goes on in one segment, as long as all goes well

    asyncio.run(scenario())


def test_each_journal_hears_how_far_it_is_sent(tmp_path: Path) -> None:
    """The last line of a journal speaks for those before it; every journal hears of its own."""

    async def scenario() -> None:
        writer = SegmentWriter(MemoryStore(), "w")
        one, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
        for number, (journal, end) in enumerate([(one, 10), (other, 7), (one, 20)]):
            writer.add(encode_line(receipt(number)), Mark(journal, end))
        writer.add(encode_line(receipt(9)), None)
        await writer.flush()
        assert (sent_of(one), sent_of(other)) == ("20", "7")
        other.with_suffix(".sent").unlink()
        writer.add(encode_line(receipt(10)), Mark(one, 30))
        await writer.flush()
        assert (sent_of(one), sent_of(other)) == ("30", None)

    asyncio.run(scenario())


def test_receipts_that_arrive_during_a_flush_are_not_forgotten() -> None:
    """Whatever comes while a segment is on its way is new to the next one."""

    async def scenario() -> None:
        store = MemoryStore()
        writer = SegmentWriter(store, "w")
        add(writer, 1)
        flushing = asyncio.gather(writer.flush(), writer.flush())
        await asyncio.sleep(0)
        add(writer, 2)
        await flushing
        await writer.flush()
        assert ids_in(store.objects[segment_key("w", 1)]) == ["tr_1", "tr_2"]

    asyncio.run(scenario())


def test_a_flush_ends_while_receipts_keep_coming() -> None:
    """It owes those that were there when it began: a segment is not sent anew for each that comes while it is sent."""

    class Busy(MemoryStore):
        """A store whose every answer finds another receipt waiting."""

        async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
            stored = await super().put(key, data, xxh3_128)
            add(writer, 100 + len(self.puts))
            return stored

    store = Busy()
    writer = SegmentWriter(store, "w")
    add(writer, 1, 2)

    async def scenario() -> None:
        await writer.flush()
        assert len(store.puts) == 1
        await asyncio.gather(writer.flush(), writer.flush())
        assert len(store.puts) == 2
        assert ids_in(store.objects[segment_key("w", 1)]) == ["tr_1", "tr_2", "tr_101"]
        assert writer.waiting == 1

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_a_probe_disturbs_no_receipts() -> None:
    """It writes an object of its own, empty, at any time: also while a flush waits for a store that is away."""

    async def scenario() -> None:
        store = MemoryStore()
        writer = SegmentWriter(store, "w")
        add(writer, 1)
        await asyncio.gather(writer.flush(), write_probe(store, "w"), write_probe(store, "w"))
        assert store.objects[segment_key("w", 0)] == b""
        assert ids_in(store.objects[segment_key("w", 1)]) == ["tr_1"]
        assert await read(reader_of(store)) == {"tr_1"}
        assert segment_key("w", 0) not in segment_reads(store)

    asyncio.run(scenario())


def test_every_writers_receipts_are_read() -> None:
    """Servers share a prefix without knowing of each other."""

    async def scenario() -> None:
        store = MemoryStore(page_size=2)
        for name in ("a", "b", "c"):
            writer = SegmentWriter(store, name)
            add(writer, *range(ord(name), ord(name) + 2))
            await writer.flush()
        assert await read(reader_of(store)) == {"tr_97", "tr_98", "tr_99", "tr_100"}

    asyncio.run(scenario())


def test_only_new_and_changed_segments_are_read_again() -> None:
    """Reading the state of a run once more costs what changed, not what is there."""

    async def scenario() -> None:
        store = MemoryStore()
        quiet, busy = SegmentWriter(store, "quiet"), SegmentWriter(store, "busy")
        add(quiet, 1)
        add(busy, 2)
        await asyncio.gather(quiet.flush(), busy.flush())
        reader = reader_of(store)
        assert await read(reader) == {"tr_1", "tr_2"}
        store.calls.clear()
        assert await read(reader) == set()
        assert segment_reads(store) == []
        add(busy, 3)
        await busy.flush()
        store.calls.clear()
        assert await read(reader) == {"tr_2", "tr_3"}
        assert segment_reads(store) == [busy.key]

    asyncio.run(scenario())


def test_a_read_that_breaks_is_begun_again() -> None:
    """A hiccup of the store while a segment is read costs a retry, and neither doubles nor loses a receipt."""

    async def scenario() -> None:
        memory = MemoryStore()
        writer = SegmentWriter(memory, "w")
        add(writer, *range(5))
        await writer.flush()
        breaks = (Raise(error=DOWN), ShortRead())
        store = FaultyStore(memory, *(StoreFault(action=action, match=lambda op, _: op == "read") for action in breaks))
        found = [item.id async for item in reader_of(store).read()]
        assert sorted(found) == [f"tr_{number}" for number in range(5)]

    asyncio.run(scenario())


def test_a_segment_that_was_not_read_is_read_next_time() -> None:
    """A store that keeps failing is an error, and what it kept back is still new afterwards."""

    async def scenario() -> None:
        memory = MemoryStore()
        writer = SegmentWriter(memory, "w")
        add(writer, 1)
        await writer.flush()
        store = FaultyStore(memory, StoreFault(action=Raise(error=DOWN), match=lambda op, _: op == "read", times=3))
        reader = reader_of(store)
        with pytest.raises(StoreError):
            await read(reader)
        assert await read(reader) == {"tr_1"}

    asyncio.run(scenario())


def test_what_is_no_segment_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Foreign objects, torn and hostile lines, and sizes that no writer makes hide no receipt beside them."""

    async def scenario() -> None:
        store = MemoryStore()
        good = encode_line(receipt(1))
        store.keep("_receipts/w/00000001.jsonl", b"noise\n" + good + good[:-20])
        for key in ("_receipts/readme.txt", "_receipts/w/1.jsonl", "_receipts/a/b/00000001.jsonl", "_receipts/../x"):
            store.keep(key, good.replace(b"tr_1", b"tr_2"))
        store.keep("_receipts/huge/00000001.jsonl", bytes(segments.MAX_SEGMENT_BYTES + 1))
        store.keep("_receiptsx/00000001.jsonl", b"not ours")
        assert await read(reader_of(store)) == {"tr_1"}

    caplog.set_level(logging.WARNING)
    asyncio.run(scenario())
    assert len(caplog.records) == 7
    assert all(record.getMessage().startswith("skipped") for record in caplog.records)


def test_a_segment_that_disappears_while_it_is_read_is_empty() -> None:
    """Somebody may tidy up: what is gone between listing and reading is no failure."""

    async def scenario() -> None:
        memory = MemoryStore()
        writer = SegmentWriter(memory, "w")
        add(writer, 1)
        await writer.flush()
        stall = Stall()
        store = FaultyStore(memory, StoreFault(action=stall, match=lambda op, _: op == "read"))
        reading = asyncio.create_task(read(reader_of(store)))
        await stall.reached.awaited()
        memory.objects.clear()
        stall.released.happen()
        assert await reading == set()

    asyncio.run(scenario())


def test_writers_have_names_that_nobody_else_has() -> None:
    """Process and chance make them distinct; they are plain parts of a key."""
    names = {make_writer_id() for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"[A-Za-z0-9-]{1,100}", name, re.ASCII) for name in names)


def test_a_segment_is_decoded_as_far_as_it_is_one(caplog: pytest.LogCaptureFixture) -> None:
    """Lines that are no receipts are named with the segment they stand in."""
    data = encode_line(receipt(1)) + b"{}\n" + encode_line(receipt(2))
    assert [found.id for found in decode_segment("the-key", data)] == ["tr_1", "tr_2"]
    assert "the-key" in caplog.text


def test_a_segment_of_noise_is_a_few_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever can write to the mirror cannot flood its readers' logs."""
    assert decode_segment("the-key", b"noise\n" * 5_000) == []
    assert len(caplog.records) <= 5
    assert "4997 more" in caplog.text
