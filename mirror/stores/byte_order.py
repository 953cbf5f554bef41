"""Listings in the order of their keys' UTF-8 bytes, from a store that orders them by UTF-16.

The two differ only from the first character on that UTF-16 writes as a surrogate or behind those (U+E000 and up). So
keys that are alike up to such a character lie together in both orders, and sorting them among themselves is enough.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from mirror.store import ObjectInfo

_REORDERED = re.compile("[\ue000-\U0010ffff]")


async def by_bytes(pages: AsyncIterator[list[ObjectInfo]]) -> AsyncIterator[list[ObjectInfo]]:
    """Yield the pages with what UTF-16 orders otherwise put right; only such keys are held back."""
    held: list[ObjectInfo] = []
    stem = ""
    async for page in pages:
        ordered: list[ObjectInfo] = []
        for info in page:
            found = _REORDERED.search(info.key)
            if held and (found is None or info.key[: found.start()] != stem):
                ordered += sorted(held)
                held = []
            if found is None:
                ordered.append(info)
            else:
                stem = info.key[: found.start()]
                held.append(info)
        if ordered:
            yield ordered
    if held:
        yield sorted(held)
