"""What a prune that was killed left hidden gets its name back, for it may be newer than what is in the mirror.

Between the renaming of a file and its deletion nobody knows yet if it is the one that was verified. One that is hidden
for an hour was left: no prune takes so long over a file. Nothing is replaced, nothing deleted but what is there by its
own name too, and no sidecar joins a document that was written since. Otherwise people are told, as where a name was too
long to be kept.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from mirror.names import document_name, parse_name
from mirror.pruning.removing import CUT, HIDDEN_PREFIX, WHOLE, give_back
from mirror.record import read_status

logger = logging.getLogger(__name__)

LEFT_AFTER_S = 3600.0
_HIDDEN = re.compile(f"{re.escape(HIDDEN_PREFIX)}[0-9a-f]{{8}}([{WHOLE}{CUT}])(.+)", re.DOTALL)


class _Leftover(NamedTuple):
    """A hidden file."""

    is_document: bool  # sorts behind the sidecars: nobody is to see it without them
    hidden: str
    name: str  # its own
    record_id: str | None  # None: the name was too long to be kept whole


def settle(directory: Path, *, now_s: float, confirmed: bool = True) -> dict[str, str]:
    """Give what killed prunes left hidden in a record directory its name back, or delete what is of no use any more.

    Args:
        directory: the record directory.
        now_s: Unix seconds.
        confirmed: otherwise nothing is changed, and what would be settled counts as if it were.

    Returns:
        The records of which something stays hidden, each with that file's name: it is too young, or could be newer than
        what has its name. Nothing else of them must be deleted, or the hidden file would be taken for the newest later.

    Raises:
        OSError: the directory cannot be read.
    """
    waiting: dict[str, str] = {}
    for leftover in sorted(_find(directory), key=lambda found: found.is_document):
        status = read_status(directory, leftover.hidden)
        if status is None or not stat.S_ISREG(status.st_mode):
            continue
        is_left = status.st_ctime < now_s - LEFT_AFTER_S  # its renaming was the last change of the file
        if leftover.record_id is None:
            if is_left:
                logger.warning(
                    "a killed prune left %s: give it its name, which begins so, back if the mirror does not have it",
                    directory / leftover.hidden,
                )
        elif not is_left or (confirmed and not _settle(directory, leftover, status)):
            waiting[leftover.record_id] = leftover.hidden
    return waiting


def _find(directory: Path) -> list[_Leftover]:
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            match = _HIDDEN.fullmatch(entry.name) if entry.name.startswith(HIDDEN_PREFIX) else None
            if match is None:
                continue
            if match[1] == CUT:
                found.append(_Leftover(is_document=False, hidden=entry.name, name=match[2], record_id=None))
            elif (file := parse_name(match[2])) is not None:
                found.append(_Leftover(file.kind is None, entry.name, match[2], file.record_id))
    return found


def _settle(directory: Path, leftover: _Leftover, status: os.stat_result) -> bool:
    """Give a file its name back, or delete it; False: it stays as it is."""
    hidden, path = directory / leftover.hidden, directory / leftover.name
    document = read_status(directory, document_name(leftover.record_id or ""))
    if not leftover.is_document and document is not None and document.st_ctime_ns >= status.st_ctime_ns:
        logger.warning("%s may be of before %s was written again: delete it, or rename it", hidden, path)
        return False
    try:
        if give_back(hidden, path):
            logger.warning("a prune was killed while it deleted %s: it has its name back", path)
            return True
        other = read_status(directory, leftover.name)
        if other is not None and (status.st_dev, status.st_ino) == (other.st_dev, other.st_ino):
            hidden.unlink()
            return True
    except FileNotFoundError:
        return True  # another prune was faster
    except OSError as error:
        logger.warning("cannot give %s the name %s back: %s", hidden, path, error)
        return False
    logger.warning("%s may be newer than %s: delete the one that is not wanted", hidden, path)
    return False
