"""What every store does, whatever is behind it: each test runs on all of them."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import itertools
import random
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import xxhash

from mirror.errors import NotFoundError, StoreError
from mirror.reading import AT_ONCE_BYTES, read_at, reading_threads
from mirror.store import PART_BYTES, WHOLE_BYTES, Data, ObjectInfo, Store
from tests.mirror.store_kinds import ALL_KINDS, Kind, fresh_kind, get, keys_of, put

pytestmark = pytest.mark.integration

ODD_NAMES = [
    "tr_#1.json.zst",
    "tr_?v=2.json.zst",
    "tr_100%25.json.zst",
    "tr_a+b c.json.zst",
    "tr_ü\N{GRINNING FACE}.json.zst",
    "tr_[1].json.zst",
    "tr_a::b.json.zst",
    "tr_*.json.zst",
    "tr_{x}&y=1;'\"@,$!~.json.zst",
]
LONGEST_NAME = "ü" * 123 + ".json.zst"  # the 255 bytes that a file name may have


@pytest.fixture(params=ALL_KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """Every kind of store: each test that takes it must hold for all of them."""
    return fresh_kind(request.param, request, tmp_path)


def test_what_is_put_is_read_back_byte_for_byte(kind: Kind) -> None:
    """Any bytes come back as they were sent, no bytes at all included, to us and to another client."""
    contents = {"some.json.zst": random.Random(1).randbytes(70_001), "none.json.zst": b"", "one.json.zst": b"\n"}  # noqa: S311 - no secrets

    async def use(store: Store) -> dict[str, bytes]:
        for key, content in contents.items():
            await put(store, key, content)
        return {key: await get(store, key) for key in contents}

    assert kind.run(use) == contents
    if kind.place is not None:
        assert kind.place.objects() == contents


def test_what_is_put_may_be_a_view_of_memory(kind: Kind, tmp_path: Path) -> None:
    """As files are read: of nothing, of bytes, of pages of the system's; in one request or in parts."""
    whole = random.Random(2).randbytes(AT_ONCE_BYTES + 1)  # noqa: S311 - no secrets
    contents = {"none.json.zst": b"", "few.json.zst": whole[:7], "pages.json.zst": whole}
    threads = reading_threads()

    async def view(content: bytes) -> memoryview:
        file = tmp_path / "content"
        file.write_bytes(content)
        with file.open("rb") as opened:
            return await read_at(threads, opened.fileno(), len(content), 0)

    async def parts() -> AsyncIterator[Data]:
        yield await view(whole * 8)
        yield await view(whole)

    async def use(store: Store) -> dict[str, bytes]:
        for key, content in contents.items():
            data = await view(content)
            await store.put(key, data, xxhash.xxh3_128_hexdigest(data))
        await store.put_parts("parts.json.zst", parts, 9 * len(whole))
        return {key: await get(store, key) for key in (*contents, "parts.json.zst")}

    try:
        assert kind.run(use) == {**contents, "parts.json.zst": whole * 9}
    finally:
        threads.close()


def test_the_answer_to_a_put_is_what_a_listing_says(kind: Kind) -> None:
    """ETag, version and MD5 of the answer are those of the object: nobody has to ask again."""
    content = b"identity" * 100

    async def use(store: Store) -> None:
        stored = await put(store, "tr_1.json.zst", content)
        (listed,) = [info async for page in store.list_pages() for info in page]
        described = await store.stat("tr_1.json.zst")
        assert described is not None
        assert (listed.key, listed.size_bytes) == (described.key, described.size_bytes) == ("tr_1.json.zst", 800)
        assert stored.etag == listed.etag == described.etag
        assert stored.version_id == described.version_id
        if stored.md5 is not None:
            assert stored.md5 == hashlib.md5(content, usedforsecurity=False).hexdigest()
        assert (stored.etag is not None) == (kind.name not in {"directory", "memory"})
        assert (stored.version_id is not None) == (kind.name in {"s3_versioned", "s3_fsspec_versioned", "gcs"})

    kind.run(use)


