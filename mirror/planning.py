"""What a copy of a record directory would send: the same answer that copying gives, and nothing is written."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from mirror.config import MirrorConfig
from mirror.disk_check import hash_file
from mirror.errors import BadNameError, RecordGoneError
from mirror.location import Location
from mirror.looking import look, matcher
from mirror.names import KNOWN_KINDS, check_name
from mirror.place import place_id
from mirror.receipts.ledger import reading
from mirror.receipts.receipt import Receipt
from mirror.record import FileState, find_kinds, read_record


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRecord:
    """A finished record that is not in the mirror as it is on disk."""

    directory: Path
    record_id: str
    send: tuple[FileState, ...]  # in the order in which they become visible
    keep: int  # files of it that the mirror has with the same bytes
    problem: str | None  # why it cannot be copied

    @property
    def size_bytes(self) -> int:
        """How many bytes would be sent."""
        return sum(state.size_bytes for state in self.send)


class Planner:
    """Plans for one mirror, and keeps the sums of what it planned and found unchanged."""

    def __init__(self, location: Location, config: MirrorConfig, include: Collection[str] = ()) -> None:
        """Plan for the records whose id matches one of the shell patterns ``include``; none: for all."""
        self.unchanged_records = self.unchanged_files = 0
        self.planned_records = self.planned_files = self.planned_bytes = 0
        self.refused_files = 0  # of those planned, for their names
        self._place = place_id(location, config.storage_options)
        self._exclude = config.exclude
        self._wanted = matcher(include)

    def plan(self, directory: Path) -> Iterator[PlannedRecord]:
        """Yield what would be copied, reading only files that changed and kept their size.

        Raises:
            OSError: the directory cannot be read.
        """
        kinds = (KNOWN_KINDS | find_kinds(directory)) - set(self._exclude)
        with reading(directory, self._place) as ledger:
            for chunk in look(directory, ledger, self._exclude, self._wanted):
                self.unchanged_records += chunk.documents - len(chunk.uncopied)
                self.unchanged_files += chunk.covered_files
                for found in chunk.uncopied:
                    with contextlib.suppress(RecordGoneError):  # deleted while we looked
                        planned = self._judge(directory, found.record_id, kinds, ledger.get(found.record_id))
                        self.unchanged_files += planned.keep
                        if not planned.send:
                            self.unchanged_records += 1
                            continue
                        self.planned_records += 1
                        self.planned_files += len(planned.send)
                        self.planned_bytes += planned.size_bytes
                        self.refused_files += len(planned.send) if planned.problem else 0
                        yield planned

    def _judge(
        self, directory: Path, record_id: str, kinds: Collection[str], previous: Receipt | None
    ) -> PlannedRecord:
        files = read_record(directory, record_id, kinds).files
        send = tuple(state for state in files if not _is_there(directory, state, previous))
        problem = None
        try:
            for state in send:
                check_name(state.name)
        except BadNameError as error:
            problem = str(error)
        return PlannedRecord(
            directory=directory,
            record_id=record_id,
            send=send,
            keep=len(files) - len(send),
            problem=problem,
        )


def _is_there(directory: Path, state: FileState, previous: Receipt | None) -> bool:
    """Whether the mirror has these very bytes under this name."""
    known = previous.file(state.name) if previous else None
    if known is None or known.size != state.size_bytes:
        return False
    if (known.ctime_ns, known.inode) == (state.ctime_ns, state.inode):
        return True
    try:
        return hash_file(directory / state.name) == known.xxh3_128
    except OSError:
        return False  # what cannot be read now is looked at again when it is copied
