"""A record directory whose every record is in a mirror already, as its receipts say: what a restart finds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import xxhash

from mirror.location import parse_location
from mirror.names import document_name, sidecar_name
from mirror.place import place_id
from mirror.receipts.ledger import DIRECTORY
from mirror.receipts.receipt import FileReceipt, Receipt, encode_line

WRITER = "node-1-4711-before"
SPREAD = 2_654_435_761  # ids in no order, each once
CONTENTS = (("tokens", b"t" * 200), (None, b"d" * 600))  # of every record: what is in its files is never read


def write_mirrored(directory: Path, url: str, storage_options: Mapping[str, object], count: int) -> int:
    """Write so many records, each a document and a sidecar, with their receipts for the mirror at ``url``.

    Returns:
        The number of files.

    Raises:
        OSError: the directory cannot be written.
    """
    folder = directory / DIRECTORY / place_id(parse_location(url), storage_options)
    folder.mkdir(parents=True)
    journal = folder / f"{WRITER}.jsonl"
    with journal.open("wb") as lines:
        for number in range(count):
            record_id = f"tr_{number * SPREAD % 2**32:08x}"
            files = tuple(
                _write(directory, document_name(record_id) if kind is None else sidecar_name(record_id, kind), content)
                for kind, content in CONTENTS
            )
            path = str(directory / document_name(record_id))
            receipt = Receipt(id=record_id, at=float(number), writer=WRITER, host="10.0.0.5", path=path, files=files)
            lines.write(encode_line(receipt))
    journal.with_suffix(".sent").write_text(str(journal.stat().st_size))
    return count * len(CONTENTS)


def _write(directory: Path, name: str, content: bytes) -> FileReceipt:
    descriptor = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(descriptor, content)
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    digest = xxhash.xxh3_128_hexdigest(content)
    return FileReceipt(
        name=name,
        size=status.st_size,
        xxh3_128=digest,
        etag=digest,
        ctime_ns=status.st_ctime_ns,
        inode=status.st_ino,
    )
