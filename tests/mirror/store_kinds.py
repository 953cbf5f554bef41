"""Every kind of store behind the seam, on real servers, each with a fresh root."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest
import xxhash

from mirror.breaker import Breaker
from mirror.config import MirrorConfig
from mirror.limiter import Limiter
from mirror.location import Location, parse_location
from mirror.redact import Redactor
from mirror.reliable import ReliableStore
from mirror.retry import RetryPolicy
from mirror.store import PART_BYTES, Store, Stored, read_whole
from mirror.stores.generic import FsspecStore
from mirror.stores.opening import open_store
from mirror.testing import Azurite, FakeGcs, SeaweedS3
from mirror.testing.stores import MemoryStore
from tests.mirror.places import AzurePlace, DirectoryPlace, GcsPlace, Place, S3Place
from tests.mirror.tls_fronts import TlsFronts

T = TypeVar("T")

# "s3" is obstore's driver, "s3_fsspec" s3fs's, and "s3fs" what any other filesystem of fsspec gets.
ALL_KINDS = (
    *("fake", "directory", "memory", "s3", "s3_versioned", "s3_fsspec", "s3_fsspec_versioned", "gcs", "s3fs"),
    *("azure", "azure_fsspec"),  # likewise
)


@dataclass(frozen=True)
class Kind:
    """How to open one kind of store."""

    name: str
    location: Location
    open: Callable[[], Store]
    place: Place | None  # as another client sees it; None: no other client can

    def run(self, use: Callable[[Store], Awaitable[T]]) -> T:
        """Open the store on a loop of its own, use it, and close it."""

        async def session() -> T:
            store = self.open()
            try:
                return await use(store)
            finally:
                await store.aclose()

        return asyncio.run(session())


def kind_of(
    place: Place, *, name: str = "", via: str | None = None, upload_checksum: str = "auto", driver: str | None = None
) -> Kind:
    """Return the store that a mirror would use for a place, through a proxy's URL when given."""
    if isinstance(place, AzurePlace):  # the driver decides how to get there
        place = replace(place, driver=driver or place.driver)
    location = parse_location(place.url)
    options = place.options(via=via)
    config = MirrorConfig(
        workers=16,
        fsync=False,
        upload_checksum=upload_checksum,
        driver=driver or place.driver,
        storage_options=options,
    )
    return Kind(
        name or location.protocol,
        location,
        lambda: open_store(location, config),
        place,
    )


@functools.cache
def shared_bucket(server: SeaweedS3 | FakeGcs | Azurite, *, versioned: bool) -> str:
    """Return a bucket that tests share, each below a prefix of its own: making one takes a while."""
    name = "shared-versioned" if versioned else "shared"
    if isinstance(server, SeaweedS3):
        return server.make_bucket(name, versioned=versioned)
    return server.make_bucket(name)


def fresh_kind(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """Return one of ``ALL_KINDS`` with a root that nobody used before."""
    if name == "directory":
        return kind_of(DirectoryPlace(tmp_path / "deep" / "new" / "mirror"), name=name)
    if name == "fake":  # the one that other tests use in place of the rest
        fake = MemoryStore()
        return Kind(name, parse_location("s3://bucket/run-7"), lambda: fake, None)
    if name == "memory":
        location = parse_location(f"memory://{uuid.uuid4().hex}/run-7")
        return Kind(name, location, lambda: FsspecStore(location, {}, redact=Redactor(), threads=8), None)
    return _kind_on_a_server(name, request)


def _kind_on_a_server(name: str, request: pytest.FixtureRequest) -> Kind:
    prefix = f"runs/{uuid.uuid4().hex}"
    if name == "gcs":
        fake_gcs = request.getfixturevalue("fake_gcs")
        return kind_of(GcsPlace(fake_gcs, shared_bucket(fake_gcs, versioned=False), prefix), name=name)
    if name in {"azure", "azure_fsspec"}:
        azurite: Azurite = request.getfixturevalue("azurite")
        fronts: TlsFronts = request.getfixturevalue("tls_fronts")
        azure_place = AzurePlace(azurite, shared_bucket(azurite, versioned=False), prefix, fronts)
        return kind_of(azure_place, name=name, driver="obstore" if name == "azure" else "fsspec")
    seaweed = request.getfixturevalue("seaweed")
    place = S3Place(seaweed, shared_bucket(seaweed, versioned=name.endswith("_versioned")), prefix)
    native = kind_of(place, name=name, driver="obstore" if name in {"s3", "s3_versioned"} else "fsspec")
    if name != "s3fs":
        return native
    generic = FsspecStore(native.location, place.options(), redact=Redactor(), threads=4)
    return replace(native, open=lambda: generic)


async def put(store: Store, key: str, content: bytes) -> Stored:
    """Write an object as a mirror does."""
    return await store.put(key, content, xxhash.xxh3_128_hexdigest(content))


async def get(store: Store, key: str) -> bytes:
    """Read an object as a whole."""
    return await read_whole(store, key, max_bytes=1 << 30)


async def keys_of(store: Store, prefix: str = "", *, after: str = "") -> list[str]:
    """List all keys."""
    return [info.key async for page in store.list_pages(prefix, after=after) for info in page]


def reliable(store: Store, *, attempts: int = 3, timeout_s: float = 20.0) -> ReliableStore:
    """Call a store as often as it takes."""
    policy = RetryPolicy(attempts=attempts, backoff_s=0.01, timeout_s=timeout_s)
    return ReliableStore(store, policy, limiter=Limiter(8), breaker=Breaker("the store"))


def parts_of(size: int) -> Callable[[], AsyncIterator[bytes]]:
    """Return a large file as a mirror reads it."""

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, size, PART_BYTES):
            yield bytes(min(PART_BYTES, size - start))

    return parts
