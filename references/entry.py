"""One attempt as its generator logged it: whatever was handed over, read once into a fact."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirror.errors import BadNameError
from mirror.location import CONTAINER_PROTOCOLS
from mirror.names import DOCUMENT_SUFFIX, check_name
from references import plain
from references.run_index import MAX_FILES_PER_RECORD, RecordLocation

if TYPE_CHECKING:
    from references.samples import Key

logger = logging.getLogger(__name__)

# What stands before an @; a secret key may hold slashes, and digits after the colon may be a port.
_USER_INFO = re.compile(r"((?:[\w+.\-]+::)*([\w+.\-]+):/{1,2})([^/@\s:]+:(?!\d+/)[^@\s]*|[^/@\s:]+)@", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One attempt that a generator opened.

    Attributes:
        id: the trajectory's id; "" when the attempt never got one.
        instance_id: the prompt that it ran.
        repetition_id: which of the prompt's samples.
        attempt: from 0 for each sample; a retry is a new trajectory.
        status: the status at finish; None when no finish was answered.
        annotations: what it was finished with.
        record: where its record is; None when none was written.
        order: which number it has in its log.
        source: the very trajectory id object that it was logged with, to know it again in a batch.
        key: what its retries have in common with it.
    """

    id: str
    instance_id: str
    repetition_id: int
    attempt: int
    status: str | None = None
    annotations: dict[str, Any] | None = None
    record: RecordLocation | None = None
    order: int = field(default=0, compare=False)
    source: object | None = field(default=None, compare=False, repr=False)
    key: Key = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Make the key once, not at each of its uses."""
        object.__setattr__(self, "key", (self.instance_id, self.repetition_id))


def read_entry(*, trajectory_id: object, attempt: object, trajectory: object, order: int) -> Entry:
    """Read an attempt from a generator's own objects, or mappings; never raises, whatever is missing.

    Args:
        trajectory_id: has ``instance_id`` and ``repetition_id``.
        attempt: from 0 for each sample.
        trajectory: has ``id``, ``finishing`` (the annotations) and ``result``, which has ``status`` and ``record``.
        order: the entry's number in its log.
    """
    result = plain.field(trajectory, "result")
    annotations = plain.plain(plain.field(trajectory, "finishing"))
    return Entry(
        id=plain.text(plain.field(trajectory, "id")) or "",
        instance_id=plain.text(plain.field(trajectory_id, "instance_id")) or "",
        repetition_id=plain.whole_number(plain.field(trajectory_id, "repetition_id")),
        attempt=max(0, plain.whole_number(attempt)),
        status=plain.text(plain.field(result, "status")),
        annotations=annotations if isinstance(annotations, dict) else None,
        record=read_location(plain.field(result, "record")),
        order=order,
        source=trajectory_id,
    )


def read_location(record: object) -> RecordLocation | None:
    """Read what a capture server's finish answered about the record; None when it names no place.

    User info and signatures are taken out of the mirror's URI. File names that are no plain names are left out.
    """
    path = plain.text(plain.field(record, "path"))
    mirror = plain.text(plain.field(record, "mirror"))
    if path is None and mirror is None:
        return None
    return RecordLocation(
        host=plain.text(plain.field(record, "host")),
        path=path,
        mirror=None if mirror is None else _public(mirror),
        files=_file_names(plain.field(record, "files")),
    )


def _public(mirror: str) -> str:
    found = _USER_INFO.match(mirror)
    is_container = found is not None and found[2].lower() in CONTAINER_PROTOCOLS and ":" not in found[3]
    public = mirror if found is None or is_container else found[1] + mirror[found.end() :]
    return public if public.endswith(DOCUMENT_SUFFIX) else public.partition("?")[0]


def _file_names(files: object) -> tuple[str, ...] | None:
    listed = plain.plain(files)
    if not isinstance(listed, list):
        return None
    names = []
    for name in listed[:MAX_FILES_PER_RECORD]:
        try:
            names.append(check_name(str(name)))
        except BadNameError as error:
            logger.warning("a record's file is left out of the step index: %s", error)
    return tuple(names)
