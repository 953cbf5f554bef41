"""What happens between two calls of the file system, at a moment that a test chooses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


class Moments:
    """Lets something happen once, right before a certain call of the file system about a file."""

    def __init__(self) -> None:
        """Listen to the interpreter's audit events, which nobody can stop listening to."""
        self._waiting: list[tuple[str, str, Callable[[], object]]] = []
        sys.addaudithook(self._hear)

    def before(self, event: str, name: str, happens: Callable[[], object]) -> None:
        """Let it happen before the next call of this kind whose first argument is of this name, or begins so."""
        self._waiting.append((event, name, happens))

    @property
    def are_over(self) -> bool:
        """Whether everything has happened."""
        return not self._waiting

    def forget(self) -> None:
        """Let nothing happen any more."""
        self._waiting.clear()

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        for moment in self._waiting:
            if moment[0] == event and Path(str(args[0])).name.startswith(moment[1]):
                self._waiting.remove(moment)
                moment[2]()
                return


MOMENTS = Moments()  # one for all: what listens to audit events does so for good
