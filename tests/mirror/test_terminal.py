"""On a terminal a copy shows a bar, and nothing of it stays."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import mirror
from mirror.testing import Fault, FaultProxy, SeaweedS3, Stall, requests_to
from tests.mirror.command_line import WAIT_S, storage_env
from tests.mirror.local_records import write_files
from tests.mirror.places import S3Place

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def on_a_terminal(*args: str | Path, env: dict[str, str]) -> tuple[str, str]:
    """Run a command whose standard error is a terminal; return standard output and what the terminal was sent."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(ours, 10_000):
                shown.append(data)
        except OSError:
            return  # the other side is closed

    try:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "references.cli", *map(str, args)],
            env=os.environ | {"PYTHONPATH": str(Path(mirror.__file__).parents[1]), "TERM": "xterm", **env},
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
    finally:
        os.close(theirs)
    reader = threading.Thread(target=read)
    reader.start()
    out, _ = process.communicate(timeout=WAIT_S)
    reader.join()
    os.close(ours)
    assert process.returncode == 0
    return out, b"".join(shown).decode()


@pytest.mark.integration
def test_a_bar_with_rates(seaweed: SeaweedS3, s3_bucket: str, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    """It goes to standard error, has colours unless NO_COLOR is set, and results are on standard output alone."""
    place = S3Place(seaweed, s3_bucket)
    slow = Fault(action=Stall(1), match=requests_to("PUT", ".zst"), times=1)
    for number, no_color in enumerate([{}, {"NO_COLOR": "1"}]):
        write_files(tmp_path / "records", f"tr_{number}")
        s3_proxy.script(slow)
        env = storage_env(place.options(via=s3_proxy.url)) | no_color
        out, shown = on_a_terminal("sync", tmp_path / "records", place.url, env=env)
        assert out.startswith("copied 1 file of 1 record, ")
        assert "copied 0 of 1 records" in shown
        assert bool(COLOUR.search(shown.replace("\x1b[0m", "").replace("\x1b[1m", ""))) is not bool(no_color)
