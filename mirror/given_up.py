"""Records that are not tried again before they are written again: their files were refused for good."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mirror.backlog import Left
from mirror.names import document_name
from mirror.record import FileState, read_state

MAX_REMEMBERED = 10_000  # more are offered again by each look, and refused again


@dataclass(frozen=True, slots=True)
class _Known:
    document: FileState | None  # as it was refused
    reason: str


class GivenUp:
    """Written on the event loop; any thread may ask what is ``left``."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[tuple[Path, str], _Known] = {}

    def add(self, directory: Path, record_id: str, reason: str) -> None:
        """Remember a record as it is now."""
        if len(self._known) < MAX_REMEMBERED:
            document = read_state(directory, document_name(record_id))
            self._known[directory, record_id] = _Known(document, reason)

    def discard(self, directory: Path, record_id: str) -> None:
        """Forget a record: it was copied after all."""
        self._known.pop((directory, record_id), None)

    def has(self, directory: Path, record_id: str) -> bool:
        """Whether a record was given up and is still as it was then."""
        known = self._known.get((directory, record_id))
        return known is not None and known.document == read_state(directory, document_name(record_id))

    def left(self) -> list[Left]:
        """Return them all, with the reasons."""
        return [Left(directory, record_id, known.reason) for (directory, record_id), known in list(self._known.items())]
