"""Google Cloud Storage through gcsfs: its session and credentials, the JSON API's requests made here.

The object's MD5 travels with the upload, so that the store refuses other bytes; the answer carries etag and generation.
Form of requests: https://cloud.google.com/storage/docs/json_api/v1/objects
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import io
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import msgspec

from mirror.errors import NotFoundError, StoreRefusedError, TryAgainError
from mirror.importing import importing
from mirror.location import Location
from mirror.store import CHUNK_BYTES, Data, ObjectInfo, Parts, Stored
from mirror.stores.translate import opening, translating

if TYPE_CHECKING:
    import aiohttp
    import gcsfs

MAX_ANSWER_BYTES = 32 << 20  # of JSON; a page of a thousand objects takes one or two
MAX_ERROR_BYTES = 10_000
LIST_FIELDS = "kind,nextPageToken,items(name,size,etag,generation)"
_REFUSED = 300
_NEXT_PART = 308  # "Resume Incomplete"
_NOT_FOUND = 404


class _Object(msgspec.Struct):
    """What an answer says of an object; anything else that it says is ignored."""

    name: str = ""
    size: Annotated[int, msgspec.Meta(ge=0)] = 0  # text in the answer
    etag: str | None = None
    generation: str | None = None
    md5_hash: str | None = msgspec.field(default=None, name="md5Hash")


class _Page(msgspec.Struct):
    items: tuple[_Object, ...] = ()
    next_page_token: str = msgspec.field(default="", name="nextPageToken")
    kind: str | None = None


_objects = msgspec.json.Decoder(_Object, strict=False)
_pages = msgspec.json.Decoder(_Page, strict=False)


class GcsStore:
    """A bucket and a prefix."""

    lists_by_range = True

    def __init__(self, location: Location, options: Mapping[str, object], *, redact: Callable[[str], str]) -> None:
        """Prepare; nothing is opened before the first call."""
        self._bucket, self._prefix = location.bucket_and_prefix()
        self._redact = redact
        self._options = {"skip_instance_cache": True, "use_listings_cache": False, **options}
        self._fs: gcsfs.GCSFileSystem | None = None

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:  # noqa: ARG002 - GCS knows no such checksum
        """Write an object with one request that the store checks against its MD5."""
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        resource = {"name": self._prefix + key, "md5Hash": base64.b64encode(digest).decode()}
        boundary = secrets.token_hex(16)
        head = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(resource)}\r\n"
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        body = b"".join((head.encode(), data, f"\r\n--{boundary}--\r\n".encode()))
        with translating("put", key, self._redact):
            answer = await self._text(
                "POST",
                self._upload_url(),
                {"uploadType": "multipart"},
                data=io.BytesIO(body),
                headers={"Content-Type": f"multipart/related; boundary={boundary}"},
            )
            return self._checked(key, _objects.decode(answer), digest)

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:
        """Write a large object through a resumable upload; it becomes visible with its last part."""
        digest = hashlib.md5(usedforsecurity=False)
        answer = b""
        with translating("put", key, self._redact):
            url = await self._begin_upload(key)
            offset = 0
            async for part in parts():
                digest.update(part)
                last = offset + len(part) - 1
                answer = await self._text(
                    "PUT",
                    url,
                    {},
                    data=io.BytesIO(part),
                    headers={"Content-Range": f"bytes {offset}-{last}/{size_bytes}"},
                )
                offset += len(part)
            return self._checked(key, _objects.decode(answer), digest.digest())

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield the object's bytes."""
        with translating("get", key, self._redact):
            async with await self._request("GET", self._object_url(key), {"alt": "media"}) as answer:
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    yield chunk

    async def stat(self, key: str) -> ObjectInfo | None:
        """Describe one object."""
        try:
            with translating("stat", key, self._redact):
                found = _objects.decode(await self._text("GET", self._object_url(key), {}))
                if not found.name:
                    raise TryAgainError("stat", key, "the answer describes no object")
                return self._info(found)
        except NotFoundError:
            return None

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """Yield pages of a thousand objects."""
        query = {"prefix": self._prefix + prefix, "fields": LIST_FIELDS, "maxResults": "1000"}
        if after:
            query["startOffset"] = self._prefix + after
        while True:
            try:
                with translating("list", prefix, self._redact):
                    answer = _pages.decode(await self._text("GET", self._bucket_url() + "/o", query) or b"{}")
            except NotFoundError as error:
                raise StoreRefusedError("list", prefix, f"no such bucket: {error.reason}") from None
            if answer.kind is None or not all(item.name for item in answer.items):
                # A gateway's page with status 200 must not pass for an empty bucket.
                raise TryAgainError("list", prefix, "the answer is not a listing")
            if answer.next_page_token and answer.next_page_token == query.get("pageToken"):
                raise TryAgainError("list", prefix, "the store gives the same page again and again")
            page = [self._info(item) for item in answer.items]
            yield [info for info in page if info.key > after] if after else page
            if not answer.next_page_token:
                return
            query["pageToken"] = answer.next_page_token

    async def refresh(self) -> None:
        """Make a new session, which reads the credentials again."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        fs, self._fs = self._fs, None
        if fs is not None and fs._session is not None:  # noqa: SLF001 - gcsfs closes only from another thread
            with contextlib.suppress(Exception):
                await fs._session.close()  # noqa: SLF001 - likewise

    async def _request(
        self,
        method: str,
        url: str,
        query: Mapping[str, str],
        **arguments: Any,  # noqa: ANN401 - aiohttp's own
    ) -> aiohttp.ClientResponse:
        """Make one request; the caller reads and releases the answer.

        Raises:
            GcsAnswerError: the answer is not a success.
        """
        fs = self._filesystem()
        session: aiohttp.ClientSession = await fs._set_session()  # noqa: SLF001 - the seam into gcsfs
        headers = fs._get_headers(arguments.pop("headers", None))  # noqa: SLF001 - adds the credentials
        params = fs._get_params(dict(query))  # noqa: SLF001 - adds the project that pays
        answer = await session.request(method, url, params=params, headers=headers, **arguments)
        if answer.status >= _REFUSED and answer.status != _NEXT_PART:
            raise GcsAnswerError(answer.status, await _read(answer, MAX_ERROR_BYTES), answer.headers)
        return answer

    async def _text(
        self,
        method: str,
        url: str,
        query: Mapping[str, str],
        **arguments: Any,  # noqa: ANN401 - aiohttp's own
    ) -> bytes:
        async with await self._request(method, url, query, **arguments) as answer:
            text = await _read(answer, MAX_ANSWER_BYTES + 1)
        if len(text) > MAX_ANSWER_BYTES:
            raise ValueError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        return text

    async def _begin_upload(self, key: str) -> str:
        query = {"uploadType": "resumable"}
        async with await self._request("POST", self._upload_url(), query, json={"name": self._prefix + key}) as answer:
            return str(answer.headers["Location"])

    def _checked(self, key: str, answer: _Object, md5: bytes) -> Stored:
        if answer.name and answer.name != self._prefix + key:  # a name goes in the body, of which no checksum speaks
            raise TryAgainError("put", key, f"the store took it by another name: {answer.name}")
        if answer.md5_hash and base64.b64decode(answer.md5_hash) != md5:
            raise TryAgainError("put", key, "the store holds other bytes than were sent: its MD5 differs")
        return Stored(etag=answer.etag, version_id=answer.generation, md5=md5.hex())

    def _filesystem(self) -> gcsfs.GCSFileSystem:
        with importing:
            from gcsfs import GCSFileSystem  # noqa: PLC0415 - heavy, and only where GCS is used

        if self._fs is None:
            with opening(self._redact):
                self._fs = GCSFileSystem(asynchronous=True, loop=asyncio.get_running_loop(), **self._options)
        return self._fs

    def _root_url(self) -> str:
        return str(self._filesystem()._location).rstrip("/")  # noqa: SLF001 - knows emulators, mTLS, private endpoints

    def _bucket_url(self) -> str:
        return f"{self._root_url()}/storage/v1/b/{quote(self._bucket, safe='')}"

    def _object_url(self, key: str) -> str:
        return f"{self._bucket_url()}/o/{quote(self._prefix + key, safe='')}"

    def _upload_url(self) -> str:
        return f"{self._root_url()}/upload/storage/v1/b/{quote(self._bucket, safe='')}/o"

    def _info(self, item: _Object) -> ObjectInfo:
        return ObjectInfo(
            key=item.name.removeprefix(self._prefix),
            size_bytes=item.size,
            etag=item.etag,
            version_id=item.generation,
        )


class GcsAnswerError(Exception):
    """An answer that is not a success, in the shape by which S3's are judged too."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Take the reason from the answer's JSON, if it is any."""
        text = body.decode(errors="replace").strip()
        code: str | None = None
        with contextlib.suppress(ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            error = json.loads(text)["error"]
            text = str(error.get("message", text))
            code = str(error["errors"][0]["reason"])
        if status == _NOT_FOUND and "bucket does not exist" in text.lower():  # an object's message names its bucket
            code = "NoSuchBucket"
        super().__init__(f"{status} {text}")
        self.response: Mapping[str, Mapping[str, object]] = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
        }


async def _read(answer: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Read no more of an answer's body than that, however long it goes on, unpacked, if it came packed."""
    text = bytearray()
    async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
        text += chunk
        if len(text) >= max_bytes:
            answer.close()  # what is left of it is not waited for
            break
    return bytes(text[:max_bytes])
