"""Why obstore is not used: something that it cannot be told so that it means the same."""

from __future__ import annotations


class UnmappableError(Exception):
    """An option that obstore cannot be given so that it means the same; the text names it."""
