"""Records that must be found again on disk: their ids as far as there is room for them, the rest as a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class _Late:
    """Those of one directory."""

    ids: dict[str, int] = field(default_factory=dict)  # id -> how many times handed over
    unnamed: int = 0
    count: int = 0  # hand-overs in all
    since: float = 0.0  # Unix seconds of the oldest
    look_at: float = 0.0  # Unix seconds: not looked for on disk before
    # Of these, what was late already when the last look began: no look speaks of what came after its beginning.
    looked_for: dict[str, int] = field(default_factory=dict)
    unnamed_looked_for: int = 0


class LateRecords:
    """Used under the lock of the backlog."""

    def __init__(self, names: int) -> None:
        """Hold the ids of up to so many."""
        self.count = 0  # hand-overs in all
        self._names = names
        self._named = 0
        self._of: dict[Path, _Late] = {}

    def add(self, directory: Path, record_id: str, count: int, *, since: float, look_at: float = 0.0) -> bool:
        """Note so many hand-overs of a record; False if there was no room for its id."""
        late = self._of.setdefault(directory, _Late())
        if not late.count:
            late.since, late.look_at = since, look_at
        late.since = min(late.since, since)
        late.count += count
        self.count += count
        if record_id in late.ids:
            late.ids[record_id] += count
        elif self._named < self._names:
            late.ids[record_id] = count
            self._named += 1
        else:
            late.unnamed += count
            return False
        return True

    def remove(self, directory: Path, record_id: str | None, count: int) -> None:
        """Take off so many hand-overs of a record, or of those without an id."""
        if not count:
            return
        late = self._of[directory]
        late.count -= count
        self.count -= count
        if record_id is not None and record_id in late.ids:
            late.looked_for.pop(record_id, None)
            late.ids[record_id] -= count
            if not late.ids[record_id]:
                del late.ids[record_id]
                self._named -= 1
        else:
            late.unnamed -= count
            late.unnamed_looked_for = max(0, late.unnamed_looked_for - count)

    def found(self, directory: Path, record_id: str) -> int:
        """Return how many hand-overs a record stands for that a look comes by."""
        late = self._of.get(directory)
        return (late.ids.get(record_id) or min(1, late.unnamed_looked_for)) if late else 0

    def looking(self, directory: Path) -> tuple[frozenset[str], int]:
        """Return what is late before a look at the directory begins: the ids, and how many without."""
        late = self._of.get(directory)
        if late is None:
            return frozenset(), 0
        late.looked_for, late.unnamed_looked_for = dict(late.ids), late.unnamed
        return frozenset(late.ids), late.unnamed

    def looked_for(self, directory: Path, record_id: str | None, count: int) -> int:
        """Return how many hand-overs of a record, or of ``count`` without an id, the last look can speak of."""
        late = self._of.get(directory)
        if late is None:
            return 0
        return min(count, late.unnamed_looked_for) if record_id is None else late.looked_for.get(record_id, 0)

    def due(self, now: float) -> list[Path]:
        """Return the directories that may be looked at now."""
        return [directory for directory, late in self._of.items() if late.count and late.look_at <= now]

    def postpone(self, directory: Path, look_at: float) -> None:
        """Look at a directory no earlier than this."""
        if directory in self._of:
            self._of[directory].look_at = look_at

    def look_now(self) -> None:
        """Let every directory be looked at at once."""
        for late in self._of.values():
            late.look_at = 0.0

    def since(self) -> Iterator[float]:
        """Yield the Unix seconds of each directory's oldest."""
        return (late.since for late in self._of.values() if late.count)

    def names(self) -> Iterator[tuple[Path, str]]:
        """Yield all that have an id."""
        return ((directory, record_id) for directory, late in self._of.items() for record_id in late.ids)
