"""Any other store that fsspec opens: asynchronous filesystems natively, the rest through threads."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import fsspec

from mirror.errors import FileRefusedError, NotFoundError
from mirror.importing import importing
from mirror.location import Location
from mirror.store import PAGE, PART_BYTES, Data, ObjectInfo, Parts, Stored
from mirror.stores.threads import DaemonThreads
from mirror.stores.translate import opening, translating

# Stores on which a file grows under its name and a rename is one cheap step: written aside first.
RENAMING = frozenset({"sftp", "ssh", "smb", "ftp", "hdfs", "arrow_hdfs", "webhdfs", "dbfs"})
# fsspec has no common way to close an asynchronous filesystem: where those that there are keep what has to be closed.
_CLIENTS = ("_s3", "_session")


class FsspecStore:
    """A store known only by fsspec's interface: the identity of a write is asked for after it."""

    lists_by_range = False

    def __init__(
        self, location: Location, options: Mapping[str, object], *, redact: Callable[[str], str], threads: int
    ) -> None:
        """Prepare; nothing is opened before the first call."""
        with importing:
            self._class = fsspec.get_filesystem_class(location.protocol)
        url = f"{location.protocol}://{location.root}"
        self._location = location
        # A host or an account in the URL is an argument of the filesystem, and no part of its paths.
        self._root = str(self._class._strip_protocol(url)).rstrip("/")  # noqa: SLF001 - as fsspec.url_to_fs asks
        self._options = {**self._class._get_kwargs_from_urls(url), **options}  # noqa: SLF001 - likewise
        self._redact = redact
        self._threads = DaemonThreads(threads, "record-mirror-fsspec")
        self._fs: Any = None  # fsspec ships no types
        self._opening = asyncio.Lock()

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:  # noqa: ARG002 - no such store checks it
        """Write an object, then ask for its identity."""
        with translating("put", key, self._redact):
            path = self._path(key)
            if self._location.protocol in RENAMING:
                parent = path.rpartition("/")[0]
                aside = f"{parent}/.{secrets.token_hex(12)}.tmp"  # fits wherever the final name does
                await self._call("makedirs", parent, exist_ok=True)
                await self._call("pipe_file", aside, bytes(data))
                await self._threads.run(self._fs.mv, aside, path)
            else:
                await self._call("pipe_file", path, bytes(data))
        found = await self.stat(key)
        return Stored(etag=found.etag, version_id=found.version_id) if found else Stored()

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:
        """Write a large object in one piece: fsspec has no common way to take back a part that was sent."""
        data = bytearray()
        async for part in parts():
            data += part
        if len(data) != size_bytes:
            raise FileRefusedError("put", key, f"{len(data)} bytes came instead of {size_bytes}")
        return await self.put(key, bytes(data), "")

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield the object's bytes, part by part."""
        found = await self.stat(key)
        if found is None:
            raise NotFoundError("get", key, "no such object")
        for start in range(0, found.size_bytes, PART_BYTES):
            with translating("get", key, self._redact):
                end = min(start + PART_BYTES, found.size_bytes)
                chunk: bytes = await self._call("cat_file", self._path(key), start=start, end=end)
            yield chunk

    async def stat(self, key: str) -> ObjectInfo | None:
        """Describe one object."""
        try:
            with translating("stat", key, self._redact):
                return _info(key, await self._call("info", self._path(key)))
        except NotFoundError:
            return None

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """Yield what a full listing finds, sorted."""
        top, _, _ = prefix.rpartition("/")
        root = f"{self._root}/{top}" if top else self._root
        try:
            with translating("list", prefix, self._redact):
                found: Mapping[str, Mapping[str, Any]] = await self._call("find", root, detail=True)
                above = self._fs._strip_protocol(self._root).rstrip("/") + "/"  # noqa: SLF001 - how fsspec names paths
        except NotFoundError:
            return
        infos = [_info(path.removeprefix(above), info) for path, info in found.items()]
        kept = [
            info
            for info in infos
            if info.key.startswith(prefix) and info.key > after and not info.key.rpartition("/")[2].startswith(".")
        ]
        kept.sort()
        for start in range(0, len(kept), PAGE):
            yield kept[start : start + PAGE]

    async def refresh(self) -> None:
        """Open the filesystem anew at the next call; calls that are under way may fail, and are tried again."""
        fs, self._fs = self._fs, None
        await _close(fs)

    async def aclose(self) -> None:
        """Close the connections and let the threads end."""
        await self.refresh()
        self._threads.close()

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    async def _call(self, method: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401 - fsspec's answer
        fs = self._fs or await self._open()
        if fs.async_impl:
            return await getattr(fs, f"_{method}")(*arguments, **options)
        return await self._threads.run(getattr(fs, method), *arguments, **options)

    async def _open(self) -> Any:  # noqa: ANN401 - fsspec ships no types
        async with self._opening:  # one for all first calls: another would never be closed
            if self._fs is None:
                native = {"asynchronous": True, "loop": asyncio.get_running_loop()} if self._class.async_impl else {}
                plain = {"skip_instance_cache": True, "use_listings_cache": False}
                with opening(self._redact):
                    self._fs = await self._threads.run(lambda: self._class(**{**plain, **native, **self._options}))
            return self._fs


async def _close(fs: Any) -> None:  # noqa: ANN401 - fsspec ships no types
    if fs is None or not fs.async_impl:
        return
    for client in (getattr(fs, name, None) for name in _CLIENTS):
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()


def _info(key: str, info: Mapping[str, Any]) -> ObjectInfo:
    etag = info.get("ETag") or info.get("etag")
    version = info.get("VersionId") or info.get("version_id")
    return ObjectInfo(
        key=key,
        size_bytes=int(info.get("size") or 0),
        etag=str(etag).strip('"') if etag else None,
        version_id=str(version) if version else None,
    )
