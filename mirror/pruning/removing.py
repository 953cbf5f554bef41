"""Deletes a record from a local disk, but never one that was written again, and never so that half of it is a record.

The document goes first: without it, sidecars are no record. No system call deletes a file only if it is a certain one,
so each is renamed to a hidden name first and looked at there; what turns out to be a newer one goes back.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from mirror.record import FileState, read_state


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
    hidden = directory / f".pruned-{os.getpid()}-{secrets.token_hex(6)}"
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


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    """Return what a rename leaves as it is."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _put_back(hidden: Path, path: Path) -> None:
    """Give a file that was not deleted its name back, unless a still newer one has it by now."""
    try:
        with contextlib.suppress(FileExistsError):
            os.link(hidden, path, follow_symlinks=False)
        hidden.unlink()
    except FileNotFoundError:
        return  # it was deleted
    except OSError:  # a file system without hard links
        hidden.rename(path)
