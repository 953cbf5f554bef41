"""Azure Blob Storage through obstore's Rust client, over TLS: small objects and listings, at a fraction of the CPU.

obstore sends nothing that Azure could compare an upload with, and tells nothing of what Azure computed. It is TLS that
makes an error of whatever changes on the way, so this driver is for https alone. A file too large for one request, and
the description of one object, go through the adlfs driver behind the same seam: it uploads in blocks that are checked,
and hears why an object is absent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from mirror.store import Data, ObjectInfo, Store, Stored
from mirror.stores.azure_settings import AzureSettings
from mirror.stores.byte_order import by_bytes
from mirror.stores.obstore_answers import UnnamedError, answers
from mirror.stores.obstore_azure_client import AzureClientMaker
from mirror.stores.obstore_bucket import ObstoreBucket, beginning_with
from mirror.stores.s3_answers import unquoted
from mirror.stores.threads import DaemonThreads
from mirror.stores.translate import opening

if TYPE_CHECKING:
    from obstore.store import AzureStore as Client


class ObstoreAzureStore(ObstoreBucket["Client"]):
    """A container and a prefix."""

    lists_by_range = False  # obstore asks to begin behind a key in a way that not every account heeds: all is listed

    def __init__(self, settings: AzureSettings, *, redact: Callable[[str], str], slow: Store) -> None:
        """Prepare; nothing is opened before the first call.

        Args:
            settings: where it is, and how to reach it.
            redact: takes secrets out of a text.
            slow: the adlfs driver for the same place.
        """
        super().__init__(
            settings.place.prefix, redact=redact, slow=slow, threads=DaemonThreads(1, "record-mirror-azure")
        )
        self._clients = AzureClientMaker(settings)

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:  # noqa: ARG002 - Azure knows no such checksum
        """Write an object with one request."""
        with answers("put", key, self._redact):
            answer = await self._put_whole(key, data)
        return Stored(etag=unquoted(answer["e_tag"]), version_id=answer["version"])

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """Yield pages of a thousand objects, from the container's first in the folder of the prefix on."""
        last = after
        try:
            async for page in by_bytes(self._pages(prefix)):
                behind = [info for info in page if info.key > after] if after else page
                yield beginning_with(prefix, behind)
                last = max(last, page[-1].key)
        except UnnamedError:  # another client's key, which obstore cannot name
            async for slow_page in self._slow.list_pages(prefix, after=last):
                yield slow_page

    async def _connect(self) -> Client:
        await self._threads.run(self._clients.look_up)
        with opening(self._redact):
            return self._clients.make()
