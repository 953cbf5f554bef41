"""Deletes a record from a local disk, but never one that was written again, and never so that half of it is a record.

The document goes first: without it, sidecars are no record. No system call deletes a file only if it is a certain one,
so each is renamed to a hidden name first and looked at there; what turns out to be a newer one goes back. The hidden
name holds the file's own, so that what a killed prune leaves can go back too (``hidden``).
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from mirror.names import MAX_NAME_BYTES
from mirror.record import FileState, read_state

HIDDEN_PREFIX = ".pruned-"
WHOLE, CUT = "-", "~"  # what stands before the file's own name
_TOKEN_BYTES = 4


def remove_record(directory: Path, files: Sequence[FileState]) -> bool:
    """Delete a record's files, if all of them are still as they were.

    Args:
        directory: the record directory.
        files: the states of its sidecars, then of its document.

    Returns:
        False if the record is gone already, or was written again: it stays, whole.

    Raises:
        OSError: the file system does not let go of a file; without its document a record is none any more.
    """
    *sidecars, document = files
    if any(read_state(directory, state.name) != state for state in files):
        return False
    if not _remove(directory, document):
        return False
    for sidecar in sidecars:
        if read_state(directory, document.name) is not None:
            break  # a newer document, whose sidecar this may be
        _remove(directory, sidecar)
    return True


def _remove(directory: Path, state: FileState) -> bool:
    """Delete a file if it is in this very state; False: it is not, and what is there stays."""
    path = directory / state.name
    hidden = directory / _hidden_name(state.name)
    try:
        before = path.lstat()
        if not stat.S_ISREG(before.st_mode) or FileState.of(state.name, before) != state:
            return False
        path.rename(hidden)
    except FileNotFoundError:
        return False
    try:
        if _identity(hidden.lstat()) != _identity(before):
            return False
        hidden.unlink()
        return True
    finally:
        _put_back(hidden, path)


def give_back(hidden: Path, path: Path) -> bool:
    """Give a hidden file its name back, if nothing has that by now; False: something has.

    Raises:
        FileNotFoundError: nothing is hidden there.
        OSError: the file system does not let go of it.
    """
    try:
        os.link(hidden, path, follow_symlinks=False)
    except FileExistsError:
        return False
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links has no call that replaces nothing
        if os.path.lexists(path):
            return False
        hidden.rename(path)
    else:
        hidden.unlink()
    return True


def _hidden_name(name: str) -> str:
    """Return a name that nothing has; of a long one only its beginning fits, which another sign in front of it says."""
    digits = secrets.token_hex(_TOKEN_BYTES)
    hidden = f"{HIDDEN_PREFIX}{digits}{WHOLE}{name}"
    if len(os.fsencode(hidden)) <= MAX_NAME_BYTES:
        return hidden
    return os.fsencode(f"{HIDDEN_PREFIX}{digits}{CUT}{name}")[:MAX_NAME_BYTES].decode(errors="ignore")


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    """Return what a rename leaves as it is."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _put_back(hidden: Path, path: Path) -> None:
    """Give a file that was not deleted its name back, unless a still newer one has it by now."""
    try:
        if not give_back(hidden, path):
            hidden.unlink()
    except FileNotFoundError:
        return  # it was deleted
