"""How a mirror, or a record directory, stands: by receipts alone, at the cost of reading them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from pathlib import Path

from mirror.config import MirrorConfig
from mirror.connecting import connect
from mirror.errors import EmptyMirrorError
from mirror.location import parse_location
from mirror.looking import CHUNK
from mirror.loop import run_in_loop
from mirror.names import KNOWN_KINDS, parse_name
from mirror.place import part_words
from mirror.receipts.ledger import Ledger, places, read_url, reading
from mirror.receipts.manifest import Manifest
from mirror.receipts.receipt import Receipt
from mirror.receipts.segments import PREFIX, SegmentReader
from mirror.record import find_kinds, iter_batches, iter_entries
from mirror.reliable import ReliableStore
from mirror.stores.opening import check_settings


@dataclass(slots=True, kw_only=True)
class MirrorStatus:
    """What the receipts of a mirror say."""

    records: int = 0
    files: int = 0
    size_bytes: int = 0
    newest_at: float | None = None  # Unix seconds: when the newest receipt was written
    writers: set[str] = field(default_factory=set)  # one a process
    hosts: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceStatus:
    """What a record directory's own receipts say of one mirror."""

    place: str  # the mirror's name beside the records
    url: str | None  # without credentials; None where no writer has kept it
    where: str | None  # the endpoint or account of that URL; None: the usual one, or not known
    receipted: int  # records that were copied at some time, also those that are no longer here
    uncopied: int  # finished records here that are not in it as they are now

    @property
    def words(self) -> str:
        """Which mirror it is, for people."""
        return (self.url or self.place) + (f" at {self.where}" if self.where else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryStatus:
    """A record directory and the mirrors that it was ever copied to."""

    directory: Path
    records: int  # finished ones
    can_keep: bool  # whether this user could keep receipts beside them
    places: tuple[PlaceStatus, ...]


def read_mirror(url: str | os.PathLike[str], config: MirrorConfig) -> MirrorStatus:
    """Read a mirror's receipts.

    Raises:
        StoreError: they cannot be read.
        EmptyMirrorError: there is no mirror.
        ConfigError: a setting is wrong.
    """
    location = parse_location(url)
    check_settings(location, config)

    async def work() -> MirrorStatus:
        store = connect(location, config)
        manifest = Manifest()
        status = MirrorStatus()
        try:
            await manifest.read(_noting(SegmentReader(store).read(), status))
            status.records = len(manifest)
            if not status.records and not await has_record_files(store):
                raise EmptyMirrorError(location.shown)
            for file in manifest.files():
                status.files += 1
                status.size_bytes += file.size_bytes
            return status
        finally:
            manifest.close()
            await store.aclose()

    return run_in_loop(work())


def read_directory(directory: Path) -> DirectoryStatus:
    """Compare a directory's finished records with its receipts, mirror by mirror.

    Kinds of sidecars that a mirror leaves out do not count as uncopied.

    Raises:
        OSError: the directory cannot be read.
    """
    kinds = KNOWN_KINDS | find_kinds(directory)
    return DirectoryStatus(
        directory=directory,
        can_keep=_can_keep(directory),
        records=sum(entry.kind is None for entry in iter_entries(directory)),
        places=tuple(_read_place(directory, place, kinds) for place in places(directory)),
    )


async def has_record_files(store: ReliableStore) -> bool:
    """Say if a mirror holds any file of a record; without receipts either, it is none.

    Raises:
        StoreError: it cannot be listed.
    """
    async for page in store.list_pages():
        if any("/" not in found.key and parse_name(found.key) for found in page):
            return True
    return False


def is_record_directory(text: str) -> bool:
    """Whether a path names a record directory, and not a mirror in a directory: that one has receipts."""
    return "://" not in text and Path(text).is_dir() and not (Path(text) / PREFIX).is_dir()


def _read_place(directory: Path, place: str, kinds: Collection[str]) -> PlaceStatus:
    with reading(directory, place) as ledger:
        batches = iter_batches(directory, CHUNK, but=kinds)
        uncopied = sum(len(documents) - len(ledger.covered(documents, None)) for documents, _ in batches)
        url, where = part_words(read_url(directory, place) or "")
        return PlaceStatus(place=place, url=url or None, where=where, receipted=ledger.count(), uncopied=uncopied)


def _can_keep(directory: Path) -> bool:
    ledger = Ledger(directory, "any", "reader")  # a name under which nothing is ever written
    try:
        return ledger.can_keep()
    finally:
        ledger.close()


async def _noting(receipts: AsyncIterator[Receipt], status: MirrorStatus) -> AsyncIterator[Receipt]:
    async for receipt in receipts:
        status.writers.add(receipt.writer)
        status.hosts.add(receipt.host)
        status.newest_at = max(receipt.at, status.newest_at or receipt.at)
        yield receipt
