"""What a careful store checks of an upload and the stores that run here do not."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import xxhash

from mirror.testing.faults import Reply, s3_error

if TYPE_CHECKING:
    from collections.abc import Mapping


def refuse_wrong_xxhash128(_method: str, _path: str, headers: Mapping[str, str], body: bytes) -> Reply | None:
    """Answer ``BadDigest`` when the header ``x-amz-checksum-xxhash128`` is not the body's, as S3 does."""
    claimed = headers.get("x-amz-checksum-xxhash128")
    if claimed is None or claimed == base64.b64encode(xxhash.xxh3_128_digest(body)).decode():
        return None
    return s3_error(400, "BadDigest", message="The XXHASH128 you specified did not match the calculated checksum.")
