"""A file on its way to its final name: written aside, synced, renamed; or given up, and then nothing is left of it."""

from __future__ import annotations

import os
import re
import secrets
import threading
from pathlib import Path

from mirror.store import Data

TEMPORARY = re.compile(r"\.[0-9a-f]{24}\.tmp", re.ASCII)  # what such a file is called until then


class GivenUpError(Exception):
    """Nobody waits for this file any more."""


class NewFile:
    """Filled and published by calls on threads, one after the other.

    Once ``give_up`` was called it never appears under its final name, even if a hung file server lets a call go on
    much later; only a rename that is under way at that very moment may still happen.
    """

    def __init__(self, target: Path, *, fsync: bool) -> None:
        """Touch nothing yet."""
        self._target = target
        self._fsync = fsync
        self._path = target.with_name(f".{secrets.token_hex(12)}.tmp")  # fits wherever the final name does
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._given_up = False

    def write(self, data: Data) -> None:
        """Append, making the file and its directory when they are not there.

        Raises:
            GivenUpError: it was given up.
            OSError: the file system refused.
        """
        with self._lock:
            self._check()
            if self._descriptor is None:
                self._descriptor = _create(self._path)
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]

    def publish(self) -> None:
        """Give it its final name, in place of whatever had it; ``write`` was called before.

        Raises:
            GivenUpError: it was given up.
            OSError: the file system refused.
        """
        with self._lock:
            if self._fsync and self._descriptor is not None:
                os.fsync(self._descriptor)
            self._close()
            self._check()
            self._path.replace(self._target)
            if self._fsync:
                _sync_directory(self._target.parent)  # or a power cut takes the name back

    def give_up(self) -> None:
        """Let no further call publish it; returns at once."""
        self._given_up = True

    def discard(self) -> None:
        """Take away what was written, after the call that is under way.

        Raises:
            OSError: the file system refused.
        """
        with self._lock:
            self._given_up = True
            self._close()
            self._path.unlink(missing_ok=True)

    def _check(self) -> None:
        if self._given_up:
            raise GivenUpError

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o644)
