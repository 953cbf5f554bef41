"""What obstore does alike for every kind of store: one client for all calls, writes, reads and listings.

A file too large for one request, and the description of one object, go through fsspec's driver behind the same seam.
"""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Generic, TypeVar

from mirror.errors import TryAgainError
from mirror.importing import importing
from mirror.store import CHUNK_BYTES, CONNECT_TIMEOUT_S, PAGE, USER_AGENT, Data, ObjectInfo, Parts, Store, Stored
from mirror.stores.driver import note_obstore_runs
from mirror.stores.obstore_answers import answers
from mirror.stores.s3_answers import unquoted
from mirror.stores.threads import DaemonThreads

if TYPE_CHECKING:
    from obstore import Attributes, ObjectMeta, PutResult
    from obstore.store import AzureStore, ClientConfig, S3Store

CONNECT_TIMEOUT = timedelta(seconds=CONNECT_TIMEOUT_S)
CLIENT_OPTIONS: ClientConfig = {
    "timeout": timedelta(days=1),  # every call has a deadline of ours; obstore's own would cut short a slow upload
    "connect_timeout": CONNECT_TIMEOUT,
    "user_agent": USER_AGENT,
}

Client = TypeVar("Client", "S3Store", "AzureStore")


class ObstoreBucket(ABC, Generic[Client]):
    """A bucket or container, and a prefix in it: a ``Store`` but for what is particular to its kind."""

    def __init__(self, prefix: str, *, redact: Callable[[str], str], slow: Store, threads: DaemonThreads) -> None:
        """Prepare; nothing is opened before the first call.

        Args:
            prefix: what all keys lie below; empty, or with a slash at its end.
            redact: takes secrets out of a text.
            slow: fsspec's driver for the same place.
            threads: for what takes long without asking the store; closed with this.
        """
        self._prefix = prefix
        self._redact = redact
        self._slow = slow
        self._threads = threads
        self._client: Client | None = None
        self._opening = asyncio.Lock()

    @abstractmethod
    async def _connect(self) -> Client:
        """Make a client."""

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:
        """Write a large object in parts, each of which is checked."""
        return await self._slow.put_parts(key, parts, size_bytes)

    async def stat(self, key: str) -> ObjectInfo | None:
        """Describe one object, as fsspec's driver does."""
        return await self._slow.stat(key)

    async def refresh(self) -> None:
        """Let the next call make a new client, which reads the credentials again."""
        self._client = None
        await self._slow.refresh()

    async def aclose(self) -> None:
        """Let the connections go."""
        self._client = None
        self._threads.close()
        await self._slow.aclose()

    async def _open(self) -> Client:
        """Return the client, made at the first call."""
        if self._client is None:
            async with self._opening:
                if self._client is None:
                    self._client = await self._connect()
                    note_obstore_runs()
        return self._client

    def _path(self, key: str) -> str:
        """Return what an object is called in its bucket."""
        return self._prefix + key

    async def _put_whole(
        self, key: str, data: Data, *, attributes: Attributes | None = None, tags: dict[str, str] | None = None
    ) -> PutResult:
        """Write an object with one request, and return what was answered."""
        answer: PutResult = await library().put_async(
            await self._open(),  # in no variable: obstore keeps a cancelled call's traceback, and so its variables
            self._path(key),
            data,
            attributes=attributes,
            tags=tags,
            use_multipart=False,
        )
        return answer

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield the object's bytes."""
        with answers("get", key, self._redact):
            answer = await library().get_async(await self._open(), self._path(key))
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

    async def _pages(self, prefix: str, *, after: str = "") -> AsyncGenerator[list[ObjectInfo], None]:
        """Yield pages of what lies in the folder of ``prefix``, in the store's order: more than begins with it.

        Args:
            prefix: of keys.
            after: a key that the store is asked to begin behind; not every store does.

        Raises:
            UnnamedError: another client's key, which obstore cannot name.
            StoreError: the store could not be listed.
        """
        folder = self._path(prefix.rpartition("/")[0])
        first = ""
        with answers("list", prefix, self._redact):
            client = await self._open()
            offset = self._path(after) if after else None
            async for page in library().list(client, folder, offset=offset, chunk_size=PAGE):
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


@functools.cache
def library() -> ModuleType:
    """Return obstore, imported at the first call."""
    with importing:
        import obstore  # noqa: PLC0415 - only where it is used

    return obstore


def beginning_with(prefix: str, infos: list[ObjectInfo]) -> list[ObjectInfo]:
    """Return those of a folder's objects that are asked for."""
    whole_folder = not prefix or prefix.endswith("/")
    return infos if whole_folder else [info for info in infos if info.key.startswith(prefix)]
