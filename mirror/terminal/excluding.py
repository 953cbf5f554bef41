"""Kinds of sidecars that a mirror leaves out by a name that no record has: most likely a slip, which would copy all."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from mirror.names import KNOWN_KINDS
from mirror.record import find_kinds


def find_slips(exclude: Collection[str], directories: Iterable[Path]) -> Iterator[str]:
    """Yield a sentence for each excluded kind that no record has while one has a kind of nearly that name.

    The kinds in use everywhere are taken to be meant; only for another are the directories looked at.
    """
    doubtful = sorted(set(exclude) - KNOWN_KINDS)
    if not doubtful:
        return
    seen: set[str] = set()
    for directory in directories:
        with contextlib.suppress(OSError):  # whoever reads it next says so
            seen |= find_kinds(directory)
    for kind in doubtful:
        nearest = difflib.get_close_matches(kind, sorted(seen), n=1)
        if kind not in seen and nearest:
            yield f"no record has {kind!r}, which --exclude names; there is {nearest[0]!r}"
