"""What a process of the campaign tells the driver: JSON lines in a file, each written at once: a kill keeps them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Notes:
    """One file, which several processes may add to."""

    def __init__(self, path: str | Path) -> None:
        """Open nothing."""
        self._path = Path(path)

    def __str__(self) -> str:
        """Return the file's path."""
        return str(self._path)

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self._path.stat().st_size if self._path.exists() else 0

    def add(self, kind: str, **facts: Any) -> None:  # noqa: ANN401 - whatever JSON has
        """Append one fact."""
        line = json.dumps({"kind": kind, **facts}).encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def violation(self, law: str, detail: object = "") -> None:
        """Append that a law does not hold."""
        self.add("violation", law=law, detail=str(detail))

    def read(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the facts of one kind, oldest first."""
        if self._path.exists():
            for line in self._path.read_bytes().splitlines():
                fact: dict[str, Any] = json.loads(line)
                if fact["kind"] == kind:
                    yield fact
