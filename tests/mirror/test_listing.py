"""A listing by ranges of keys at once says what one listing from start to end says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import StoreError, TryAgainError
from mirror.listing import (
    MAX_RANGES,
    KeyRange,
    OutOfOrderError,
    files_in_a_range,
    list_ranges,
    ranges_between,
)
from mirror.store import PAGE, ObjectInfo, Store
from mirror.testing.stores import MemoryStore
from tests.mirror.store_kinds import put

KEYS = st.text(alphabet="ab.-/ü\N{GRINNING FACE}\ue000", min_size=1, max_size=4)


async def keys_in(store: Store, ranges: list[KeyRange]) -> dict[KeyRange, list[str]]:
    """List, and return the keys of each range in the order in which they came."""
    found: dict[KeyRange, list[str]] = {keys: [] for keys in ranges}
    async for keys, page in list_ranges(store, ranges):
        found[keys] += [info.key for info in page or ()]
    return found


@given(keys=st.sets(KEYS, max_size=30), bounds=st.sets(KEYS, max_size=8), page_size=st.integers(1, 7))
def test_every_key_is_in_the_one_range_that_it_belongs_to(keys: set[str], bounds: set[str], page_size: int) -> None:
    """None is missed, none comes twice, and within a range they ascend by their UTF-8 bytes; bounds need not exist."""

    async def listed_by_ranges() -> dict[KeyRange, list[str]]:
        store = MemoryStore(page_size=page_size)
        for key in keys:
            await put(store, key, b"")
        return await keys_in(store, ranges_between(sorted(bounds, key=str.encode)))

    found = asyncio.run(listed_by_ranges())
    assert [key for part in found.values() for key in part] == sorted(keys, key=str.encode)
    for part, listed in found.items():
        assert all(part.after.encode() < key.encode() for key in listed)
        assert all(part.until is None or key.encode() <= part.until.encode() for key in listed)


@given(files=st.integers(1, 5_000_000))
def test_ranges_are_few_and_of_whole_pages(files: int) -> None:
    """However many files there are: no more ranges than that, and none that would ask for a page in part."""
    each = files_in_a_range(files)
    assert each % PAGE == 0
    assert files / each <= MAX_RANGES


class Scripted(MemoryStore):
    """Lists what it is told to, wherever a listing is to begin."""

    def __init__(self, *pages: list[str], error: Exception | None = None) -> None:
        super().__init__()
        self._pages = pages
        self._error = error
        self.at_once = self.most_at_once = 0

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:  # noqa: ARG002 - a Store's
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            for page in self._pages:
                await asyncio.sleep(0)
                yield [ObjectInfo(key=key, size_bytes=0) for key in page]
            if self._error is not None:
                raise self._error
        finally:
            self.at_once -= 1


@pytest.mark.parametrize("pages", [[["c", "b"]], [["b"], ["a"]], [["a", "b"], ["b"]]])
def test_a_store_that_lists_in_no_order_is_noticed(pages: list[list[str]]) -> None:
    """Ranges would pass over keys of it; a single listing takes them as they come."""
    with pytest.raises(OutOfOrderError):
        asyncio.run(keys_in(Scripted(*pages), ranges_between(["m"])))
    everything = KeyRange()
    found = asyncio.run(keys_in(Scripted(*pages), [everything]))
    assert found == {everything: [key for page in pages for key in page]}


def test_a_range_that_cannot_be_listed_ends_the_whole_listing() -> None:
    """What is not known must not pass for what is not there."""
    store = Scripted(["a"], error=TryAgainError("list", "", "connection reset"))
    with pytest.raises(StoreError, match="connection reset"):
        asyncio.run(keys_in(store, [KeyRange()]))
    assert store.at_once == 0


def test_ranges_are_listed_at_once() -> None:
    """All of them are under way together, and none is when the listing was left early."""
    store = Scripted(["n"], ["o"])

    async def one_page() -> None:
        listing = list_ranges(store, ranges_between(["b", "d", "f", "h"]))
        await anext(listing)
        await listing.aclose()

    asyncio.run(one_page())
    assert store.most_at_once > 1
    assert store.at_once == 0
