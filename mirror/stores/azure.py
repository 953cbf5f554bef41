"""Azure Blob Storage through adlfs: its options and credentials, the requests made on its client of Azure's SDK.

The MD5 of what is written travels with the request, so that the store refuses other bytes, and comes back with the
answer. The SDK's own retries are off.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import secrets
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mirror.errors import NotFoundError, TryAgainError
from mirror.importing import importing
from mirror.location import Location
from mirror.store import PAGE, Data, ObjectInfo, Parts, Stored
from mirror.stores.azure_place import place_of
from mirror.stores.byte_order import by_bytes
from mirror.stores.reopened import Reopened
from mirror.stores.s3_answers import unquoted
from mirror.stores.translate import opening, translating

if TYPE_CHECKING:
    from adlfs import AzureBlobFileSystem
    from azure.core.pipeline import PipelineRequest
    from azure.storage.blob import BlobProperties
    from azure.storage.blob.aio import BlobClient, ContainerClient


def _streamed(request: PipelineRequest[Any]) -> None:
    """Let aiohttp read the body, which it does not like to be given as bytes."""
    if isinstance(request.http_request.data, bytes):
        request.http_request.data = io.BytesIO(request.http_request.data)


ONCE: Mapping[str, Any] = {"retry_total": 0}  # of the SDK's own attempts after the first
CHECKED: Mapping[str, Any] = {**ONCE, "validate_content": "md5", "raw_request_hook": _streamed}


class _Session(NamedTuple):
    """What adlfs opened."""

    fs: AzureBlobFileSystem
    container: ContainerClient


class AzureStore:
    """A container and a prefix."""

    lists_by_range = False  # a listing cannot be begun behind a key on every account

    def __init__(self, location: Location, options: Mapping[str, object], *, redact: Callable[[str], str]) -> None:
        """Prepare; nothing is opened before the first call."""
        place = place_of(location)
        self._container, self._prefix = place.container, place.prefix
        account = {"account_name": place.account} if place.account else {}
        self._options = {"skip_instance_cache": True, "use_listings_cache": False, **account, **options}
        self._redact = redact
        self._sessions = Reopened(self._connect, self._close)

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:  # noqa: ARG002 - Azure knows no such checksum
        """Write an object with one request that the store checks against its MD5."""
        with translating("put", key, self._redact):
            blob = await self._blob(key)
            answer = await blob.upload_blob(bytes(data), length=len(data), overwrite=True, **CHECKED)
        return _stored(answer)

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:  # noqa: ARG002 - Azure adds up itself
        """Write a large object block by block; blocks that are not put together are no object, and Azure drops them."""
        upload = secrets.token_hex(8)  # an earlier try's blocks may still arrive
        with translating("put", key, self._redact):
            blob = await self._blob(key)
            blocks: list[str] = []
            async for part in parts():
                blocks.append(f"{upload}-{len(blocks):06}")
                await blob.stage_block(blocks[-1], bytes(part), length=len(part), **CHECKED)
            answer = await blob.commit_block_list(_in_order(blocks), **CHECKED)
        return _stored({**answer, "content_md5": None})  # it is the block list's

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield the object's bytes."""
        with translating("get", key, self._redact):
            blob = await self._blob(key)
            answer = await blob.download_blob(max_concurrency=1, **ONCE)
            async for chunk in answer.chunks():
                yield chunk

    async def stat(self, key: str) -> ObjectInfo | None:
        """Describe one object."""
        try:
            with translating("stat", key, self._redact):
                blob = await self._blob(key)
                found = await blob.get_blob_properties(**ONCE)
        except NotFoundError:
            return None
        return ObjectInfo(key=key, size_bytes=found.size, etag=unquoted(found.etag), version_id=_version(found))

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """Yield pages of a thousand objects, from the first that has the prefix on."""
        async for page in by_bytes(self._pages(prefix)):
            yield [info for info in page if info.key > after] if after else page

    async def _pages(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        with translating("list", prefix, self._redact):
            container = await self._open()
            pages: Any = container.list_blobs(
                name_starts_with=self._prefix + prefix, include=["metadata"], results_per_page=PAGE, **ONCE
            ).by_page()
            token: str | None = None
            while (page := await self._next(pages, prefix)) is not None:
                if pages.continuation_token and pages.continuation_token == token:
                    raise TryAgainError("list", prefix, "the store gives the same page again and again")
                token = pages.continuation_token
                yield [self._info(blob) async for blob in page if not _is_folder(blob)]

    async def _next(self, pages: Any, prefix: str) -> Any:  # noqa: ANN401 - the SDK's own iterators, None at their end
        try:
            page = await anext(pages, None)
            is_listing = page is None or bool(pages.service_endpoint)
        except AttributeError:  # the SDK's own, about an answer without what it looks for
            page, is_listing = None, False
        if not is_listing:  # a gateway's page with status 200 must not pass for an empty mirror
            raise TryAgainError("list", prefix, "the answer is no listing")
        return page

    async def refresh(self) -> None:
        """Let the next call make a new client, which reads the credentials again."""
        self._sessions.refresh()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._sessions.aclose()

    async def _blob(self, key: str) -> BlobClient:
        return (await self._open()).get_blob_client(self._prefix + key)

    async def _open(self) -> ContainerClient:
        return (await self._sessions.get()).container

    async def _connect(self) -> _Session:
        with importing:
            from adlfs import AzureBlobFileSystem  # noqa: PLC0415 - heavy, and only where Azure is used

        with opening(self._redact):
            fs = AzureBlobFileSystem(asynchronous=True, loop=asyncio.get_running_loop(), **self._options)
        _disown(fs)
        return _Session(fs, fs.service_client.get_container_client(self._container))

    async def _close(self, session: _Session) -> None:
        """Close the connections; a credential that the user gave is theirs to close."""
        fs = session.fs
        for client in (fs.service_client, fs.credential, fs.sync_credential):
            if client is not None and client is not self._options.get("credential"):
                with contextlib.suppress(Exception):
                    closing = client.close()
                    if inspect.isawaitable(closing):
                        await closing

    def _info(self, blob: BlobProperties) -> ObjectInfo:
        name: str | None = blob.name
        size: int | None = blob.size
        if not name or size is None or size < 0:
            raise TryAgainError("list", "", "the answer lists an object without a name or a size")
        return ObjectInfo(key=name.removeprefix(self._prefix), size_bytes=size, etag=unquoted(blob.etag))


def _in_order(blocks: list[str]) -> list[Any]:
    with importing:
        from azure.storage.blob import BlobBlock  # noqa: PLC0415 - heavy, and only where Azure is used

    return [BlobBlock(block) for block in blocks]


def _stored(answer: Mapping[str, Any]) -> Stored:
    md5 = answer.get("content_md5")
    return Stored(
        etag=unquoted(answer.get("etag")),
        version_id=answer.get("version_id"),
        md5=bytes(md5).hex() if md5 else None,
    )


def _version(found: BlobProperties) -> str | None:
    version: str | None = getattr(found, "version_id", None)
    return version


def _is_folder(blob: BlobProperties) -> bool:
    """Whether this is how an account with a hierarchical namespace lists a directory."""
    return (blob.metadata or {}).get("hdi_isfolder") == "true"


def _disown(fs: AzureBlobFileSystem) -> None:
    """Take away what adlfs would do at the interpreter's end: wait for our event loop, which is no more by then."""
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        alive = finalizer.peek()
        if alive is not None and alive[0] is fs:
            finalizer.detach()
