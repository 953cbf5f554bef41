"""Small disks that can be filled or made read-only while they are in use, where this machine lets us mount any."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

BALLAST = ".ballast"


class Disk:
    """A directory on a small file system of its own; without the right to mount one, faults do not happen."""

    def __init__(self, path: Path, size_mib: int) -> None:
        """Mount it; ``path`` is made."""
        self.path = path
        path.mkdir(parents=True)
        self._is_full = False
        self._is_mounted = _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "campaign", str(path))

    def fill(self) -> None:
        """Leave no room for another byte."""
        self._is_full = True
        if self._is_mounted:
            with contextlib.suppress(OSError), (self.path / BALLAST).open("ab", buffering=0) as file:
                for size in (1 << 20, 4096, 1):
                    with contextlib.suppress(OSError):
                        while file.write(b"\0" * size):
                            pass

    def free(self) -> None:
        """Have room again, at the latest when it is thawed."""
        self._is_full = False
        with contextlib.suppress(OSError):  # it is frozen
            (self.path / BALLAST).unlink(missing_ok=True)

    def freeze(self) -> None:
        """Refuse every write, if nothing is being written at this very moment."""
        if self._is_mounted:
            _run("mount", "-o", "remount,ro", str(self.path))

    def thaw(self) -> None:
        """Take writes again."""
        if self._is_mounted:
            _run("mount", "-o", "remount,rw", str(self.path))
        if not self._is_full:
            self.free()

    def release(self) -> None:
        """Unmount it; what it held is gone."""
        if self._is_mounted:
            _run("umount", "--lazy", str(self.path))


def _run(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 - fixed words and our own path
    except FileNotFoundError:
        return False
