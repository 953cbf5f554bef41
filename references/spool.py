"""The spool: every step index on local disk until W&B is known to have it, whatever happens to the process.

``<directory>/run-<id>/<phase>/step-<N>.json`` holds exactly the bytes of ``step.json``. A file that is there is still
to be logged, or to be logged again once more of its records have landed; one that is done with is removed. A file
appears whole or not at all, and survives a crash of the machine from the moment that ``put`` returns. Who may be
logging a step at this moment is in a file of ``references.claims`` beside it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

import xxhash

from references.errors import ConfigError, ReferencesError
from references.run_index import MAX_STEP_DIGITS, PHASES, Phase

MAX_BYTES = 8 << 30
_FILE = re.compile(rf"step-(\d{{1,{MAX_STEP_DIGITS}}})\.json", re.ASCII)
_RUN = re.compile(r"run-(.*)", re.DOTALL)


class SpoolError(ReferencesError):
    """The spool did not take a step index; the sentence says why and what to do."""


@dataclass(frozen=True, slots=True, order=True)
class StepKey:
    """Which step of which run a file of the spool is; ``run`` is "" when no run was known."""

    run: str
    phase: Phase
    step: int


def default_directory() -> Path:
    """Return where steps are spooled unless somebody says otherwise.

    ``RECORD_MIRROR_SPOOL``, else ``record-mirror/spool`` in the user's state directory (``XDG_STATE_HOME``, by default
    ``~/.local/state``).

    Raises:
        ConfigError: it is in a home directory that nobody knows.
    """
    chosen = os.environ.get("RECORD_MIRROR_SPOOL")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    try:
        return Path(chosen).expanduser() if chosen else Path(state).expanduser() / "record-mirror" / "spool"
    except RuntimeError as error:
        raise ConfigError(
            f"nobody knows where {chosen or state} is: name the spool's directory in RECORD_MIRROR_SPOOL or wandb.spool"
        ) from error


def content_hash(data: bytes) -> str:
    """Return what tells one content of a step from another: its XXH3 128-bit digest, 32 lowercase hex digits."""
    return xxhash.xxh3_128_hexdigest(data)


class Spool:
    """One directory; several processes may use it. Nothing is opened or created before the first ``put``."""

    def __init__(self, directory: str | os.PathLike[str] | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        """Use ``directory``, by default the user's own, and let what waits in it take ``max_bytes`` at most."""
        self._directory = Path(directory or default_directory()).absolute()  # wherever the training goes meanwhile
        self._max_bytes = max_bytes

    def put(self, key: StepKey, data: bytes) -> None:
        """Make a step durable; a newer content takes the place of an older one.

        Raises:
            SpoolError: the disk or the spool is full, or the directory cannot be written.
        """
        path = self._path(key)
        used = sum(size for entry, size in self._sizes() if entry != path)
        if used + len(data) > self._max_bytes:
            raise SpoolError(
                f"the spool {self._directory} is full ({used} bytes): log what waits there with `record-mirror link`"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_durably(path, data)
        except OSError as error:
            raise SpoolError(f"the spool {self._directory} cannot be written: {error}") from error

    def get(self, key: StepKey) -> bytes | None:
        """Return a step's bytes, or None when it is not (or no longer) in the spool.

        Raises:
            SpoolError: it is there and cannot be read.
        """
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SpoolError(f"the spool {self._directory} cannot be read: {error}") from error

    def written_at_s(self, key: StepKey) -> float | None:
        """Return when a step's present content was written, in Unix time, or None when it is not in the spool."""
        try:
            return self._path(key).stat().st_mtime
        except OSError:
            return None

    def remove(self, key: StepKey, content: str) -> None:
        """Forget a step that needs nothing more, unless a newer content than ``content`` has taken its place."""
        with contextlib.suppress(SpoolError, OSError):  # it stays then, and is found to be in W&B the next time
            data = self.get(key)
            if data is not None and content_hash(data) == content:
                self._path(key).unlink(missing_ok=True)

    def steps(self) -> Iterator[StepKey]:
        """Yield what is in the spool, by run, phase and step; what is no step's file is passed over."""
        yield from sorted(key for path, _ in self._sizes() if (key := _parse(path)))

    def count(self) -> int:
        """Count the steps in the spool."""
        return sum(1 for _ in self._sizes())

    def folder(self, key: StepKey) -> Path:
        """Return the directory that a step is in; it need not exist."""
        return self._directory / f"run-{quote(key.run, safe='')}" / key.phase

    def _path(self, key: StepKey) -> Path:
        return self.folder(key) / f"step-{key.step}.json"

    def _sizes(self) -> Iterator[tuple[Path, int]]:
        for path in self._directory.glob("run-*/*/step-*.json"):
            with contextlib.suppress(OSError):  # another process has just removed it, or it is none of ours
                yield path, path.stat().st_size


def _parse(path: Path) -> StepKey | None:
    run, file, phase = _RUN.fullmatch(path.parent.parent.name), _FILE.fullmatch(path.name), path.parent.name
    if run is None or file is None:
        return None
    for known in PHASES:
        if phase == known:
            return StepKey(unquote(run[1]), known, int(file[1]))
    return None


def _write_durably(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # other machines have our process's number
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        _sync_folder(folder)  # the names of new folders as well


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
