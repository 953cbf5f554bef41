"""S3 and what speaks like it, through obstore's Rust client: small objects and listings, at a third of the CPU.

A file too large for one request, and the description of one object, go through the s3fs driver behind the same seam: it
uploads in parts that are checked and taken back one by one, and tells the hash that AWS keeps.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from mirror.errors import ThrottledError
from mirror.location import Location
from mirror.store import PAGE, Data, ObjectInfo, Store, Stored
from mirror.stores.obstore_answers import AnswerError, UnnamedError, answers, understand
from mirror.stores.obstore_bucket import ObstoreBucket, beginning_with, library
from mirror.stores.obstore_s3_client import S3ClientMaker
from mirror.stores.s3_answers import EtagCheck, lists_in_order, real_version, unquoted
from mirror.stores.s3_settings import S3Settings
from mirror.stores.threads import DaemonThreads
from mirror.stores.translate import opening

if TYPE_CHECKING:
    from obstore.store import S3Store as Client

THREADS = 2  # for what takes long without asking the store
HASHED_ASIDE_BYTES = 1 << 20  # a millisecond or two of MD5
CHECKSUM = "crc64nvme"  # of those that S3 checks, the cheapest
_WRONG_CHECKSUM = {"x-amz-checksum-crc64nvme": "AQEBAQEBAQE="}
_PASSING, _THROTTLED = 500, 429  # statuses: from here on, and this one
_REFUSES_WRONG = frozenset({"BadDigest", "XAmzContentChecksumMismatch"})


class ObstoreS3Store(ObstoreBucket["Client"]):
    """A bucket and a prefix.

    What proves an upload: a CRC64-NVME that AWS, and many another store, compares with what arrived. One that is not
    known to compare is asked once, by a wrong one; if it takes that, its ETags are compared with MD5s instead.
    """

    def __init__(
        self,
        location: Location,
        settings: S3Settings,
        *,
        redact: Callable[[str], str],
        asks_before: str,
        slow: Store,
    ) -> None:
        """Prepare; nothing is opened before the first call.

        Args:
            location: the bucket and the prefix.
            settings: how to reach it.
            redact: takes secrets out of a text.
            asks_before: uploads whose key begins so may be preceded by one that finds out if the store checks.
            slow: the s3fs driver for the same place.
        """
        bucket, prefix = location.bucket_and_prefix()
        super().__init__(prefix, redact=redact, slow=slow, threads=DaemonThreads(THREADS, "record-mirror-s3"))
        self.lists_by_range = lists_in_order(bucket)
        self._clients = S3ClientMaker(bucket, settings)
        self._attributes = dict(settings.attributes) or None
        self._tags = dict(settings.tags) or None
        self._asks_before = asks_before
        # Whether the store compares checksums; None: not known yet.
        self._compares: bool | None = True if settings.endpoint is None else None
        self._etags = EtagCheck()
        self._encrypts = settings.config.get("server_side_encryption") not in {None, "AES256"}
        self._throttled = False  # until an upload succeeds, the s3fs driver makes them: it hears for how long to pause

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
        """Write an object with one request."""
        if self._throttled:
            stored = await self._slow.put(key, data, xxh3_128)
            self._throttled = False
            return stored
        try:
            return await self._put(key, data)
        except ThrottledError:
            self._throttled = True
            raise

    async def _put(self, key: str, data: Data) -> Stored:
        with answers("put", key, self._redact):
            await self._open()
            if self._compares is None and key.startswith(self._asks_before):
                self._compares = await self._ask(key, data)
            md5 = None if self._compares else await self._md5(data)
            answer = await self._put_whole(key, data, attributes=self._attributes, tags=self._tags)
        stored = Stored(etag=unquoted(answer["e_tag"]), version_id=real_version(answer["version"]), md5=md5)
        self._etags.check(key, stored, encrypted=self._encrypts)
        return stored

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """Yield pages of a thousand objects."""
        last, count = after, 0
        try:
            async for infos in self._pages(prefix, after=after):
                count += len(infos)
                last = infos[-1].key
                yield beginning_with(prefix, infos)
            # A gateway's page with status 200 may pass for a page of a listing, but has no objects.
            is_whole = count % PAGE != 0 or (
                self.lists_by_range and prefix != "" and await self._ends_behind(last, prefix)
            )
        except UnnamedError:  # another client's key, which obstore cannot name
            is_whole = False
        if not is_whole:
            async for slow_page in self._slow.list_pages(prefix, after=last):
                yield slow_page

    async def _ends_behind(self, last: str, prefix: str) -> bool:
        """Whether the store names a key behind ``last``, and none that begins with ``prefix`` comes before it."""
        start = last or prefix
        async with contextlib.aclosing(self._pages("", after=start)) as pages:
            infos = await anext(pages, None)
        return infos is not None and infos[0].key > max(start, prefix) and not infos[0].key.startswith(prefix)

    async def _connect(self) -> Client:
        await self._clients.look_up(self._threads)
        with opening(self._redact):
            return self._clients.make({"checksum_algorithm": CHECKSUM})

    async def _ask(self, key: str, data: Data) -> bool:
        """Find out if the store compares checksums, by an upload with a wrong one; the right upload follows."""
        try:
            answer = await library().put_async(
                self._clients.make({}, _WRONG_CHECKSUM), self._path(key), data, use_multipart=False
            )
        except Exception as error:
            said = understand(error)
            if isinstance(said, AnswerError) and said.status < _PASSING and said.status != _THROTTLED:
                return said.error_code in _REFUSES_WRONG  # another refusal says nothing: the right upload will tell
            raise
        self._etags.learn(unquoted(answer["e_tag"]), _md5(data))
        return False

    async def _md5(self, data: Data) -> str:
        """Hash, off the event loop where that would hold it up."""
        return _md5(data) if len(data) < HASHED_ASIDE_BYTES else await self._threads.run(_md5, data)


def _md5(data: Data) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