def test_a_second_put_replaces_the_first(kind: Kind) -> None:
    """The newer bytes are what is read, and a store that knows identities gives them another."""

    async def use(store: Store) -> None:
        first = await put(store, "tr_1.json.zst", b"older and longer")
        second = await put(store, "tr_1.json.zst", b"newer")
        assert await get(store, "tr_1.json.zst") == b"newer"
        assert await keys_of(store) == ["tr_1.json.zst"]
        if first.etag is not None:
            assert (first.etag, first.version_id) != (second.etag, second.version_id)

    kind.run(use)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_kept(directory_and_servers: Kind, name: str) -> None:
    """A name with characters that URLs, globs and fsspec give a meaning to is just a name."""
    kind = directory_and_servers

    async def use(store: Store) -> None:
        await put(store, name, name.encode())
        assert await get(store, name) == name.encode()
        described = await store.stat(name)
        assert described is not None
        assert described.size_bytes == len(name.encode())
        assert name in await keys_of(store)
        assert name in await keys_of(store, name[:-1])

    kind.run(use)
    assert kind.place is not None
    assert kind.place.objects()[name] == name.encode()


@pytest.mark.parametrize("name", ["directory", "s3"])  # the GCS server here keeps files under longer names of its own
def test_the_longest_name_is_kept(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A name that just fits a directory entry on the server's disk fits the mirror too."""

    async def use(store: Store) -> None:
        assert len(LONGEST_NAME.encode()) == 255
        await put(store, LONGEST_NAME, b"long")
        assert await get(store, LONGEST_NAME) == b"long"

    fresh_kind(name, request, tmp_path).run(use)


def test_what_is_absent_is_said_to_be_absent(kind: Kind) -> None:
    """An object that is not there has no description, cannot be read, and is in no listing."""

    async def use(store: Store) -> None:
        assert await store.stat("tr_1.json.zst") is None
        with pytest.raises(NotFoundError):
            await get(store, "tr_1.json.zst")
        assert await keys_of(store) == []
        await put(store, "tr_1.json.zst.more", b"")
        assert await store.stat("tr_1.json.zst") is None

    kind.run(use)


# Not the versioned bucket: the S3 server here lists those in an order of its own, which S3 does not.
@pytest.mark.parametrize("kind", sorted(set(ALL_KINDS) - {"s3_versioned", "s3_fsspec_versioned"}), indirect=True)
def test_listings_ascend_by_bytes_and_can_be_begun_anywhere(kind: Kind) -> None:
    """Keys ascend by their UTF-8 bytes; a prefix and a key to begin behind select among them."""
    keys = [
        "Z.json.zst",
        "_receipts/host-1/00000000.jsonl",
        "_receipts/host-1/00000001.jsonl",
        "_receipts/host-2/00000000.jsonl",
        "a b.json.zst",
        "index/eval/step-1.json",
        "index/train/step-10.json",
        "tr_1.json.zst",
        "tr_1.tokens.zst",
        "tr_~.json.zst",
        "tr_ü.json.zst",
        "tr_～.json.zst",  # noqa: RUF001 - behind the next in UTF-16, before it in UTF-8
        "tr_\N{GRINNING FACE}.json.zst",
    ]
    assert keys == sorted(keys, key=str.encode)

    async def use(store: Store) -> None:
        for key in reversed(keys):
            await put(store, key, key.encode())
        for prefix, after in itertools.product(["", "tr_", "_receipts/", "index/train/step-1", "none"], ["", *keys]):
            expected = [key for key in keys if key.startswith(prefix) and key.encode() > after.encode()]
            assert await keys_of(store, prefix, after=after) == expected, (prefix, after)

    kind.run(use)


def test_a_long_listing_comes_in_pages(directory_and_servers: Kind) -> None:
    """More objects than a store answers at once are all listed, once and in order, in pages that are bounded."""
    keys = [f"tr_{number:04d}.json.zst" for number in range(1_030)]

    async def use(store: Store) -> list[list[ObjectInfo]]:
        todo = iter(keys)

        async def work() -> None:
            for key in todo:
                await put(store, key, b".")

        await asyncio.gather(*(work() for _ in range(16)))
        assert await keys_of(store, after=keys[500]) == keys[501:]
        return [page async for page in store.list_pages("tr_")]

    pages = directory_and_servers.run(use)
    assert [info.key for page in pages for info in page] == keys
    assert max(map(len, pages)) <= 1_000


def test_a_large_object_is_put_in_parts(kind: Kind) -> None:
    """What is too large for one request arrives whole, and its answer is what a listing says."""
    size = WHOLE_BYTES + 3_000_001

    async def parts() -> AsyncIterator[bytes]:
        rng = random.Random(3)  # noqa: S311 - no secrets
        for start in range(0, size, PART_BYTES):
            yield rng.randbytes(min(PART_BYTES, size - start))

    async def use(store: Store) -> None:
        sent = xxhash.xxh3_128()
        async for part in parts():
            sent.update(part)
        stored = await store.put_parts("tr_1.experts.zst", parts, size)
        (listed,) = [info async for page in store.list_pages() for info in page]
        described = await store.stat("tr_1.experts.zst")
        assert described is not None
        assert (listed.size_bytes, listed.etag) == (size, stored.etag)
        assert described.version_id == stored.version_id
        read = xxhash.xxh3_128()
        async for chunk in store.read("tr_1.experts.zst"):
            assert len(chunk) <= PART_BYTES
            read.update(chunk)
        assert read.hexdigest() == sent.hexdigest()

    kind.run(use)


def test_an_upload_in_parts_that_breaks_leaves_nothing(kind: Kind) -> None:
    """When a file cannot be read to its end, no object appears, and what was there stays."""

    async def broken() -> AsyncIterator[bytes]:
        yield bytes(5 << 20)
        raise OSError("the disk is gone")

    async def use(store: Store) -> None:
        await put(store, "old.experts.zst", b"old")
        for key in ("old.experts.zst", "new.experts.zst"):
            with pytest.raises((OSError, StoreError)):
                await store.put_parts(key, broken, WHOLE_BYTES + 1)
        assert await get(store, "old.experts.zst") == b"old"
        assert await keys_of(store) == ["old.experts.zst"]

    kind.run(use)


def test_a_cancelled_put_has_happened_or_not(kind: Kind) -> None:
    """Wherever a put is cancelled the object is old or new, never something else, and the store can go on."""
    old, new = b"o" * 300_000, b"n" * 300_000

    async def use(store: Store) -> None:
        await put(store, "tr_1.tokens.zst", old)
        for turns in range(12):
            task = asyncio.create_task(put(store, "tr_1.tokens.zst", new))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await get(store, "tr_1.tokens.zst") in (old, new)
        await put(store, "tr_2.tokens.zst", new)
        assert await get(store, "tr_2.tokens.zst") == new

    kind.run(use)


def test_a_refresh_changes_nothing_but_the_session(kind: Kind) -> None:
    """After the credentials were read again, before the first call and between two, the store works as before."""

    async def use(store: Store) -> None:
        await store.refresh()
        await put(store, "tr_1.json.zst", b"one")
        await store.refresh()
        await put(store, "tr_2.json.zst", b"two")
        await asyncio.gather(store.refresh(), store.refresh())
        assert await keys_of(store) == ["tr_1.json.zst", "tr_2.json.zst"]

    kind.run(use)


def test_closing_leaves_nothing_open(kind: Kind) -> None:
    """After ``aclose`` no session, connection or file is left for the garbage collector to complain about."""

    async def use(store: Store) -> None:
        await put(store, "tr_1.json.zst", b"one")
        await store.refresh()
        assert await get(store, "tr_1.json.zst") == b"one"
        await store.refresh()
        await store.aclose()

    gc.collect()  # what others left
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        kind.run(use)
        gc.collect()
    assert [str(complaint.message) for complaint in complaints if complaint.category is ResourceWarning] == []


@pytest.fixture(params=["directory", "s3", "gcs", "azure", "azure_fsspec"])
def directory_and_servers(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """The kinds of store that are first class, where one run of a longer test is enough."""
    return fresh_kind(request.param, request, tmp_path)
