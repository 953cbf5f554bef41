"""A mirror's URL, taken apart once: which kind of store, which root, and the URI of each file below it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mirror.errors import ConfigError
from mirror.redact import redact_url

S3_PROTOCOLS = frozenset({"s3", "s3a"})
GCS_PROTOCOLS = frozenset({"gs", "gcs"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://(.*)", re.DOTALL)
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("STORAGE_EMULATOR_HOST",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a mirror is. ``root`` is what fsspec calls the path: ``bucket/prefix``, or an absolute directory."""

    protocol: str  # "file", "s3", "gs", or fsspec's name of another
    root: str  # without a slash at its end, except "/"
    base: str  # the URL that file names are appended to; without user info

    def uri(self, key: str) -> str:
        """Return the URI of a file below the mirror, as a reference or a record's ``mirror`` names it."""
        return f"{self.base}/{key}"

    @property
    def directory(self) -> Path | None:
        """The local directory, or None where the mirror is not one."""
        return Path(self.root) if self.protocol == "file" else None

    def bucket_and_prefix(self) -> tuple[str, str]:
        """Split the root of a bucket store; the prefix is empty or ends with a slash."""
        bucket, _, prefix = self.root.partition("/")
        return bucket, f"{prefix}/" if prefix else ""


def parse_location(url: str | os.PathLike[str]) -> Location:
    """Take a mirror's URL or path apart.

    Raises:
        ConfigError: it is empty, chained, or names no bucket.
    """
    text = os.fspath(url)
    if not text.strip() or "\0" in text:
        raise ConfigError(
            f"the mirror's URL {text!r} names nothing: give s3://bucket/prefix, gs://bucket/prefix or a path"
        )
    match = _SCHEME.fullmatch(text)
    if match is None:
        return _directory(text)
    protocol, rest = match[1].lower(), match[2]
    if "::" in match[1] or re.search(r"::[A-Za-z0-9+.\-]+://", rest):
        raise ConfigError(f"the mirror's URL {redact_url(text)} chains protocols: name the store alone")
    if protocol in {"file", "local"}:
        return _directory(rest if rest.startswith("/") else f"/{rest.partition('/')[2]}")
    protocol = "s3" if protocol in S3_PROTOCOLS else "gs" if protocol in GCS_PROTOCOLS else protocol
    root = re.sub("/+$", "", rest)
    if protocol in {"s3", "gs"} and not root.partition("/")[0]:
        raise ConfigError(f"the mirror's URL {redact_url(text)} names no bucket: write {protocol}://bucket/prefix")
    shown = root.rpartition("@")[2] if protocol not in {"s3", "gs"} else root
    return Location(protocol=protocol, root=root, base=f"{protocol}://{shown}")


def place_id(location: Location, options: Mapping[str, object]) -> str:
    """Name a mirror for what is kept beside the records: readable, and distinct for distinct places.

    The same URL at another endpoint is another place.
    """
    client = options.get("client_kwargs")
    named = [options.get("endpoint_url"), client.get("endpoint_url") if isinstance(client, Mapping) else None]
    named += [os.environ.get(name) for name in _ENDPOINTS.get(location.protocol, ())]
    endpoint = next((str(value).rstrip("/") for value in named if value), "")
    digest = hashlib.sha256(f"{location.base}\n{endpoint}".encode()).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", location.base).strip("-")[:60]
    return f"{readable}-{digest}"


def _directory(path: str) -> Location:
    absolute = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - Path would resolve no ".." here
    return Location(protocol="file", root=absolute, base="file://" + ("" if absolute == "/" else absolute))
