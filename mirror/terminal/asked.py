"""What a command was asked for, where it has to say why there was nothing to do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mirror.names import DOCUMENT_SUFFIX
from mirror.terminal.output import name_some

LOOKED_AT = 200  # entries of a directory: whoever finds a directory empty is not kept waiting for a better word


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
        below = name_some(path for directory in self.directories for path in _subdirectories_with_records(directory))
        hint = f"; some are in {below}: name the subdirectory itself" if below else ""
        return f"nothing to do: no finished records in {where}{hint}"


def _subdirectories_with_records(directory: Path) -> Iterator[str]:
    """Yield those of the first subdirectories that have a document among their first files."""
    for entry in _first_entries(directory):
        if entry.is_dir(follow_symlinks=False) and any(
            inner.name.endswith(DOCUMENT_SUFFIX) for inner in _first_entries(entry.path)
        ):
            yield entry.path


def _first_entries(directory: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """Return the first entries of a directory, in no order, without what is hidden; none where it cannot be read."""
    with contextlib.suppress(OSError), os.scandir(directory) as found:
        return [entry for entry in islice(found, LOOKED_AT) if not entry.name.startswith(".")]
    return []
