"""The stores for tests behave like real ones, and fail exactly as their script says."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest
import xxhash

from mirror.errors import NotFoundError, TryAgainError
from mirror.store import Store, Stored, read_whole
from mirror.testing.faults import requests_to
from mirror.testing.stores import (
    FaultyStore,
    FlipBit,
    MemoryStore,
    Moment,
    Raise,
    ShortRead,
    Stall,
    StoreFault,
    StoreThenRaise,
)

T = TypeVar("T")
DOWN = TryAgainError("put", "k", "connection refused")


def run(scenario: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(scenario(), 60)

    return asyncio.run(bounded())


async def put(store: Store, key: str, data: bytes = b"data") -> Stored:
    return await store.put(key, data, xxhash.xxh3_128_hexdigest(data))


def test_memory_keeps_what_it_is_given_and_says_what_that_is() -> None:
    """Bytes, size, ETag and version come back as from a bucket; every write is remembered."""

    async def scenario() -> None:
        store = MemoryStore(is_versioned=True)
        stored = await put(store, "k")
        assert stored.etag == hashlib.md5(b"data").hexdigest()  # noqa: S324 - what S3 answers
        info = await store.stat("k")
        assert info is not None
        assert (info.size_bytes, info.etag, info.version_id) == (4, stored.etag, stored.version_id)
        assert await read_whole(store, "k", max_bytes=10) == b"data"
        assert await store.stat("other") is None
        with pytest.raises(NotFoundError):
            await read_whole(store, "other", max_bytes=10)
        assert (await put(store, "k")).version_id != stored.version_id
        assert [(write.key, write.data) for write in store.puts] == [("k", b"data")] * 2

    run(scenario)


def test_memory_refuses_what_its_checksum_contradicts() -> None:
    """As a store does that checks uploads; one that does not keeps anything."""

    async def scenario() -> None:
        with pytest.raises(TryAgainError, match="BadDigest"):
            await MemoryStore().put("k", b"other", xxhash.xxh3_128_hexdigest(b"data"))
        careless = MemoryStore(checks_uploads=False)
        await careless.put("k", b"other", xxhash.xxh3_128_hexdigest(b"data"))
        assert careless.objects == {"k": b"other"}

    run(scenario)


def test_memory_has_an_object_of_parts_whole_or_not_at_all() -> None:
    """A part that fails leaves nothing; the ETag is no MD5 of the whole."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"12"
        yield b"3"

    async def broken() -> AsyncIterator[bytes]:
        yield b"12"
        raise DOWN

    async def scenario() -> None:
        store = MemoryStore()
        stored = await store.put_parts("k", parts, 3)
        assert store.objects == {"k": b"123"}
        assert str(stored.etag).endswith("-2")
        for bad, size in ((broken, 3), (parts, 4)):
            with pytest.raises(TryAgainError):
                await store.put_parts("other", bad, size)
        assert "other" not in store.objects

    run(scenario)


def test_memory_lists_in_the_order_of_utf8_bytes() -> None:
    """In pages, from any point, below any prefix."""

    async def keys(store: MemoryStore, prefix: str = "", after: str = "") -> list[list[str]]:
        return [[info.key for info in page] async for page in store.list_pages(prefix, after=after)]

    async def scenario() -> None:
        store = MemoryStore(page_size=2)
        for key in ("b", "a/2", "ü", "a/1", "\U0001f389", "\uffee"):
            store.keep(key, b"")
        assert await keys(store) == [["a/1", "a/2"], ["b", "ü"], ["\uffee", "\U0001f389"]]
        assert await keys(store, "a/") == [["a/1", "a/2"]]
        assert await keys(store, "", "b") == [["ü", "\uffee"], ["\U0001f389"]]
        assert await keys(store, "none") == [[]]
        assert store.puts == []

    run(scenario)


def test_a_script_is_followed_and_then_over() -> None:
    """Each call takes the first fault that matches it; afterwards the store is healthy."""

    async def scenario() -> None:
        memory = MemoryStore()
        store = FaultyStore(
            memory,
            StoreFault(action=Raise(error=DOWN), match=requests_to("put", "b"), times=2),
            StoreFault(action=StoreThenRaise(error=DOWN)),
        )
        with pytest.raises(TryAgainError):
            await put(store, "b")
        assert memory.objects == {}
        with pytest.raises(TryAgainError):
            await put(store, "a")
        assert set(memory.objects) == {"a"}
        assert store.remaining == 1
        with pytest.raises(TryAgainError):
            await put(store, "b")
        await put(store, "b")
        store.add(StoreFault(action=Raise(error=KeyError), times=5))
        with pytest.raises(KeyError, match="stat"):
            await store.stat("b")
        store.heal()
        assert await store.stat("b") is not None

    run(scenario)


def test_a_wire_flips_bits_both_ways() -> None:
    """An upload is refused where it is checked; a download comes back changed."""

    async def scenario() -> None:
        store = FaultyStore(MemoryStore(), StoreFault(action=FlipBit(), times=2))
        with pytest.raises(TryAgainError, match="BadDigest"):
            await put(store, "k")
        store.heal()
        await put(store, "k")
        store.add(StoreFault(action=FlipBit()))
        assert await read_whole(store, "k", max_bytes=10) == b"eata"
        assert await read_whole(store, "k", max_bytes=10) == b"data"

    run(scenario)


def test_a_read_breaks_on_its_way() -> None:
    """What came before is there, then an error."""

    async def scenario() -> None:
        store = FaultyStore(MemoryStore(), StoreFault(action=ShortRead(), match=requests_to("read")))
        await put(store, "k")
        reading = store.read("k")
        assert await anext(reading) == b"da"
        with pytest.raises(TryAgainError, match="ended early"):
            await anext(reading)
        assert await read_whole(store, "k", max_bytes=10) == b"data"

    run(scenario)


def test_a_stall_holds_a_call_until_it_is_released_by_any_thread() -> None:
    """The test knows when a call has come so far; cancelled, it says so and does nothing."""

    async def scenario() -> None:
        memory = MemoryStore()
        first, second = Stall(), Stall()
        store = FaultyStore(memory, StoreFault(action=first), StoreFault(action=second))
        held = asyncio.create_task(put(store, "a"))
        await first.reached.awaited()
        assert memory.objects == {}
        threading.Thread(target=first.released.happen).start()
        await held
        cancelled = asyncio.create_task(put(store, "b"))
        await second.reached.awaited()
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert second.cancelled.happened
        second.released.happen()
        assert set(memory.objects) == {"a"}

    run(scenario)


def test_a_moment_happens_once() -> None:
    """Whoever waits before or after it goes on; who waits in vain is told."""
    moment = Moment()
    with pytest.raises(TimeoutError):
        moment.wait(0.001)
    moment.happen()
    moment.happen()
    moment.wait()
    run(moment.awaited)
    assert moment.happened
