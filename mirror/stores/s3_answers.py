"""What S3's answers say of an object, whichever client brings them: its identity, and whether it is the right one."""

from __future__ import annotations

import re

from mirror.errors import TryAgainError
from mirror.store import Stored

_MD5_HEX = re.compile(r"[0-9a-f]{32}", re.ASCII)


def unquoted(etag: str | None) -> str | None:
    """Return an ETag as receipts keep it."""
    return etag.strip('"') if etag else None


def real_version(version_id: str | None) -> str | None:
    """Return a version id; a bucket without versions has none, whatever it calls that."""
    return version_id if version_id != "null" else None


def lists_in_order(bucket: str) -> bool:
    """Whether a bucket's keys ascend in a listing; those of a directory bucket do not."""
    return not bucket.endswith("--x-s3")


class EtagCheck:
    """Compares uploads by their ETags, once the store has shown that these are MD5s."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._is_md5 = False

    def learn(self, etag: str | None, md5: str) -> None:
        """Take note of an ETag whose bytes are known."""
        self._is_md5 = etag == md5

    def check(self, key: str, stored: Stored, *, encrypted: bool) -> None:
        """Compare an upload's ETag with the MD5 of the bytes that were sent, if both are known.

        Args:
            key: what was written.
            stored: what the answer said, with the MD5.
            encrypted: whether the store encrypts in a way that makes the ETag another thing.

        Raises:
            TryAgainError: the store holds other bytes.
        """
        if stored.md5 is None or stored.etag is None or encrypted or not _MD5_HEX.fullmatch(stored.etag):
            return
        if stored.etag == stored.md5:
            self._is_md5 = True
        elif self._is_md5:
            raise TryAgainError("put", key, f"the store holds other bytes than were sent: its MD5 is {stored.etag}")
