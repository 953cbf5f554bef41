"""A store that only fsspec knows: what its URL says of hosts and accounts reaches it, and its paths are its own."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import fsspec
import pytest
import xxhash
from fsspec.implementations.memory import MemoryFileSystem

from mirror.errors import StoreRefusedError
from mirror.location import parse_location
from mirror.redact import Redactor
from mirror.stores.generic import FsspecStore


class HostedFileSystem(MemoryFileSystem):  # type: ignore[misc] # fsspec ships no types
    """A filesystem that is told its host by the URL or the options, as those of servers are."""

    protocol = "hosted"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    opened_with: ClassVar[list[dict[str, object]]] = []

    def __init__(self, host: str = "", username: str = "", **options: object) -> None:
        """Remember who asked for what."""
        super().__init__(**options)
        self.opened_with.append({"host": host, "username": username})

    @classmethod
    def _get_kwargs_from_urls(cls, path: str) -> dict[str, object]:
        who, _, host = path.removeprefix("hosted://").partition("/")[0].rpartition("@")
        return {"host": host, **({"username": who} if who else {})}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("hosted://").partition("/")[2] if "://" in path else path


@pytest.fixture(autouse=True)
def _registered() -> None:
    fsspec.register_implementation("hosted", HostedFileSystem, clobber=True)
    HostedFileSystem.store.clear()
    HostedFileSystem.opened_with.clear()


def opened(url: str, **options: object) -> FsspecStore:
    return FsspecStore(parse_location(url), options, redact=Redactor({}, {}), threads=2)


async def fill(store: FsspecStore) -> list[str]:
    for key in ("tr_a.json.zst", "_receipts/w/00000001.jsonl"):
        await store.put(key, b"x", xxhash.xxh3_128_hexdigest(b"x"))
    keys = [info.key async for page in store.list_pages() for info in page]
    assert await store.stat("tr_a.json.zst") is not None
    await store.aclose()
    return keys


def test_a_host_in_the_url_is_no_part_of_a_path() -> None:
    """The filesystem is opened with it, and keys lie below the path alone."""
    keys = asyncio.run(fill(opened("hosted://me@server/data/run")))
    assert HostedFileSystem.opened_with == [{"host": "server", "username": "me"}]
    assert sorted(HostedFileSystem.store) == ["/data/run/_receipts/w/00000001.jsonl", "/data/run/tr_a.json.zst"]
    assert keys == ["_receipts/w/00000001.jsonl", "tr_a.json.zst"]


def test_options_win_over_the_url() -> None:
    """What the settings say explicitly is what the store gets."""
    asyncio.run(fill(opened("hosted://me@server/x", username="other")))
    assert HostedFileSystem.opened_with == [{"host": "server", "username": "other"}]


def test_an_account_in_an_azure_url_reaches_the_store() -> None:
    """The usual form of such URLs names container and account; the path is the container's."""
    filesystem = fsspec.get_filesystem_class("abfs")
    url = "abfs://container@account.dfs.core.windows.net/run"
    assert filesystem._get_kwargs_from_urls(url) == {"account_name": "account"}
    assert filesystem._strip_protocol(url) == "container/run"
    assert parse_location(url).uri("k") == f"{url}/k"


def test_an_option_that_nobody_knows_refuses_the_store() -> None:
    """It is the settings that are wrong, not each file."""

    class Strict(HostedFileSystem):
        """A filesystem that takes no other options."""

        def __init__(self, host: str = "", *, use_listings_cache: bool = True) -> None:
            """Take a host, and what every filesystem takes."""
            super().__init__(host, use_listings_cache=use_listings_cache)

    fsspec.register_implementation("hosted", Strict, clobber=True)
    store = opened("hosted://server/x", hots="typo")
    with pytest.raises(StoreRefusedError, match="hots"):
        asyncio.run(fill(store))
    asyncio.run(store.aclose())
