"""A reader who looks at a mirror or a disk all the time: no document is ever there without its sidecars."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from mirror.names import document_name
from tests.mirror.places import DirectoryPlace, Place, S3Place

PAUSE_S = 0.05


class Poller:
    """Looks on a thread of its own between ``start`` and ``end``."""

    def __init__(self, place: Place, sidecars: Mapping[str, Collection[str]], tell: Callable[[str], None]) -> None:
        """Prepare.

        Args:
            place: the mirror.
            sidecars: the names that must be there when a record's document is, by the record's id.
            tell: hears of each document that was seen without a sidecar.
        """
        self.looks = 0
        self._place = place
        self._names = {document_name(record_id): frozenset(names) for record_id, names in sidecars.items()}
        self._tell = tell
        self._client: Any = place.server.client() if isinstance(place, S3Place) else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="campaign-poller", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Look once more, and end."""
        self._over.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S):
            self._look()

    def _look(self) -> None:
        seen = self._listed()
        self.looks += 1
        suspects = {name: wanted - seen for name, wanted in self._names.items() if name in seen and wanted - seen}
        if not suspects:
            return
        # A listing is no snapshot: what it passed by may have come before what it came to. Later it must be there.
        again = self._listed()
        for document, missing in suspects.items():
            if document in again and missing - again:  # on a disk it may have been pruned
                self._tell(f"{document} was visible without {sorted(missing - again)}")

    def _listed(self) -> set[str]:
        if isinstance(self._place, DirectoryPlace):
            return {path.name for path in self._place.path.iterdir()} if self._place.path.is_dir() else set()
        if not isinstance(self._place, S3Place):
            return self._place.names()
        below = f"{self._place.prefix}/"
        request: dict[str, Any] = {"Bucket": self._place.bucket, "Prefix": below, "Delimiter": "/"}
        names: set[str] = set()
        while True:
            page = self._client.list_objects_v2(**request)
            names |= {item["Key"].removeprefix(below) for item in page.get("Contents", ())}
            if not page["IsTruncated"]:
                return names
            request["ContinuationToken"] = page["NextContinuationToken"]
