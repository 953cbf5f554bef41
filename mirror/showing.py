"""How a wrong value looks in the sentence that refuses it: whoever reads that wants no page of it."""

from __future__ import annotations

MAX_CHARS = 200


def show(value: object) -> str:
    """Return a value as Python writes it, not all of it where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a table of tables of tables
        return f"this {type(value).__name__}"
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."
