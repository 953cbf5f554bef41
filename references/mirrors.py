"""The mirrors that hold a run's records: the one that the user gave, or those that the rows of its steps name.

What a row names is not trusted. Only stores that are elsewhere are opened for it (S3, Google Cloud Storage, Azure),
others where the user allows their protocol: a row must not decide which files of this machine, or which hosts of its
network, are read. A URL that the user gave is the only one opened, whatever the rows say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mirror.config import MirrorConfig
from mirror.connecting import connect
from mirror.errors import ConfigError, StoreError
from mirror.location import Location, parse_location
from mirror.receipts.manifest import Manifest
from mirror.receipts.receipt import Receipt
from mirror.receipts.segments import SegmentReader
from mirror.reliable import ReliableStore
from references.errors import ReferencesError
from references.run_index import RecordLocation

REMOTE_PROTOCOLS = frozenset({"s3", "gs", "abfs", "abfss", "az", "adl"})
MAX_MIRRORS = 32  # that the rows of one run may name


class RefusedMirrorError(ReferencesError):
    """A row names a mirror that is not read; the message says what to do."""


def named_mirror(uri: str, allow_protocols: Collection[str] = ()) -> Location:
    """Return the mirror in which a row says that its record's document is.

    Args:
        uri: the row's ``record.mirror``.
        allow_protocols: protocols that may be read besides ``REMOTE_PROTOCOLS``, e.g. ``file``.

    Raises:
        RefusedMirrorError: it is no URL of a mirror, a chained one, or one that may not be read.
    """
    folder = uri.rpartition("/")[0]
    try:
        location = parse_location(folder)
    except ConfigError as error:
        raise RefusedMirrorError(f"the step index names a mirror that is none: {error}") from error
    if location.protocol not in REMOTE_PROTOCOLS and location.protocol not in allow_protocols:
        raise RefusedMirrorError(
            f"the step index names the mirror {location.base}, which is not read unless you allow its protocol "
            f"({location.protocol}), or give the mirror's URL in place of the artifact"
        )
    return location


class OpenMirror:
    """One mirror and its receipts."""

    def __init__(self, location: Location, store: ReliableStore) -> None:
        """Read nothing yet."""
        self.location = location
        self.store = store
        self.manifest = Manifest()
        self._reader = SegmentReader(store)
        self._is_read = False
        self._failure: StoreError | None = None

    async def read(self) -> None:
        """Read the receipts, the first time that it is called.

        Raises:
            StoreError: they cannot be read; the same again with each call.
        """
        if self._failure is not None:
            raise self._failure
        if not self._is_read:
            try:
                await self.read_again()
            except StoreError as error:
                self._failure = error
                raise
            self._is_read = True

    async def read_again(self) -> None:
        """Read what is new.

        Raises:
            StoreError: the receipts cannot be read.
        """
        await self.manifest.read(self._reader.read())

    async def aclose(self) -> None:
        """Let go of everything."""
        self.manifest.close()
        await self.store.aclose()


class Mirrors:
    """Opens each mirror once. Used on one event loop."""

    def __init__(self, config: MirrorConfig, *, given: Location | None, allow_protocols: Collection[str]) -> None:
        """Open nothing yet; ``given``: the mirror that the user gave, for every record."""
        self._config = config
        self._given = given
        self._allow_protocols = frozenset(allow_protocols)
        self._open: dict[Location, OpenMirror] = {}
        self._named: dict[str, Location] = {}  # by the folder of a row's URI

    def __iter__(self) -> Iterator[OpenMirror]:
        """Yield the mirrors opened so far."""
        return iter(list(self._open.values()))

    @property
    def given(self) -> OpenMirror | None:
        """The mirror that the user gave, if any."""
        return None if self._given is None else self._opened(self._given)

    def of(self, record: RecordLocation) -> OpenMirror | None:
        """Return the mirror of a record, or None where the row names none.

        Raises:
            RefusedMirrorError: the row names one that is not read.
        """
        if self._given is not None:
            return self._opened(self._given)
        if record.mirror is None:
            return None
        folder = record.mirror.rpartition("/")[0]
        if folder not in self._named:
            self._named[folder] = named_mirror(record.mirror, self._allow_protocols)
        try:
            return self._opened(self._named[folder])
        except ConfigError as error:
            raise RefusedMirrorError(f"the step index names a mirror that cannot be opened: {error}") from error

    def find(self, record_id: str, first: OpenMirror | None = None) -> tuple[OpenMirror, Receipt] | None:
        """Return a record's receipt from ``first``, else from any mirror whose receipts were read.

        What was on its node only when the step was indexed may have been copied since.
        """
        for mirror in [first, *self._open.values()] if first else self._open.values():
            receipt = mirror.manifest.get(record_id)
            if receipt is not None:
                return mirror, receipt
        return None

    async def aclose(self) -> None:
        """Close every mirror."""
        for mirror in self._open.values():
            await mirror.aclose()

    def _opened(self, location: Location) -> OpenMirror:
        if location not in self._open:
            if len(self._open) >= MAX_MIRRORS:
                raise RefusedMirrorError(
                    f"the step indexes name more than {MAX_MIRRORS} mirrors: they are not all read"
                )
            self._open[location] = OpenMirror(location, connect(location, self._config))
        return self._open[location]
