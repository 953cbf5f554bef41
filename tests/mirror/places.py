"""Places for mirrors on real stores, and what they hold as other clients than ours see it."""

from __future__ import annotations

import functools
import json
import urllib.parse
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mirror import RecordMirror
from mirror.config import MirrorOptions
from mirror.receipts.receipt import Receipt, decode_lines
from mirror.testing import ADMIN, Azurite, FakeGcs, FaultProxy, Identity
from mirror.testing.servers import S3Server
from tests.mirror.tls_fronts import TlsFronts


class Place(Protocol):
    """Where a mirror may be."""

    @property
    def url(self) -> str:
        """The mirror's URL."""

    @property
    def driver(self) -> str:
        """What a mirror's option ``driver`` is to be."""

    def options(self, *, via: str | None = None) -> dict[str, Any]:
        """Return the storage options, through a proxy's URL when given."""

    def names(self) -> set[str]:
        """Return the keys of all objects below the URL."""

    def objects(self) -> dict[str, bytes]:
        """Return every object below the URL, by key."""


@dataclass(frozen=True)
class DirectoryPlace:
    """A directory, which need not be there yet."""

    path: Path
    driver: str = "auto"

    @property
    def url(self) -> str:
        """The mirror's URL."""
        return str(self.path)

    def options(self, *, via: str | None = None) -> dict[str, Any]:
        """Return none."""
        assert via is None, "there is no proxy in front of a directory"
        return {}

    def names(self) -> set[str]:
        """Return the paths of all files below the directory."""
        return {str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file()}

    def objects(self) -> dict[str, bytes]:
        """Return every file, by its path below the directory."""
        return {name: (self.path / name).read_bytes() for name in self.names()}


@dataclass(frozen=True)
class S3Place:
    """A prefix in a bucket of the S3 server; an empty prefix is the bucket's root."""

    server: S3Server
    bucket: str
    prefix: str = "run-7"
    identity: Identity = field(default=ADMIN)
    driver: str = "auto"

    @property
    def url(self) -> str:
        """The mirror's URL."""
        return f"s3://{self.bucket}/{self.prefix}"

    def options(self, *, via: str | None = None) -> dict[str, Any]:
        """Return what s3fs needs."""
        options: dict[str, Any] = self.server.storage_options(self.identity, url=via)
        return options

    def names(self) -> set[str]:
        """Return all keys, as botocore lists them."""
        pages = _client(self.server).get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self._below)
        return {item["Key"].removeprefix(self._below) for page in pages for item in page.get("Contents", ())}

    def objects(self) -> dict[str, bytes]:
        """Return every object, as botocore reads it."""
        client = _client(self.server)
        return {
            name: client.get_object(Bucket=self.bucket, Key=self._below + name)["Body"].read() for name in self.names()
        }

    def identities(self) -> dict[str, tuple[str, str | None]]:
        """Return each object's ETag and version (None where none is kept), as botocore lists them."""
        client = _client(self.server)
        versions = client.list_object_versions(Bucket=self.bucket, Prefix=self._below)["Versions"]
        return {
            version["Key"].removeprefix(self._below): (
                version["ETag"].strip('"'),
                None if version["VersionId"] == "null" else version["VersionId"],
            )
            for version in versions
            if version["IsLatest"]
        }

    @property
    def _below(self) -> str:
        return _below(self.prefix)


@dataclass(frozen=True)
class GcsPlace:
    """A prefix in a bucket of the GCS server."""

    server: FakeGcs
    bucket: str
    prefix: str = "run-7"
    driver: str = "auto"

    @property
    def url(self) -> str:
        """The mirror's URL."""
        return f"gs://{self.bucket}/{self.prefix}"

    def options(self, *, via: str | None = None) -> dict[str, Any]:
        """Return what gcsfs needs."""
        return self.server.storage_options(url=via)

    def names(self) -> set[str]:
        """Return all names, as the JSON API lists them."""
        below = _below(self.prefix)
        names: set[str] = set()
        token = ""
        while True:
            page = json.loads(self._get("", prefix=below, pageToken=token))
            names |= {item["name"].removeprefix(below) for item in page.get("items", ())}
            token = page.get("nextPageToken", "")
            if not token:
                return names

    def objects(self) -> dict[str, bytes]:
        """Return every object, as the JSON API gives it."""
        return {name: self._get(self._object(_below(self.prefix) + name), alt="media") for name in self.names()}

    def identities(self) -> dict[str, tuple[str, str | None]]:
        """Return each object's ETag and generation, as the JSON API gives them one by one."""
        found = {name: json.loads(self._get(self._object(_below(self.prefix) + name))) for name in self.names()}
        return {name: (item["etag"], item["generation"]) for name, item in found.items()}

    def _object(self, name: str) -> str:
        return "/" + urllib.parse.quote(name, safe="")

    def _get(self, path: str, **query: str) -> bytes:
        url = f"{self.server.url}/storage/v1/b/{self.bucket}/o{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own http URL
            content: bytes = answer.read()
            return content


