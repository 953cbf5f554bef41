"""S3 and what speaks like it, through s3fs driven natively: one PUT and one round trip a file, checked on arrival.

s3fs brings the session, the credentials and the user's options; the requests are made on its client, without its
retries and without its translation of errors, so that codes, statuses and headers arrive whole.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from mirror.errors import NotFoundError, TryAgainError
from mirror.importing import importing
from mirror.location import Location
from mirror.store import CHUNK_BYTES, CONNECT_TIMEOUT_S, USER_AGENT, Data, ObjectInfo, Parts, Stored
from mirror.stores.reopened import Reopened
from mirror.stores.s3_answers import EtagCheck, lists_in_order, real_version, unquoted
from mirror.stores.translate import opening, translating

if TYPE_CHECKING:
    import s3fs

ABORT_TIMEOUT_S = 5  # to take back a large upload after its deadline; what is left is the bucket's lifecycle's to clear
_XXH3_128_BYTES = 16
_AWS_HOST = re.compile(r"(?:^|\.)amazonaws\.com(?:\.cn)?$")


class _Session(NamedTuple):
    """What s3fs opened."""

    fs: s3fs.S3FileSystem
    client: Any  # aiobotocore's; its methods are made at run time


class S3Store:
    """A bucket and a prefix.

    What proves an upload: on AWS the receipt's own hash as ``x-amz-checksum-xxhash128``, elsewhere ``Content-MD5``; and
    the ETag of the answer, once this store has shown that its ETags are MD5s.
    """

    def __init__(
        self,
        location: Location,
        options: Mapping[str, object],
        *,
        redact: Callable[[str], str],
        connections: int,
        upload_checksum: str = "auto",
    ) -> None:
        """Prepare; nothing is opened before the first call. ``upload_checksum``: auto, xxh3_128 or md5."""
        self._bucket, self._prefix = location.bucket_and_prefix()
        self.lists_by_range = lists_in_order(self._bucket)
        self._redact = redact
        self._options = session_options(options, connections)
        self._upload_checksum = upload_checksum
        self._etags = EtagCheck()
        self._sessions = Reopened(self._connect, _close)
        self._fs: s3fs.S3FileSystem | None = None  # that was opened last
        self._extras: dict[str, dict[str, Any]] = {}  # what the user's options add to each operation

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
        """Write an object with one request."""
        with translating("put", key, self._redact):
            client = await self._open()
            checksum, md5 = self._proof(data, xxh3_128)
            answer = await client.put_object(
                **self._arguments(
                    client, "put_object", Bucket=self._bucket, Key=self._prefix + key, Body=bytes(data), **checksum
                )
            )
        stored = _stored(answer, md5)
        self._check(key, stored, answer)
        return stored

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:  # noqa: ARG002 - S3 adds up itself
        """Write a large object as a multipart upload, which is aborted if anything fails."""
        target = {"Bucket": self._bucket, "Key": self._prefix + key}
        with translating("put", key, self._redact):
            client = await self._open()
            begun = await client.create_multipart_upload(**self._arguments(client, "create_multipart_upload", **target))
            upload = {**target, "UploadId": begun["UploadId"]}
            try:
                done: list[dict[str, object]] = []
                async for part in parts():
                    data = bytes(part)  # as botocore wants it
                    number = len(done) + 1
                    checksum = {
                        "ContentMD5": base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
                    }
                    answer = await client.upload_part(
                        **self._arguments(client, "upload_part", **upload, PartNumber=number, Body=data, **checksum)
                    )
                    done.append({"PartNumber": number, "ETag": answer["ETag"]})
                answer = await client.complete_multipart_upload(
                    **self._arguments(client, "complete_multipart_upload", **upload, MultipartUpload={"Parts": done})
                )
            except BaseException:
                with contextlib.suppress(Exception):  # the first error is the one to tell
                    async with asyncio.timeout(ABORT_TIMEOUT_S):
                        await client.abort_multipart_upload(
                            **self._arguments(client, "abort_multipart_upload", **upload)
                        )
                raise
        return _stored(answer, None)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield the object's bytes."""
        with translating("get", key, self._redact):
            client = await self._open()
            answer = await client.get_object(
                **self._arguments(client, "get_object", Bucket=self._bucket, Key=self._prefix + key)
            )
            async with answer["Body"] as body:
                missing = int(answer["ContentLength"])
                while chunk := await body.read(CHUNK_BYTES):
                    missing -= len(chunk)
                    yield chunk
        if missing:
            raise TryAgainError("get", key, f"the answer ended {missing} bytes early")

    async def stat(self, key: str) -> ObjectInfo | None:
        """Describe one object; on AWS with the hash that was given at the upload."""
        try:
            with translating("stat", key, self._redact):
                client = await self._open()
                target = {"Bucket": self._bucket, "Key": self._prefix + key}
                answer = await client.head_object(
                    **self._arguments(client, "head_object", **target, ChecksumMode="ENABLED")
                )
        except NotFoundError:
            return None
        stored = _stored(answer, None)
        checksum = answer.get("ChecksumXXHASH128")
        return ObjectInfo(
            key=key,
            size_bytes=int(answer["ContentLength"]),
            etag=stored.etag,
            version_id=stored.version_id,
            xxh3_128=_digest(checksum),
        )

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """Yield pages of a thousand objects."""
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        if after:
            request["StartAfter"] = self._prefix + after
        while True:
            with translating("list", prefix, self._redact):
                client = await self._open()
                answer = await client.list_objects_v2(**self._arguments(client, "list_objects_v2", **request))
            more = answer.get("IsTruncated")
            if more is None or (more and not answer.get("NextContinuationToken")):
                # A gateway's page with status 200 must not pass for an empty bucket.
                raise TryAgainError("list", prefix, "the answer is not a whole listing")
            if more and answer["NextContinuationToken"] == request.get("ContinuationToken"):
                raise TryAgainError("list", prefix, "the store gives the same page again and again")
            yield self._page(prefix, answer.get("Contents", ()))
            if not more:
                return
            request["ContinuationToken"] = answer["NextContinuationToken"]

    def _page(self, prefix: str, contents: Sequence[Mapping[str, Any]]) -> list[ObjectInfo]:
        try:
            page = [
                ObjectInfo(
                    key=item["Key"].removeprefix(self._prefix),
                    size_bytes=int(item["Size"]),
                    etag=unquoted(item.get("ETag")),
                )
                for item in contents
            ]
        except KeyError as lacking:
            raise TryAgainError("list", prefix, f"the answer lists an object without its {lacking}") from None
        if any(found.size_bytes < 0 for found in page):
            raise TryAgainError("list", prefix, "the answer lists an object of a negative size")
        return page

    async def refresh(self) -> None:
        """Let the next call make a new session, which reads the credentials again."""
        self._sessions.refresh()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._sessions.aclose()

    async def _open(self) -> Any:  # noqa: ANN401 - see _Session
        return (await self._sessions.get()).client

    async def _connect(self) -> _Session:
        with importing:
            from botocore.handlers import add_expect_header  # noqa: PLC0415 - heavy, and only where S3 is used
            from s3fs import S3FileSystem  # noqa: PLC0415 - likewise

        with opening(self._redact):
            fs = S3FileSystem(asynchronous=True, loop=asyncio.get_running_loop(), **self._options)
            try:
                await fs.set_session()
                session = _Session(fs, await fs.get_s3(self._bucket))
            except BaseException:
                await _close(_Session(fs, None))
                raise
        client = session.client
        # "Expect: 100-continue" costs a second round trip and disables the read timeout while it waits.
        client.meta.events.unregister("before-call.s3", add_expect_header)
        if self._upload_checksum == "auto":
            host = urlsplit(client.meta.endpoint_url).hostname or ""
            self._upload_checksum = "xxh3_128" if _AWS_HOST.search(host) else "md5"
        self._fs = fs
        return session

    def _proof(self, data: Data, xxh3_128: str) -> tuple[dict[str, str], str | None]:
        if self._upload_checksum == "xxh3_128":
            return {"ChecksumXXHASH128": base64.b64encode(bytes.fromhex(xxh3_128)).decode()}, None
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        return {"ContentMD5": base64.b64encode(digest).decode()}, digest.hex()

    def _check(self, key: str, stored: Stored, answer: Mapping[str, Any]) -> None:
        encryption = answer.get("ServerSideEncryption")
        encrypted = bool(answer.get("SSECustomerAlgorithm")) or encryption not in {None, "AES256"}
        self._etags.check(key, stored, encrypted=encrypted)

    def _arguments(self, client: Any, operation: str, **arguments: object) -> dict[str, Any]:  # noqa: ANN401 - see _Session
        """Add what the user's options say for every request: encryption, storage class, ACL, requester pays."""
        if operation not in self._extras:  # they never change, and s3fs's filter costs as much as a hash
            assert self._fs is not None  # noqa: S101 - _open() came first
            self._extras[operation] = self._fs._get_s3_method_kwargs(getattr(client, operation))  # noqa: SLF001 - likewise
        return {**self._extras[operation], **arguments}


