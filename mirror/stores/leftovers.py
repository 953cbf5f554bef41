"""What a hard end leaves in a directory mirror: files on their way to their final names, taken away after a day.

Whoever is killed takes nothing back, on whatever machine; so each writer looks after what all of them left, when it has
written its first file and at most once a day from then on. The file server's clock decides, as the file just written
shows it: those of the machines that mount it may differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from mirror.stores.new_file import TEMPORARY
from mirror.stores.threads import DaemonThreads

logger = logging.getLogger(__name__)

DAY_S = 86_400.0  # nobody writes one file for so long
SWEEP_S = 60.0  # in which millions of names are looked at; what is not seen by then waits for another day
CLOSE_S = 1.0  # so that a short process comes to an end with it too
DEPTH = 2  # folders below the mirror's own, as its keys have
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Leftovers:
    """Those of one mirror. Used on one event loop; the directory is looked at on a thread that nothing waits for."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start nothing yet; ``clock`` in seconds says when a day is over."""
        self._root = root
        self._clock = clock
        self._due_at = float("-inf")
        self._threads = DaemonThreads(1, "record-mirror-leftovers")
        self._is_closing = False

    def wrote(self, path: Path) -> None:
        """Take note that a file was written just now, and have leftovers removed if it is time; returns at once."""
        now = self._clock()
        if now >= self._due_at:
            self._due_at = now + DAY_S
            self._threads.later(lambda: self._sweep(path))

    async def aclose(self) -> None:
        """Wait a moment for the end of what is under way, then end it."""
        if self._due_at > float("-inf"):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._threads.run(lambda: None)  # behind it, on the only thread
        self._is_closing = True
        self._threads.close()

    def _sweep(self, written: Path) -> None:
        end = time.monotonic() + SWEEP_S

        def is_over() -> bool:
            return self._is_closing or time.monotonic() > end

        try:
            before = written.lstat().st_mtime - DAY_S
            _sweep_folder(self._root, None, DEPTH, before, is_over)
        except OSError as error:
            logger.debug("cannot look for what hard ends left in %s: %s", self._root, error)


def _sweep_folder(
    path: str | Path, parent: int | None, deeper: int, before: float, is_over: Callable[[], bool]
) -> None:
    """Remove leftovers that were written last before a time, in Unix seconds; only the mirror's own path may be a link.

    Raises:
        OSError: the folder cannot be read.
    """
    folder = os.open(path, _FOLDER if parent is None else _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_over():
                    return
                try:
                    if TEMPORARY.fullmatch(entry.name):
                        _remove_if_old(entry.name, folder, before)
                    elif deeper and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                        _sweep_folder(entry.name, folder, deeper - 1, before, is_over)
                except OSError as error:
                    logger.debug("cannot remove what a hard end left: %s", error)
    finally:
        os.close(folder)


def _remove_if_old(name: str, folder: int, before: float) -> None:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISREG(status.st_mode) and status.st_mtime < before:
        os.unlink(name, dir_fd=folder)
