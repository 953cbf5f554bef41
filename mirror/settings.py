"""One setting for a whole run: what every capture server is started with, checked once, before any of them starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from mirror.background import RecordMirror
from mirror.config import MirrorConfig
from mirror.errors import ConfigError
from mirror.location import parse_location
from mirror.stores.opening import check_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """A run's ``record_dir``, ``record_mirror`` and ``record_mirror_config``, as each of its servers is handed them."""

    record_dir: str | None
    record_mirror: str | None
    record_mirror_config: Mapping[str, object]  # only what differs from the defaults

    @classmethod
    def of_run(
        cls,
        record_dir: str | os.PathLike[str] | None,
        record_mirror: str | os.PathLike[str] | None = None,
        record_mirror_config: Mapping[str, object] | None = None,
    ) -> Self:
        """Check a run's settings.

        Raises:
            ConfigError: a mirror without a record directory, options without a mirror, or what a mirror refuses.
        """
        config = MirrorConfig.from_mapping(record_mirror_config)
        if record_mirror is not None:
            if record_dir is None:
                raise ConfigError(
                    "record_mirror is set and record_dir is not: a mirror copies a record directory, set both"
                )
            check_settings(parse_location(record_mirror), config)
        elif config.as_mapping():
            raise ConfigError("record_mirror_config is set and record_mirror is not: set the URL of the mirror too")
        return cls(
            record_dir=None if record_dir is None else os.fspath(record_dir),
            record_mirror=None if record_mirror is None else os.fspath(record_mirror),
            record_mirror_config=config.as_mapping(),
        )

    def as_mapping(self) -> dict[str, object]:
        """Return the settings as plain values, to be sent to a server."""
        return {
            "record_dir": self.record_dir,
            "record_mirror": self.record_mirror,
            "record_mirror_config": dict(self.record_mirror_config),
        }

    def open_mirror(self) -> RecordMirror | None:
        """Make the mirror that a server embeds; None where the run has none."""
        if self.record_mirror is None:
            return None
        return RecordMirror.from_config(self.record_mirror, self.record_mirror_config)
