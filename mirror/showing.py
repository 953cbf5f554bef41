"""How a wrong value looks in the sentence that refuses it, and what may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_CHARS = 200


def show(value: object) -> str:
    """Return a value as Python writes it, not all of it where it is long: nobody wants to read a page."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a table of tables of tables
        return f"this {type(value).__name__}"
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."


def suggest(name: object, known: Iterable[str], otherwise: str, *, prefix: str = "") -> str:
    """Return how a sentence about an unknown name ends: with the known name that is most like it, or ``otherwise``."""
    nearest = difflib.get_close_matches(name[:MAX_CHARS], list(known), n=1) if isinstance(name, str) else []
    return f"did you mean {prefix + nearest[0]!r}?" if nearest else otherwise
