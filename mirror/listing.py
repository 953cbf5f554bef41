"""A whole mirror's listing by ranges of keys at once: as many round trips are under way as there are ranges."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass

from mirror.store import PAGE, ObjectInfo, Store

MAX_RANGES = 16
# Files in the first range: no whole page, so that round numbers of files do not end the last range where a page ends.
# A driver that cannot tell there whether a listing is whole has to ask another.
FIRST_RANGE = 617


_Pages = asyncio.Queue[tuple["KeyRange", list[ObjectInfo] | Exception | None]]


class OutOfOrderError(Exception):
    """The store does not list by ascending keys, or not from where it was asked to: ranges mean nothing to it."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys behind ``after`` up to ``until``, by their UTF-8 bytes."""

    after: str = ""
    until: str | None = None  # None: to the end


def files_in_a_range(files: int) -> int:
    """Return how many files make up a range: whole pages, so that none is asked for twice."""
    return -(-files // (MAX_RANGES * PAGE)) * PAGE


def ranges_between(bounds: Sequence[str]) -> list[KeyRange]:
    """Return the ranges that these ascending keys part all keys into."""
    return [KeyRange(after, until) for after, until in zip(["", *bounds], [*bounds, None], strict=True)]


async def list_ranges(
    store: Store, ranges: Sequence[KeyRange]
) -> AsyncGenerator[tuple[KeyRange, list[ObjectInfo] | None], None]:
    """Yield every page with its range, ascending within a range; None ends a range.

    Raises:
        OutOfOrderError: the store's keys do not ascend; only noticed where there is more than one range.
        StoreError: the store could not be listed.
    """
    pages: _Pages = asyncio.Queue(maxsize=len(ranges))
    listings = [asyncio.create_task(_list(store, keys, pages, check_order=len(ranges) > 1)) for keys in ranges]
    unended = len(ranges)
    try:
        while unended:
            keys, found = await pages.get()
            if isinstance(found, Exception):
                raise found
            unended -= found is None
            yield keys, found
    finally:
        for listing in listings:
            listing.cancel()
        await asyncio.gather(*listings, return_exceptions=True)


async def _list(store: Store, keys: KeyRange, pages: _Pages, *, check_order: bool) -> None:
    try:
        async for page in _pages_of(store, keys, check_order=check_order):
            await pages.put((keys, page))
    except Exception as error:  # noqa: BLE001 - it belongs to whoever takes the pages
        await pages.put((keys, error))
    else:
        await pages.put((keys, None))


async def _pages_of(store: Store, keys: KeyRange, *, check_order: bool) -> AsyncIterator[list[ObjectInfo]]:
    last = keys.after
    async for page in store.list_pages(after=keys.after):
        if check_order:
            names = [last, *(found.key for found in page)]
            if names != sorted(names):
                raise OutOfOrderError
            last = names[-1]
        if keys.until is not None and last >= keys.until:
            yield [found for found in page if found.key <= keys.until]
            return
        yield page
