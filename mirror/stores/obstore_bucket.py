"""What obstore does alike for every kind of store: one client for all calls, reads and listings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from mirror.errors import TryAgainError
from mirror.importing import importing
from mirror.store import ObjectInfo
from mirror.stores.driver import note_obstore_runs
from mirror.stores.obstore_answers import answers
from mirror.stores.s3_answers import unquoted

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import AzureStore, S3Store

CHUNK_BYTES = 4 << 20
PAGE = 1_000

Client = TypeVar("Client", "S3Store", "AzureStore")


class ObstoreBucket(Generic[Client]):
    """A bucket or container, and a prefix in it."""

    def __init__(self, prefix: str, connect: Callable[[], Awaitable[Client]], *, redact: Callable[[str], str]) -> None:
        """Prepare; nothing is opened before the first call.

        Args:
            prefix: what all keys lie below; empty, or with a slash at its end.
            connect: makes a client.
            redact: takes secrets out of a text.
        """
        self._prefix = prefix
        self._connect: Callable[[], Awaitable[Client]] = connect
        self._redact = redact
        self._client: Client | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> Client:
        """Return the client, made at the first call."""
        if self._client is None:
            async with self._opening:
                if self._client is None:
                    self._client = await self._connect()
                    note_obstore_runs()
        return self._client

    def forget(self) -> None:
        """Let the next call make a new client."""
        self._client = None

    def path(self, key: str) -> str:
        """Return what an object is called in its bucket."""
        return self._prefix + key

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield an object's bytes, as ``Store.read``."""
        with importing:
            from obstore import get_async  # noqa: PLC0415 - only where obstore is used

        with answers("get", key, self._redact):
            answer = await get_async(await self.open(), self.path(key))
            missing = answer.meta["size"]
            if missing <= CHUNK_BYTES:  # each turn of a stream costs as much as a small object
                data = bytes(await answer.bytes_async())
                missing -= len(data)
                yield data
            else:
                async for chunk in answer.stream(CHUNK_BYTES):
                    missing -= len(chunk)
                    yield bytes(chunk)
        if missing:
            raise TryAgainError("get", key, f"the answer ended {missing} bytes early")

    async def pages(self, prefix: str, *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """Yield pages of what lies in the folder of ``prefix``, in the store's order: more than begins with it.

        Args:
            prefix: of keys.
            after: a key that the store is asked to begin behind; not every store does.

        Raises:
            UnnamedError: another client's key, which obstore cannot name.
            StoreError: the store could not be listed.
        """
        with importing:
            from obstore import list as list_objects  # noqa: PLC0415 - only where obstore is used

        folder = self.path(prefix.rpartition("/")[0])
        first = ""
        with answers("list", prefix, self._redact):
            client = await self.open()
            offset = self.path(after) if after else None
            async for page in list_objects(client, folder, offset=offset, chunk_size=PAGE):
                infos = [self._info(item) for item in page]
                others = infos if first else infos[1:]
                first = first or infos[0].key
                if any(info.key == first for info in others):
                    raise TryAgainError("list", prefix, "the store gives the same page again and again")
                yield infos

    def _info(self, item: ObjectMeta) -> ObjectInfo:
        return ObjectInfo(
            key=item["path"].removeprefix(self._prefix), size_bytes=item["size"], etag=unquoted(item["e_tag"])
        )


def beginning_with(prefix: str, infos: list[ObjectInfo]) -> list[ObjectInfo]:
    """Return those of a folder's objects that are asked for."""
    whole_folder = not prefix or prefix.endswith("/")
    return infos if whole_folder else [info for info in infos if info.key.startswith(prefix)]
