"""A mirror's URL, taken apart once: which kind of store, which root, and the URI of each file below it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mirror.errors import ConfigError
from mirror.redact import redact_url
from mirror.showing import show

S3_PROTOCOLS = frozenset({"s3", "s3a"})
GCS_PROTOCOLS = frozenset({"gs", "gcs"})
# What stands before the @ of an Azure URL is the container.
CONTAINER_PROTOCOLS = frozenset({"abfs", "abfss", "az", "adl", "wasb", "wasbs"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^\x00-\x1f\x7f-\x9f\ud800-\udfff]*)")
_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/[^/]")
_MISTYPED = re.compile(
    rf"({'|'.join(S3_PROTOCOLS | GCS_PROTOCOLS | CONTAINER_PROTOCOLS)})(?::/?|//)(?!/)", re.IGNORECASE
)
_ENDPOINT_VARIABLES = {
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
    def shown(self) -> str:
        """The URL as a log or a page shows it: what looks like a signature is blanked."""
        return redact_url(self.base)

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
    if not isinstance(url, str | os.PathLike):
        kind = type(url).__name__
        raise ConfigError(f"the mirror's URL must be text or a path such as s3://bucket/prefix, not {kind}")
    text = os.fspath(url)
    redacted = redact_url(text)
    shown = show(redacted)
    if not text.strip() or "\0" in text:
        raise ConfigError(
            f"the mirror's URL {shown} names nothing: give s3://bucket/prefix, gs://bucket/prefix or a path"
        )
    match = _SCHEME.fullmatch(text)
    if match is None:
        _refuse_mistyped(text, shown)
        return _directory(text)
    protocol, rest = match[1].lower(), match[2]
    if re.search(r"::[A-Za-z0-9+.\-]+://", rest):
        raise ConfigError(f"the mirror's URL {shown} chains protocols: name the store alone")
    if protocol in {"file", "local"}:
        host, slash, path = rest.partition("/")
        if host not in {"", "localhost"} or not slash:
            local = show(redacted.replace("://", ":///", 1))
            raise ConfigError(f"the mirror's URL {shown} names a host: write {local}, or the path alone")
        return _directory(f"/{path}")
    protocol = "s3" if protocol in S3_PROTOCOLS else "gs" if protocol in GCS_PROTOCOLS else protocol
    root = re.sub("/+$", "", rest)
    place, slash, path = root.partition("/")
    if protocol in {"s3", "gs"} and not place:
        raise ConfigError(f"the mirror's URL {shown} names no bucket: write {protocol}://bucket/prefix")
    if protocol in {"s3", "gs"} and ("@" in place or ":" in place):  # a key's secret may hold a slash
        raise ConfigError(f"the mirror's URL {shown} holds credentials: give them as storage_options")
    public = place if protocol in CONTAINER_PROTOCOLS else place.rpartition("@")[2]
    return Location(protocol=protocol, root=root, base=f"{protocol}://{public}{slash}{path}")


def endpoint_of(protocol: str, options: Mapping[str, object], environment: Mapping[str, str]) -> str | None:
    """Return the endpoint that a store's options name, or else the environment; None: the store's usual one."""
    client = options.get("client_kwargs")
    named = [options.get("endpoint_url"), client.get("endpoint_url") if isinstance(client, Mapping) else None]
    named += [environment.get(name) for name in _ENDPOINT_VARIABLES.get(protocol, ())]
    return next((str(value).rstrip("/") for value in named if value), None)


def _refuse_mistyped(text: str, shown: str) -> None:
    """Let nothing become a directory that was meant to be a URL.

    Raises:
        ConfigError: it was.
    """
    if (mistyped := _MISTYPED.match(text)) is not None:
        meant = show(redact_url(f"{mistyped[1]}://{text[mistyped.end() :]}"))
        raise ConfigError(f"the mirror's URL is neither protocol://place nor a path: did you mean {meant}?")
    if "://" in text or _ONE_SLASH.match(text):
        raise ConfigError(f"the mirror's URL {shown} is neither protocol://place nor a path: give one of them")


def absolute_path(path: str) -> str:
    """Return a path that means the same from every directory: ``~`` and ``..`` are resolved, links are not."""
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - Path would resolve no ".." here


def _directory(path: str) -> Location:
    absolute = absolute_path(path)
    return Location(protocol="file", root=absolute, base="file://" + ("" if absolute == "/" else absolute))
