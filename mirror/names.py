"""Which file names belong to a record, and which are refused.

A trajectory ``{id}`` is the document ``{id}.json.zst`` and sidecars ``{id}.{kind}.zst``. Whatever comes from a disk, a
bucket or a receipt passes here before it becomes a path or a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirror.errors import BadNameError

DOCUMENT_SUFFIX = ".json.zst"
SUFFIX = ".zst"
DOCUMENT_KIND = "json"  # what stands in a document's name for a sidecar's kind
KNOWN_KINDS = frozenset({"tokens", "experts", "sampling_mask"})
MAX_NAME_BYTES = 255  # what a directory entry may have
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ORDINARY = re.compile(rf"[\w-][\w.-]{{0,{MAX_NAME_BYTES - 1}}}", re.ASCII)  # nearly all names, and surely fine


@dataclass(frozen=True, slots=True)
class RecordFile:
    """What a file name says: whose file it is and what it holds."""

    record_id: str
    kind: str | None  # None: the document

    @property
    def name(self) -> str:
        """The file's name in the record directory and below the mirror's URL."""
        return document_name(self.record_id) if self.kind is None else sidecar_name(self.record_id, self.kind)


def document_name(record_id: str) -> str:
    """Return the name of a record's document."""
    return record_id + DOCUMENT_SUFFIX


def sidecar_name(record_id: str, kind: str) -> str:
    """Return the name of a record's sidecar of this kind."""
    return f"{record_id}.{kind}{SUFFIX}"


def parse_name(name: str) -> RecordFile | None:
    """Say whose file this is; None for what is never part of a record (dot-files, other suffixes)."""
    if not name.endswith(SUFFIX) or name.startswith("."):
        return None
    record_id, _, kind = name[: -len(SUFFIX)].rpartition(".")
    if not record_id or not kind:
        return None
    return RecordFile(record_id, None if kind == DOCUMENT_KIND else kind)


def kind_in(name: str, record_id: str) -> str | None:
    """Return which kind of file of a record has this name, ``DOCUMENT_KIND`` for the document; None: none of it.

    Like ``parse_name``, and cheaper, for where the record is known: asked of every file in every receipt that is read.
    """
    if not name.endswith(SUFFIX):
        return None
    stem, _, kind = name[: -len(SUFFIX)].rpartition(".")
    return kind if kind and stem and stem == record_id else None


def check_name(name: str) -> str:
    """Return ``name`` if it is a plain file name that every store and file system keeps as it is.

    Raises:
        BadNameError: it is empty, hidden, too long, not text, or has a separator or a control character.
    """
    problem = None if _ORDINARY.fullmatch(name) else _problem(name)
    if problem:
        raise BadNameError(f"the file name {name!r} is refused: {problem}; rename the file")
    return name


def _problem(name: str) -> str | None:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "it is not valid UTF-8"
    if "/" in name or "\\" in name:
        return "it has a path separator"
    if not name or name.startswith("."):
        return "it is empty or begins with a dot"
    if len(encoded) > MAX_NAME_BYTES:
        return f"it is longer than {MAX_NAME_BYTES} bytes"
    if _CONTROL.search(name):
        return "it has a control character"
    return None
