"""A daemon beside a server that does not embed the library: it copies finished records as they appear."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import CancelledError
from pathlib import Path

from mirror.background import RecordMirror
from mirror.backlog import Left
from mirror.breaker import BreakerState
from mirror.config import MirrorConfig
from mirror.directory_watch import DirectoryWatch
from mirror.stats import MirrorStats
from mirror.terminal.stopping import Stopping


class Watch:
    """Watches record directories for one mirror."""

    def __init__(
        self,
        record_dirs: Sequence[Path],
        url: str | os.PathLike[str],
        config: MirrorConfig,
        *,
        include: Collection[str] = (),
        poll: bool = False,
    ) -> None:
        """Start nothing yet.

        Args:
            record_dirs: the record directories; one that does not exist yet is waited for.
            url: the mirror.
            config: its settings; ``rescan_s`` is the time between looks at a directory that changes.
            include: shell patterns of record ids; none: all records.
            poll: look for changes every few seconds instead of waiting for file-system events.

        Raises:
            ConfigError: a setting is wrong.
        """
        self._mirror = RecordMirror(url, config)
        self._watches = [
            DirectoryWatch(self._mirror, directory, include=include, poll=poll, rescan_s=config.rescan_s)
            for directory in record_dirs
        ]

    def stats(self) -> MirrorStats:
        """Return the mirror's counts and state."""
        return self._mirror.stats()

    def left(self) -> list[Left]:
        """Return the records that were noticed and are not in the mirror."""
        return self._mirror.left()

    def run(self, stopping: Stopping) -> bool:
        """Watch until asked to stop, then copy what is left for at most ``shutdown_timeout_s``, or until asked again.

        Where the store refuses everything it ends at once.

        Returns:
            Whether everything that is on disk is in the mirror, and nothing that was on disk was lost.
        """
        self._mirror.start()
        for watch in self._watches:
            watch.start()
        while not stopping.wait():
            pass
        try:
            return self._finish()
        except KeyboardInterrupt:
            return False

    def _finish(self) -> bool:
        deadline = time.monotonic() + self._mirror.config.shutdown_timeout_s
        for watch in self._watches:
            watch.stop()
        if self._mirror.stats()["breaker"] == BreakerState.REFUSED:
            self._mirror.close(0.0)
            return False
        looked: list[bool] = []

        def last_looks() -> None:
            with contextlib.suppress(CancelledError):  # the time ran out, and the mirror is closed
                looked.extend(watch.look() for watch in self._watches)

        looking = threading.Thread(target=last_looks, name="record-mirror-last-look", daemon=True)
        looking.start()
        looking.join(max(0.0, deadline - time.monotonic()))
        saw_everything = not looking.is_alive() and all(looked)
        copied_everything = self._mirror.close(max(0.0, deadline - time.monotonic()))
        return saw_everything and copied_everything and not (self._mirror.left() or self._mirror.stats()["lost"])
