"""What a store lists in the order of UTF-16 comes in the order of UTF-8, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from mirror.store import ObjectInfo
from mirror.stores.byte_order import by_bytes

NAMES = st.text(st.sampled_from("ab/é\ud7ff\ue000\uffee\U00010000\U0010ffff"), min_size=1, max_size=6)


def listed(names: list[str], page: int) -> list[list[str]]:
    async def pages() -> AsyncIterator[list[ObjectInfo]]:
        for start in range(0, len(names), page):
            yield [ObjectInfo(key=name, size_bytes=1) for name in names[start : start + page]]

    async def ordered() -> list[list[str]]:
        return [[info.key for info in found] async for found in by_bytes(pages())]

    return asyncio.run(ordered())


@given(st.sets(NAMES, max_size=40), st.integers(1, 9))
def test_utf_16_order_becomes_utf_8_order(names: set[str], page: int) -> None:
    """Whatever the names, and wherever a page ends."""
    pages = listed(sorted(names, key=lambda name: name.encode("utf-16-be")), page)
    assert [name for found in pages for name in found] == sorted(names, key=str.encode)
    assert [] not in pages


@given(st.sets(NAMES, max_size=40), st.integers(1, 9))
def test_utf_8_order_stays(names: set[str], page: int) -> None:
    """A store that orders by UTF-8 loses nothing."""
    pages = listed(sorted(names, key=str.encode), page)
    assert [name for found in pages for name in found] == sorted(names, key=str.encode)


def test_plain_names_are_not_held_back() -> None:
    """A page is passed on as it comes."""
    assert listed(["a", "b", "c", "é"], 2) == [["a", "b"], ["c", "é"]]
