"""A reference: what a step's W&B artifact says about one file in the mirror, made from the file's receipt alone.

W&B's own download compares a reference's digest with what it finds: the ETag on S3, the JSON API's ``etag`` on Google
Cloud Storage, the MD5 of a local file. All three are in the receipt, so that nobody asks the store again.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote_from_bytes

import msgspec

from mirror.location import Location
from mirror.receipts.receipt import FileReceipt

FOLDER = "records"
_PLAIN = re.compile(r"[A-Za-z0-9_.\-]+", re.ASCII)  # nearly all names, and never quoted


class Reference(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of an artifact that points to a file outside W&B; a step has tens of thousands."""

    path: str  # in the artifact, e.g. ``records/tr_ab12.json.zst``
    uri: str
    digest: str  # what W&B's handler for the URI's scheme compares
    size_bytes: int
    extra: dict[str, str] = msgspec.field(default_factory=dict)


def reference_to(file: FileReceipt, mirror: Location) -> Reference | None:
    """Return the reference to a mirrored file, or None where W&B could not follow one.

    One reference that W&B cannot follow makes its download of the whole version fail. So there is none for a file

    - in a store that W&B has no handler for (``abfs://``, ``memory://``, ``sftp://``, ...),
    - whose receipt lacks what W&B compares: the ETag, or for a local file the MD5,
    - on S3 or Google Cloud Storage with ``#`` or ``?`` in its URI.
    """
    if mirror.protocol == "file":
        return _local_reference(file, mirror)
    uri = mirror.uri(file.name)
    if mirror.protocol not in {"s3", "gs"} or not file.etag or "#" in uri or "?" in uri:
        return None  # W&B parses both as URLs, and drops what follows these two
    extra = {"etag": file.etag, "xxh3_128": file.xxh3_128}
    if file.version_id and file.version_id != "null":  # what S3 calls the version in a bucket without versions
        extra["versionID"] = file.version_id
    return Reference(path=f"{FOLDER}/{file.name}", uri=uri, digest=file.etag, size_bytes=file.size, extra=extra)


def _local_reference(file: FileReceipt, mirror: Location) -> Reference | None:
    if not file.md5:
        return None
    return Reference(
        path=f"{FOLDER}/{file.name}",
        uri=_folder_uri(mirror.root) + (file.name if _PLAIN.fullmatch(file.name) else _quoted(file.name)),
        digest=b64encode(bytes.fromhex(file.md5)).decode(),
        size_bytes=file.size,
        extra={"xxh3_128": file.xxh3_128},
    )


def _quoted(name: str) -> str:
    return quote_from_bytes(os.fsencode(name))


@lru_cache(maxsize=16)
def _folder_uri(folder: str) -> str:
    """Return what the names of a folder's files follow, quoted: W&B unquotes the path of ``file://`` alone."""
    return Path(folder, "x").as_uri().removesuffix("x")
