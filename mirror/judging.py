"""What receipts, a listing and a hash say of one file: pure decisions, which claim no more than was checked."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mirror.receipts.manifest import ExpectedFile
from mirror.store import ObjectInfo


class FindingKind(enum.StrEnum):
    """What is wrong with a file of the mirror."""

    MISSING = "missing"
    WRONG_SIZE = "wrong_size"
    CHANGED = "changed"  # the store's identity for it, or its hash, is not the receipt's
    NO_RECEIPT = "no_receipt"
    NO_DOCUMENT = "no_document"  # a sidecar of a record whose document is not there
    MISSING_SIDECAR = "missing_sidecar"
    UNCHECKED = "unchecked"  # could not be checked: nothing is known, nothing is wrong
    LOST = "lost"  # a step index names it and it exists nowhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be."""

    kind: FindingKind
    name: str  # of the file
    record_id: str
    detail: str

    @property
    def is_damage(self) -> bool:
        """Something is wrong; otherwise nothing is known."""
        return self.kind is not FindingKind.UNCHECKED


class Standing(enum.Enum):
    """How a file that is as it should be was checked."""

    PRESENT = enum.auto()  # size, and the store's identity where both sides have one
    INTACT = enum.auto()  # its hash


def judge(expected: ExpectedFile, found: ObjectInfo | None, digest: str | None = None) -> Finding | Standing:
    """Compare what a receipt says with what the store lists and, if it was read back or asked, with its hash."""
    if found is None:
        return _finding(FindingKind.MISSING, expected, "its receipt says that it was copied, and it is not there")
    if found.size_bytes != expected.size_bytes:
        return _finding(FindingKind.WRONG_SIZE, expected, f"{found.size_bytes} bytes instead of {expected.size_bytes}")
    if digest is not None and digest != expected.xxh3_128:
        return _finding(FindingKind.CHANGED, expected, f"its xxh3_128 is {digest} instead of {expected.xxh3_128}")
    replaced = _replaced(expected, found)
    if replaced:
        return _finding(FindingKind.CHANGED, expected, replaced)
    return Standing.PRESENT if digest is None else Standing.INTACT


def unchecked(name: str, record_id: str, reason: object) -> Finding:
    """Say of a file that nothing is known, and why."""
    return Finding(kind=FindingKind.UNCHECKED, name=name, record_id=record_id, detail=f"not checked: {reason}")


Pair = tuple[ExpectedFile | None, ObjectInfo | None]  # what is expected and what is listed under one name


class Pairing:
    """Joins what is expected with what is listed, page by page; both ascend by their names, as text and UTF-8 alike."""

    def __init__(self, expected: Iterator[ExpectedFile]) -> None:
        """Begin before the first page."""
        self._expected = expected
        self._next = next(expected, None)

    def page(self, objects: Iterable[ObjectInfo]) -> Iterator[Pair]:
        """Yield the pairs up to the end of the next page; a side is None where it has nothing of that name."""
        for found in objects:
            expected = self._next
            if expected is not None and expected.name == found.key:  # nearly always
                self._next = next(self._expected, None)
                yield expected, found
                continue
            while self._next is not None and self._next.name < found.key:
                yield self._advance(), None
            if self._next is not None and self._next.name == found.key:
                yield self._advance(), found
            else:
                yield None, found

    def rest(self) -> Iterator[Pair]:
        """Yield what is expected behind the last page."""
        while self._next is not None:
            yield self._advance(), None

    def _advance(self) -> ExpectedFile | None:
        current, self._next = self._next, next(self._expected, None)
        return current


def _replaced(expected: ExpectedFile, found: ObjectInfo) -> str | None:
    """Say how the store's identity differs; a version id, where both have one, decides alone."""
    if expected.version_id and found.version_id:
        if expected.version_id != found.version_id:
            return f"it was replaced: version {found.version_id} instead of {expected.version_id}"
        return None
    if expected.etag and found.etag and expected.etag != found.etag:
        return f"it was replaced: ETag {found.etag} instead of {expected.etag}"
    return None


def _finding(kind: FindingKind, expected: ExpectedFile, detail: str) -> Finding:
    return Finding(kind=kind, name=expected.name, record_id=expected.record_id, detail=detail)
