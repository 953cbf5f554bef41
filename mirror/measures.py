"""Times and sizes as people write them: ``90``, ``10m``, ``2h``; ``67108864``, ``64MiB``, ``64MB``."""

from __future__ import annotations

import math
import re

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LETTERS = "kmgt"
_TIME = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([smhd]?)")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])(i?b)?|b)?", re.IGNORECASE)


def parse_seconds(text: str) -> float:
    """Return a length of time in seconds.

    Raises:
        ValueError: it is none.
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a time such as 90, 10m or 2h")
    return float(found[1]) * _UNITS_S[found[2]]  # infinite when it is written with hundreds of digits


def parse_bytes(text: str) -> int:
    """Return a size in bytes: ``MB`` is a million of them, ``MiB`` and ``M`` are 1,048,576.

    Raises:
        ValueError: it is none.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a size such as 67108864, 64MiB or 64MB")
    letter, unit = (found[2] or "").lower(), (found[3] or "").lower()
    step = 1000 if unit == "b" else 1024
    size_bytes = float(found[1]) * step ** (_LETTERS.index(letter) + 1 if letter else 0)
    if math.isinf(size_bytes):
        raise ValueError("the size is too large")
    return int(size_bytes)


def show_seconds(seconds: float) -> str:
    """Return a length of time as an option takes it."""
    return f"{seconds:g}s"


def show_bytes(size_bytes: int) -> str:
    """Return a size as an option takes it, in the largest unit that is exact."""
    letters = ""
    for letter in ("Ki", "Mi", "Gi", "Ti"):
        if not size_bytes or size_bytes % 1024:
            break
        size_bytes, letters = size_bytes // 1024, letter
    return f"{size_bytes}{letters}B" if letters else f"{size_bytes}"
