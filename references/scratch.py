"""A folder for files that are not whole yet, beside the place that they go to; one pull at a time has it.

It is gone when the pull ends. What a killed one left is removed by the next, which knows by the lock that nobody
writes there any more. On file systems without locks it is up to the user to let one pull at a time write to a place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
from collections.abc import Iterable

from references.errors import OutDirectoryError
from references.folder import Folder

NAME = ".pull"
_LOCK = "lock"
_TRIES = 10
_NO_LOCKS_HERE = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


class Scratch:
    """The scratch folder of one place, held until it is closed. Any thread may use it."""

    def __init__(self, place: Folder) -> None:
        """Make it, or take over what a killed pull left.

        Raises:
            OutDirectoryError: another pull has it.
            OSError: it cannot be made.
        """
        self._place = place
        self._folder, self._lock = _hold(place)
        self._numbers = itertools.count()
        self._empty(keep=_LOCK)

    def reserve(self) -> str:
        """Return the name of a new file, which is not made yet."""
        return f"{next(self._numbers)}.part"

    def write(self, part: str, data: bytes, *, begin: bool) -> None:
        """Write the first bytes of a file with ``begin``, else what follows.

        Raises:
            OSError: the disk is full, or cannot be written.
        """
        self._folder.write(part, data, begin=begin)

    def move(self, part: str, target: Folder, name: str) -> None:
        """Give a file that is whole its place.

        Raises:
            OSError: it cannot be moved.
        """
        self._folder.move(part, target, name)

    def discard(self, parts: Iterable[str]) -> None:
        """Delete files, as far as they are there."""
        for part in parts:
            self._folder.remove(part)

    def close(self) -> None:
        """Remove it with all that is in it."""
        self._empty()  # the lock too, while it is held: nobody takes it from now on
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(NAME, dir_fd=self._place.descriptor)
        os.close(self._lock)
        self._folder.close()

    def _empty(self, *, keep: str = "") -> None:
        for name in self._folder.names():
            if name != keep:
                self._folder.remove(name)


def _hold(place: Folder) -> tuple[Folder, int]:
    for _ in range(_TRIES):
        folder = place.enter(NAME, create=True)
        assert folder is not None  # noqa: S101 - it was made
        lock = _take_lock(folder)
        if lock is not None:
            return folder, lock
        folder.close()
    raise OutDirectoryError(f"{place.path} is in use by other pulls: wait for their end, or pull elsewhere")


def _take_lock(folder: Folder) -> int | None:
    """Lock the folder; None when a pull that just ended has removed it meanwhile.

    Raises:
        OutDirectoryError: another pull has it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(_LOCK, flags, 0o644, dir_fd=folder.descriptor)
    except FileNotFoundError:
        return None
    try:
        _flock(lock, folder)
        if os.path.samestat(os.stat(_LOCK, dir_fd=folder.descriptor, follow_symlinks=False), os.fstat(lock)):
            return lock
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(lock)
        folder.close()
        raise
    os.close(lock)
    return None


def _flock(lock: int, folder: Folder) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutDirectoryError(
            f"another pull is writing to {folder.path.parent}: wait for its end, or pull elsewhere"
        ) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            raise