def session_options(options: Mapping[str, object], connections: int) -> dict[str, object]:
    """Return the user's options with what a mirror needs wherever the user said nothing.

    One connection a request under way, no retries but our own, no listing cache, and checksums only where we ask:
    stores that are not AWS refuse botocore's default ones.
    """
    merged = dict(options)
    given = merged.get("config_kwargs")
    config: dict[str, object] = dict(given) if isinstance(given, Mapping) else {}
    config.setdefault("max_pool_connections", connections)
    config.setdefault("connect_timeout", CONNECT_TIMEOUT_S)
    config.setdefault("retries", {"total_max_attempts": 1, "mode": "standard"})
    config.setdefault("parameter_validation", False)  # the store judges; botocore's own look costs CPU for each request
    config.setdefault("user_agent", USER_AGENT)  # botocore composes its own anew for each request
    config.setdefault("request_checksum_calculation", "when_required")
    config.setdefault("response_checksum_validation", "when_required")
    return {"skip_instance_cache": True, "use_listings_cache": False, **merged, "config_kwargs": config}


async def _close(session: _Session) -> None:
    creator = getattr(session.fs, "_s3creator", None)  # s3fs itself closes only from another thread
    if creator is not None:
        with contextlib.suppress(Exception):
            await creator.__aexit__(None, None, None)


def _stored(answer: Mapping[str, Any], md5: str | None) -> Stored:
    return Stored(etag=unquoted(answer.get("ETag")), version_id=real_version(answer.get("VersionId")), md5=md5)


def _digest(checksum: str | None) -> str | None:
    """Return an XXH3-128 as we write it; what is none is as good as no checksum."""
    try:
        digest = base64.b64decode(checksum or "", validate=True)
    except ValueError:
        return None
    return digest.hex() if len(digest) == _XXH3_128_BYTES else None
