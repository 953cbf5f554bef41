"""What a command was asked for, where it has to say why there was nothing to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mirror.terminal.output import name_some


@dataclass(frozen=True, slots=True)
class Asked:
    """What a copy or a prune was asked for."""

    directories: Sequence[Path]
    include: Sequence[str]  # patterns of record ids; none: all
    url: str  # without credentials

    def nothing_to_do(self, unchanged_files: int) -> str:
        """Say why there was nothing to do."""
        if unchanged_files == 1:
            return f"nothing to do: by its receipt the 1 file is in {self.url} already; verify asks the store"
        if unchanged_files:
            what = f"by their receipts all {unchanged_files:,} files are in {self.url} already"
            return f"nothing to do: {what}; verify asks the store"
        where = name_some(map(str, self.directories))
        if self.include:
            return f"nothing to do: no record in {where} matches {' or '.join(map(repr, self.include))}"
        return f"nothing to do: no finished records in {where}"
