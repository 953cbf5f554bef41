"""A receipt: proof that a record's bytes are in the mirror, and its form as a JSON line.

A receipt is made once, after the store acknowledged every file of the record. The line's form is fixed by the project's
formats: ``v, id, at, writer, host, path, files[name, size, xxh3_128, etag, version_id, md5], excluded``; ``files`` also
carry the local file's change time and inode, by which a restarted server sees without reading that nothing changed.
Beside the records a line may list no file: what was receipted before is being replaced, and proves nothing any more.
Lines come from buckets and disks that others can write: each is checked before it is believed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from mirror.errors import BadNameError, ReceiptError
from mirror.names import DOCUMENT_KIND, check_name, document_name, kind_in

VERSION = 1
MAX_LINE_BYTES = 1 << 20
MAX_FILES = 1_000
MAX_FILE_BYTES = (1 << 63) - 1  # what a file system, and a table of files, can count
LATEST_S = 1e11  # Unix seconds; no clock says more, and what did would be the newest for ever
Time = Annotated[float, msgspec.Meta(le=LATEST_S)]  # Unix seconds
_HEX_128 = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReceipt:
    """One file of a record as the store has it."""

    name: str
    size: int  # bytes
    xxh3_128: str  # 32 lowercase hex digits, over the very bytes handed to the store
    etag: str | None = None  # what the store answered for that write; S3: without quotes
    version_id: str | None = None  # S3 version, GCS generation
    md5: str | None = None  # 32 lowercase hex digits
    ctime_ns: int | None = None  # of the local file when it was read
    inode: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Proof that one record arrived, whole but for the excluded kinds."""

    v: int = VERSION
    id: str
    at: Time
    writer: str  # unique per process
    host: str
    path: str  # the document on that host
    files: tuple[FileReceipt, ...]  # sidecars, then the document; none: it withdraws what was receipted before
    excluded: tuple[str, ...] = ()  # sidecar kinds left out on purpose

    def file(self, name: str) -> FileReceipt | None:
        """Return the receipt of one of the record's files, or None."""
        for file in self.files:
            if file.name == name:
                return file
        return None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Receipt)


def encode_line(receipt: Receipt) -> bytes:
    """Return the receipt as one JSON line, newline included."""
    return _encoder.encode(receipt) + b"\n"


def decode_line(line: bytes, *, may_withdraw: bool = False) -> Receipt:
    """Read one line back; ``may_withdraw``: it may list no file, as beside the records.

    Raises:
        ReceiptError: it is not a receipt of this version, or it claims what none may (foreign names, negative sizes).
    """
    if len(line) > MAX_LINE_BYTES:
        raise ReceiptError(f"a receipt line of {len(line)} bytes is longer than {MAX_LINE_BYTES}")
    try:
        receipt = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReceiptError(f"not a receipt: {error}") from None
    if may_withdraw and not receipt.files:
        _check_version(receipt.v)
    else:
        _check(receipt)
    return receipt


class FileGlance(msgspec.Struct, frozen=True, gc=False):
    """What a glance at a receipt sees of one file."""

    name: str
    size: int
    ctime_ns: int | None = None
    inode: int | None = None


class Glance(msgspec.Struct, frozen=True, gc=False):
    """What of a receipt says which document it covers: a restart reads all of a directory, and has no time for more."""

    id: str
    at: Time
    files: tuple[FileGlance, ...]
    v: int = VERSION
    excluded: tuple[str, ...] = ()


_glancer = msgspec.json.Decoder(Glance)


def glance_at(line: bytes) -> Glance:
    """Read of a line what says which document it covers, without a check of the rest.

    Raises:
        ReceiptError: it is not a receipt of this version.
    """
    try:
        glance = _glancer.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReceiptError(f"not a receipt: {error}") from None
    if glance.v != VERSION:
        _check_version(glance.v)
    return glance


def decode_lines(data: bytes, *, may_withdraw: bool = False) -> Iterator[Receipt | ReceiptError]:
    """Read a segment, or a journal, line by line: a receipt, or the error that says why a line is none.

    A crash may cut the last line anywhere: it comes out as an error, and no line before it is touched.
    """
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        if end > start:
            try:
                yield decode_line(data[start:end], may_withdraw=may_withdraw)
            except ReceiptError as error:
                yield error
        start = end + 1


def newest(receipts: Iterable[Receipt]) -> dict[str, Receipt]:
    """Return the newest receipt of each id; of two with the same time the later in the order given."""
    found: dict[str, Receipt] = {}
    for receipt in receipts:
        known = found.get(receipt.id)
        if known is None or receipt.at >= known.at:
            found[receipt.id] = receipt
    return found


def following(previous: Receipt | None, receipt: Receipt) -> Receipt:
    """Return ``receipt`` as the one that replaces ``previous``.

    It is the newer one even where a clock went back, and goes on to prove what ``previous`` proves of the same document
    beyond it: sidecars that are left out by now, or no longer on disk, are still in the mirror.
    """
    if previous is None:
        return receipt
    at = min(max(receipt.at, math.nextafter(previous.at, math.inf)), LATEST_S)
    before, now = (one.file(document_name(one.id)) for one in (previous, receipt))
    is_same = before is not None and now is not None and before.xxh3_128 == now.xxh3_128
    kept = [file for file in previous.files if is_same and receipt.file(file.name) is None]
    return replace(receipt, at=at, files=(*kept, *receipt.files))


def _check_version(version: int) -> None:
    if version != VERSION:
        raise ReceiptError(
            f"a receipt of version {version}: this release reads version {VERSION}, upgrade record-mirror"
        )


def _check(receipt: Receipt) -> None:
    _check_version(receipt.v)
    if not 0 < len(receipt.files) <= MAX_FILES:
        raise ReceiptError(f"a receipt lists {len(receipt.files)} files: 1 to {MAX_FILES} are possible")
    documents = 0
    for file in receipt.files:
        try:
            kind = kind_in(check_name(file.name), receipt.id)
        except BadNameError as error:
            raise ReceiptError(f"a receipt lists a refused name: {error}") from None
        if kind is None:
            raise ReceiptError(f"a receipt of {receipt.id!r} lists {file.name!r}, which is not a file of that record")
        if not 0 <= file.size <= MAX_FILE_BYTES or not _HEX_128.fullmatch(file.xxh3_128):
            raise ReceiptError(f"a receipt has no valid size and hash for {file.name!r}")
        if file.md5 is not None and not _HEX_128.fullmatch(file.md5):
            raise ReceiptError(f"a receipt has no valid md5 for {file.name!r}")
        documents += kind == DOCUMENT_KIND
    if documents != 1 or len({file.name for file in receipt.files}) != len(receipt.files):
        raise ReceiptError(f"a receipt of {receipt.id!r} does not list one document and each file once")
