"""The scratch folder of a pull: held by one at a time, cleaned by the next, gone in the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from references.errors import OutDirectoryError
from references.folder import Folder
from references.scratch import NAME, Scratch

HOLD = """
import sys
from pathlib import Path
from references.folder import Folder
from references.scratch import Scratch
scratch = Scratch(Folder.open(Path(sys.argv[1])))
scratch.write("0.part", b"half", begin=True)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder.open(tmp_path)
    yield folder
    folder.close()


def test_nothing_is_left_in_the_end(place: Folder) -> None:
    """Neither the folder nor what was not moved out of it."""
    scratch = Scratch(place)
    first, second = scratch.reserve(), scratch.reserve()
    scratch.write(first, b"wh", begin=True)
    scratch.write(first, b"ole", begin=False)
    scratch.write(second, b"half", begin=True)
    scratch.move(first, place, "file")
    scratch.close()
    assert place.names() == ["file"]
    assert (place.path / "file").read_bytes() == b"whole"


def test_writing_begins_anew_where_it_is_said(place: Folder) -> None:
    """What an attempt that broke has written goes."""
    scratch = Scratch(place)
    part = scratch.reserve()
    scratch.write(part, b"long and wrong", begin=True)
    scratch.write(part, b"right", begin=True)
    scratch.move(part, place, "file")
    scratch.close()
    assert (place.path / "file").read_bytes() == b"right"


def test_a_living_process_is_not_disturbed_and_a_dead_one_is_cleaned_up_after(place: Folder) -> None:
    """The lock tells, not the age: killed, it holds nothing any more."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", HOLD, str(place.path)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:  # noqa: S603 - our own command
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(OutDirectoryError, match="another pull is writing"):
            Scratch(place)
        assert (place.path / NAME / "0.part").exists()
        holder.kill()
    scratch = Scratch(place)
    assert not (place.path / NAME / "0.part").exists()
    scratch.close()
    assert place.names() == []


def test_pulls_one_after_the_other_find_it_free(place: Folder) -> None:
    """However often."""
    for _ in range(3):
        Scratch(place).close()
    assert place.names() == []