@dataclass(frozen=True)
class AzurePlace:
    """A prefix in a container of the Azure server; obstore is led there by TLS."""

    server: Azurite
    container: str
    prefix: str
    fronts: TlsFronts
    driver: str = "obstore"

    @property
    def url(self) -> str:
        """The mirror's URL."""
        return f"az://{self.container}/{self.prefix}"

    def options(self, *, via: str | None = None) -> dict[str, Any]:
        """Return what adlfs needs."""
        url = via or self.server.url
        return self.server.storage_options(url=self.fronts.of(url) if self.driver == "obstore" else url)

    def names(self) -> set[str]:
        """Return all names, as Azure's own client lists them."""
        return set(self.identities())

    def objects(self) -> dict[str, bytes]:
        """Return every object, as Azure's own client reads it."""
        container = _azure_client(self.server).get_container_client(self.container)
        return {name: container.download_blob(_below(self.prefix) + name).readall() for name in self.names()}

    def identities(self) -> dict[str, tuple[str, str | None]]:
        """Return each object's ETag; no version is kept."""
        below = _below(self.prefix)
        container = _azure_client(self.server).get_container_client(self.container)
        return {
            blob.name.removeprefix(below): (blob.etag.strip('"'), None)
            for blob in container.list_blobs(name_starts_with=below)
        }


@functools.cache
def _azure_client(server: Azurite) -> Any:  # noqa: ANN401 - an SDK's own class
    return server.client()


@functools.cache
def _client(server: S3Server) -> Any:  # noqa: ANN401 - botocore makes its clients' classes at run time
    return server.client()  # making one takes longer than using it


def _below(prefix: str) -> str:
    return f"{prefix.strip('/')}/" if prefix.strip("/") else ""


def mirror_to(place: Place, *, via: str | None = None, **options: Any) -> RecordMirror:  # noqa: ANN401 - mirror options
    """Make a mirror that gives up and backs off quickly, unless ``options`` say otherwise."""
    settings: MirrorOptions = {"workers": 16, "backoff_s": 0.05, "timeout_s": 20, "fsync": False, "rescan_s": 0.2}
    settings["driver"] = place.driver
    return RecordMirror(place.url, **{**settings, **options, "storage_options": place.options(via=via)})


def record_files(directory: Path) -> dict[str, bytes]:
    """Return what a mirror of this directory must hold: each document, and its sidecars."""
    names = [path.name for path in directory.iterdir() if path.is_file() and not path.is_symlink()]
    finished = {name.removesuffix(".json.zst") for name in names if name.endswith(".json.zst") and name[0] != "."}
    wanted = [name for name in names if name.endswith(".zst") and name[:-4].rpartition(".")[0] in finished]
    return {name: (directory / name).read_bytes() for name in wanted}


def mirrored_files(place: Place) -> dict[str, bytes]:
    """Return what a mirror holds besides receipts."""
    return {key: content for key, content in place.objects().items() if "_receipts/" not in key}


def receipts_in(place: Place) -> list[Receipt]:
    """Return every receipt that a mirror holds; each line must be one."""
    segments = [content for key, content in place.objects().items() if "_receipts/" in key]
    found = [receipt for content in segments for receipt in decode_lines(content)]
    assert all(isinstance(receipt, Receipt) for receipt in found), found
    return [receipt for receipt in found if isinstance(receipt, Receipt)]


def puts(proxy: FaultProxy) -> Counter[str]:
    """Count the PUTs of record files that reached an S3 server through a proxy, by file name."""
    names = [
        urllib.parse.unquote(request.path.partition("?")[0].rpartition("/")[2])
        for request in proxy.requests
        if request.method == "PUT" and "_receipts/" not in request.path
    ]
    return Counter(names)
