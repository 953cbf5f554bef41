"""Where pulled records go: ``<out>/<phase>/``, a record directory, with the step indexes in ``index/`` inside it.

A file is written in a scratch folder and renamed into its place once it is whole, a record's document last.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from mirror.names import KNOWN_KINDS, check_name, document_name, sidecar_name
from mirror.receipts.receipt import FileReceipt, Receipt
from mirror.receipts.segments import PREFIX as RECEIPTS
from references.errors import ConfigError, OutDirectoryError
from references.folder import Folder
from references.run_index import Phase
from references.scratch import Scratch

INDEX = "index"
_OWN_RECEIPTS = ".mirror"  # what a mirror keeps beside the records of a capture server


def refuse_mirror(out: str | os.PathLike[str], source: Path | None) -> None:
    """Let nothing be pulled into a mirror: its records would lie there twice, beside what copies write.

    Args:
        out: the directory that the user gave.
        source: the directory that is pulled from, where it is one.

    Raises:
        ConfigError: it is a mirror, or that directory.
    """
    path = Path(out).expanduser().absolute()
    is_mirror = source is not None and os.path.realpath(path) == os.path.realpath(source)
    with contextlib.suppress(OSError):  # whoever opens it says so
        is_mirror = is_mirror or (path / RECEIPTS).is_dir()
    if is_mirror:
        raise ConfigError(f"{path} is a mirror: name another directory to pull to")


@contextlib.contextmanager
def open_out(out: str | os.PathLike[str], *, write: bool) -> Iterator[Folder | None]:
    """Open the directory that the user gave; made where it is absent if ``write`` is set, else None.

    Raises:
        OutDirectoryError: it is not a directory.
        OSError: it cannot be made or opened.
    """
    if not os.fspath(out):
        raise OutDirectoryError("no directory is given to pull to: name one, '.' for this one")
    path = Path(out).expanduser().absolute()
    try:
        if write:
            path.mkdir(parents=True, exist_ok=True)
        folder = Folder.open(path)
    except (FileExistsError, NotADirectoryError) as error:
        raise OutDirectoryError(f"{path} is not a directory: pull elsewhere") from error
    except FileNotFoundError:
        if write:
            raise
        yield None
        return
    with contextlib.closing(folder):
        yield folder


class PhaseDirectory:
    """The record directory of one phase. Any thread may use it until it is closed.

    Without ``write`` nothing is made or changed, and what would be written can be asked for.
    """

    def __init__(self, out: Folder | None, phase: Phase, *, write: bool) -> None:
        """Open it; with ``write`` it is made where it is absent, and held against other pulls.

        Raises:
            OutDirectoryError: it is a link, a capture server's own, or another pull writes to it.
            OSError: it cannot be made or opened.
        """
        with contextlib.ExitStack() as stack:
            self._records = _enter(stack, out, phase, create=write)
            if self._records is not None and self._records.has(_OWN_RECEIPTS):
                raise OutDirectoryError(f"{self._records.path} is a capture server's own directory: pull elsewhere")
            self._index = _enter(stack, self._records, INDEX, create=write)
            self._scratch = Scratch(self._records) if self._records is not None and write else None
            if self._scratch is not None:
                stack.callback(self._scratch.close)
            self._closing = stack.pop_all()

    @property
    def scratch(self) -> Scratch:
        """Where files are written first; only with ``write``."""
        assert self._scratch is not None  # noqa: S101 - see above
        return self._scratch

    def lacking(self, files: Iterable[FileReceipt]) -> list[FileReceipt]:
        """Return those files that are not here with these very bytes; those of the right size are read for it."""
        return [file for file in files if not self._holds(file)]

    def commit(self, receipt: Receipt, parts: Mapping[str, str]) -> None:
        """Move a record's new files into place, the document last.

        Where a document of other bytes was there, it goes first, and with it those sidecars that came with it.

        Args:
            receipt: the record's.
            parts: scratch files, by the names that they get.

        Raises:
            OSError: they cannot be moved; the document is not there then, or still the former one with its sidecars.
        """
        assert self._records is not None  # noqa: S101 - only with ``write``
        document = document_name(receipt.id)
        if document in parts and self._records.has(document):
            self._records.remove(document)
            for name in _sidecars(receipt) - set(parts):
                known = receipt.file(name)
                if self._records.has(name) and (known is None or not self._holds(known)):
                    self._records.remove(name)
        for name in sorted(parts, key=lambda name: name == document):
            self.scratch.move(parts[name], self._records, check_name(name))

    def write_index(self, step: int, data: bytes) -> None:
        """Keep a step's index beside the records, unless it is there.

        Raises:
            OSError: the disk is full, or cannot be written.
        """
        assert self._index is not None  # noqa: S101 - only with ``write``
        name = f"step-{step}.json"
        if self._index.content(name, len(data)) != data:
            part = self.scratch.reserve()
            self.scratch.write(part, data, begin=True)
            self.scratch.move(part, self._index, name)

    def close(self) -> None:
        """Remove the scratch folder, and let go."""
        self._closing.close()

    def _holds(self, file: FileReceipt) -> bool:
        return self._records is not None and self._records.digest(file.name, file.size) == file.xxh3_128


def _enter(stack: contextlib.ExitStack, above: Folder | None, name: str, *, create: bool) -> Folder | None:
    folder = above.enter(name, create=create) if above is not None else None
    if folder is not None:
        stack.callback(folder.close)
    return folder


def _sidecars(receipt: Receipt) -> set[str]:
    """Return the names of the sidecars that a record may have here, now or from before."""
    known = {sidecar_name(receipt.id, kind) for kind in KNOWN_KINDS}
    return (known | {file.name for file in receipt.files}) - {document_name(receipt.id)}
