"""The spool on disk: ``references/spool.py``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from references.errors import ConfigError
from references.run_index import PHASES
from references.spool import Spool, SpoolError, StepKey, content_hash, default_directory

KEY = StepKey("run-1", "train", 3)
keys = st.builds(
    StepKey,
    st.text(max_size=20).filter(lambda run: "\0" not in run and run.encode("utf-8", "replace").decode() == run),
    st.sampled_from(PHASES),
    st.integers(0, 10**12),
)


def test_a_step_waits_until_it_is_removed(tmp_path: Path) -> None:
    """What was put is there, byte for byte, also for the next process."""
    Spool(tmp_path).put(KEY, b"one")

    later = Spool(tmp_path)
    assert (list(later.steps()), later.get(KEY), later.count()) == ([KEY], b"one", 1)
    later.remove(KEY, content_hash(b"one"))
    assert (list(later.steps()), later.get(KEY), later.count()) == ([], None, 0)


def test_a_newer_content_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    """There is one file to a step, and whoever is done with the older content does not remove the newer one."""
    spool = Spool(tmp_path)
    spool.put(KEY, b"one")
    spool.put(KEY, b"two")
    spool.remove(KEY, content_hash(b"one"))

    assert (spool.get(KEY), spool.count()) == (b"two", 1)


@settings(max_examples=25)  # each writes to disk
@given(written=st.lists(keys, max_size=8, unique=True))
def test_any_run_phase_and_step_is_listed_again(written: list[StepKey]) -> None:
    """Run ids of any characters, and none at all, keep apart; the listing is in order."""
    with TemporaryDirectory() as folder:
        spool = Spool(folder)
        for key in written:
            spool.put(key, repr(key).encode())

        assert list(spool.steps()) == sorted(written)
        assert [spool.get(key) for key in spool.steps()] == [repr(key).encode() for key in sorted(written)]


def test_a_hostile_run_id_stays_inside(tmp_path: Path) -> None:
    """A run id is no path."""
    Spool(tmp_path / "spool").put(StepKey("../../outside", "train", 1), b"x")

    assert [path.name for path in tmp_path.iterdir()] == ["spool"]


def test_what_is_no_step_is_passed_over(tmp_path: Path) -> None:
    """Temporary and foreign files are not listed."""
    spool = Spool(tmp_path)
    spool.put(KEY, b"one")
    folder = tmp_path / "run-run-1" / "train"
    (folder / ".step-4.json.77.tmp").write_bytes(b"half")
    (folder / "step-x.json").write_bytes(b"")
    (tmp_path / "run-run-1" / "test").mkdir()
    (tmp_path / "run-run-1" / "test" / "step-1.json").write_bytes(b"")

    (folder / "step-5.json").symlink_to("step-5.json")
    (tmp_path / "run-run-2").symlink_to("run-run-2")

    assert list(spool.steps()) == [KEY]
    spool.put(KEY, b"two")
    assert spool.get(KEY) == b"two"


def test_one_step_may_be_written_twice_at_a_time(tmp_path: Path) -> None:
    """Threads, and processes of one number on several machines, leave one of the contents, whole."""
    contents = [b"%d" % n * 100_000 for n in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(10):
            list(threads.map(partial(Spool(tmp_path).put, KEY), contents))
            assert Spool(tmp_path).get(KEY) in contents


def test_a_full_spool_refuses_and_says_what_to_do(tmp_path: Path) -> None:
    """The bound holds; what is there stays, and a step may still be replaced."""
    spool = Spool(tmp_path, max_bytes=10)
    spool.put(KEY, b"12345678")
    with pytest.raises(SpoolError, match="record-mirror link"):
        spool.put(StepKey("run-1", "train", 4), b"12345678")

    spool.put(KEY, b"87654321")
    assert spool.get(KEY) == b"87654321"


def test_a_spool_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    """A file where the directory should be is one clear sentence."""
    (tmp_path / "spool").write_text("")
    with pytest.raises(SpoolError, match="cannot be written"):
        Spool(tmp_path / "spool").put(KEY, b"x")


KILLED = """
import os, sys
from references.spool import Spool, StepKey
spool = Spool(sys.argv[1])
for step in range(1_000_000):
    spool.put(StepKey("r", "train", step % 5), b"%d " % step * 20_000)
    print(step, flush=True)
"""


@pytest.mark.parametrize("written", [1, 3, 8])
def test_kill_9_leaves_only_whole_steps(tmp_path: Path, written: int) -> None:
    """Killed while it writes, the spool holds every step whose ``put`` had returned, each of them whole."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and script
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert process.stdout is not None
    for _ in range(written):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)

    spool = Spool(tmp_path)
    contents = {key.step: spool.get(key) for key in spool.steps()}
    assert len(contents) >= min(written, 5)
    for step, data in contents.items():
        assert data is not None
        number = int(data.split()[0])
        assert number % 5 == step
        assert data == b"%d " % number * 20_000


def test_where_steps_are_spooled_can_be_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the environment; otherwise in the user's state directory."""
    monkeypatch.delenv("RECORD_MIRROR_SPOOL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "record-mirror" / "spool"

    monkeypatch.setenv("RECORD_MIRROR_SPOOL", str(tmp_path / "here"))
    assert default_directory() == tmp_path / "here"


@pytest.mark.parametrize("name", ["RECORD_MIRROR_SPOOL", "XDG_STATE_HOME"])
def test_a_home_that_nobody_knows_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user is in no list; the sentence says what to set."""
    monkeypatch.delenv("RECORD_MIRROR_SPOOL", raising=False)
    monkeypatch.setenv(name, "~nobody-of-that-name/state")
    with pytest.raises(ConfigError, match=r"in RECORD_MIRROR_SPOOL or wandb\.spool"):
        Spool()
