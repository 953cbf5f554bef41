"""Record directories that cannot be read: said once each time, tried again soon, and waited for only so often."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

TRIES = 5  # before whoever waits is told that a directory cannot be read
LOST_AFTER_S = 3600.0  # what was handed over in a directory that is away for so long is lost


class Unreadable:
    """Used on one event loop."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Know of none."""
        self._clock = clock
        self._since: dict[Path, float] = {}
        self._tries: dict[Path, int] = {}  # that failed

    def tell(self, path: Path, error: Exception) -> None:
        """Say that a directory cannot be read, unless that was said and it was not read since."""
        if path not in self._since:
            self._since[path] = self._clock()
            logger.warning(
                "cannot read the record directory %s: what was handed over there waits until it is back: %s",
                path,
                error,
            )

    def failed(self, path: Path, error: Exception) -> bool:
        """Count a look for late records that could not be taken; False if it should be taken again soon."""
        self.tell(path, error)
        self._tries[path] = self._tries.get(path, 0) + 1
        return self.is_given_up(path)

    def was_read(self, path: Path) -> None:
        """Note that a directory can be read, and say so where it could not."""
        if (since := self._since.pop(path, None)) is not None:
            logger.warning("can read the record directory %s again, after %.0f s", path, self._clock() - since)
        self._tries.pop(path, None)

    def try_anew(self) -> None:
        """Try those again that were given up: somebody begins to wait, perhaps not the only one."""
        self._tries = {path: tries for path, tries in self._tries.items() if tries < TRIES}

    def is_given_up(self, path: Path) -> bool:
        """Whether all tries have failed."""
        return self._tries.get(path, 0) >= TRIES

    def is_away_for_long(self, path: Path) -> bool:
        """Whether it has not been read for so long that nobody expects it to come back."""
        return self._clock() - self._since.get(path, self._clock()) >= LOST_AFTER_S

    def __contains__(self, path: object) -> bool:
        """Whether a directory could not be read when it was last looked at."""
        return path in self._since
