"""Kinds of sidecars that an option names as no record has them: most likely a slip, which would go unnoticed."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from mirror.names import KNOWN_KINDS
from mirror.record import find_kinds
from mirror.terminal.output import Output


def tell_slips(kinds: Collection[str], directories: Iterable[Path], option: str, output: Output) -> None:
    """Say of each kind that seems to be a slip so, which would copy or keep what was to be left out.

    The directories are looked at only for kinds other than those in use everywhere.
    """
    if KNOWN_KINDS.issuperset(kinds):
        return
    seen: set[str] = set()
    for directory in directories:
        with contextlib.suppress(OSError):  # whoever reads it next says so
            seen |= find_kinds(directory)
    for slip in kind_slips(kinds, seen, option):
        output.remark(slip)


def kind_slips(kinds: Collection[str], seen: Collection[str], option: str) -> Iterator[str]:
    """Yield a sentence for each kind that no record has while one has a kind of nearly that name.

    The kinds in use everywhere are taken to be meant.

    Args:
        kinds: as the user named them.
        seen: those that records have.
        option: which named them.
    """
    for kind in sorted(set(kinds) - KNOWN_KINDS - set(seen)):
        nearest = difflib.get_close_matches(kind, sorted(seen), n=1)
        if nearest:
            yield f"no record has {kind!r}, which {option} names; there is {nearest[0]!r}"
