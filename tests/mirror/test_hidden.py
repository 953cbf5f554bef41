"""What a killed prune left hidden goes back by and by; nothing is replaced, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from mirror import Keep, PruneResult, PruneRules, PruneStep, RecordMirror, prune
from mirror.pruning.hidden import LEFT_AFTER_S, settle
from tests.mirror.command_line import Line
from tests.mirror.local_records import replace_file, write_files
from tests.mirror.moments import Moments

HOUR = LEFT_AFTER_S + 60
KILLED = dedent("""
    import os, signal, sys
    from pathlib import Path
    from mirror.pruning.removing import remove_record
    from mirror.record import read_state

    def hear(event, args):
        name = os.path.basename(str(args[0])) if args else ""
        if event == "os.rename" and name == sys.argv[2] and len(sys.argv) > 3:
            Path(sys.argv[1], ".new").write_bytes(sys.argv[3].encode())
            os.replace(Path(sys.argv[1], ".new"), Path(sys.argv[1], name))
        if event in ("os.remove", "os.link") and name.startswith(".pruned-") and name.endswith(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    states = [read_state(Path(sys.argv[1]), name) for name in ("tr_a.tokens.zst", "tr_a.json.zst")]
    sys.addaudithook(hear)
    remove_record(Path(sys.argv[1]), states)
""")


def kill_a_prune_at(directory: Path, name: str, *newer: str) -> str:
    """Have a process killed while a file of a record is hidden; ``newer``: written again before. Return its name."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, directory, name, *newer], cwd=root, check=False, timeout=60)  # noqa: S603 - our own code
    assert done.returncode == -signal.SIGKILL
    [hidden] = [path.name for path in directory.glob(".pruned-*")]
    assert hidden.endswith(f"-{name}")
    assert not (directory / name).exists()
    return hidden


def hide(directory: Path, name: str, data: bytes, digits: str = "01234567") -> Path:
    """Lay a leftover by hand."""
    path = directory / f".pruned-{digits}-{name}"
    path.write_bytes(data)
    return path


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def after(hours: float) -> float:
    return time.time() + hours * HOUR


@pytest.mark.parametrize("name", ["tr_a.json.zst", "tr_a.tokens.zst"])
def test_what_was_written_again_while_a_killed_prune_deleted_it_comes_back(tmp_path: Path, name: str) -> None:
    """The newer bytes, which nobody copied, were under the hidden name alone."""
    write_files(tmp_path, "tr_a", b"old", tokens=b"old")
    kill_a_prune_at(tmp_path, name, "newer")
    before = contents(tmp_path)
    assert set(settle(tmp_path, now_s=after(0))) == {"tr_a"}  # it may still be at work
    assert contents(tmp_path) == before
    assert settle(tmp_path, now_s=after(1)) == {}
    assert contents(tmp_path)[name] == b"newer"
    assert not list(tmp_path.glob(".*"))


def test_a_record_whose_deletion_was_cut_short_is_whole_again(tmp_path: Path) -> None:
    """Its document goes first, so the sidecars were still there."""
    write_files(tmp_path, "tr_a", b"doc", tokens=b"t")
    before = contents(tmp_path)
    kill_a_prune_at(tmp_path, "tr_a.json.zst")
    settle(tmp_path, now_s=after(1))
    assert contents(tmp_path) == before


def test_sidecars_come_back_before_their_document(tmp_path: Path, moments: Moments) -> None:
    """Nobody sees it without them."""
    seen: list[bool] = []
    hide(tmp_path, "tr_a.json.zst", b"doc", "00000000")
    hide(tmp_path, "tr_a.tokens.zst", b"t", "ffffffff")
    document = ".pruned-00000000-tr_a.json.zst"
    moments.before("os.link", document, lambda: seen.append((tmp_path / "tr_a.tokens.zst").exists()))
    settle(tmp_path, now_s=after(1))
    assert seen == [True]
    assert contents(tmp_path) == {"tr_a.json.zst": b"doc", "tr_a.tokens.zst": b"t"}


def test_nothing_is_replaced(tmp_path: Path) -> None:
    """A file of the name, newer or older, or what is none, leaves both as they are: who knows which is wanted?"""
    hidden = [hide(tmp_path, f"tr_{name}.json.zst", b"hidden") for name in "abcd"]
    for name, moment in (("a", 2), ("b", -2)):
        write_files(tmp_path, f"tr_{name}", b"visible")
        os.utime(tmp_path / f"tr_{name}.json.zst", (time.time() + moment,) * 2)
    os.link(hidden[2], tmp_path / "tr_c.json.zst")
    (tmp_path / "tr_d.json.zst").symlink_to("tr_b.json.zst")
    waiting = settle(tmp_path, now_s=after(1))
    assert waiting == {"tr_a": hidden[0].name, "tr_b": hidden[1].name, "tr_d": hidden[3].name}
    assert {path.name for path in hidden if path.exists()} == set(waiting.values())
    assert [contents(tmp_path)[f"tr_{name}.json.zst"] for name in "abcd"] == [
        *(b"visible", b"visible", b"hidden", b"visible"),
    ]


def test_a_sidecar_does_not_join_a_document_that_was_written_since(tmp_path: Path) -> None:
    """The server wrote the record again, without it: what was of two writings would pass for one."""
    hidden = hide(tmp_path, "tr_a.tokens.zst", b"of before")
    write_files(tmp_path, "tr_a", b"written again")
    assert settle(tmp_path, now_s=after(1)) == {"tr_a": hidden.name}
    assert contents(tmp_path) == {"tr_a.json.zst": b"written again", hidden.name: b"of before"}


def test_a_file_that_comes_at_that_moment_is_not_replaced(tmp_path: Path, moments: Moments) -> None:
    """The server may be writing the record again just now."""
    hide(tmp_path, "tr_a.json.zst", b"hidden")
    moments.before("os.link", ".pruned-", lambda: replace_file(tmp_path / "tr_a.json.zst", b"newest"))
    settle(tmp_path, now_s=after(1))
    assert moments.are_over
    assert contents(tmp_path)["tr_a.json.zst"] == b"newest"


def test_nothing_else_that_is_hidden_is_touched(tmp_path: Path) -> None:
    """Neither what has no record file's name, nor what is no file; and nothing at all unless it is confirmed."""
    for name in (".pruned-01234567", ".pruned-1-aa", ".pruned-01234567-notes.txt", ".pruned-01234567-.json.zst"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / ".pruned-01234567-tr_l.json.zst").symlink_to(".pruned-1-aa")
    (tmp_path / ".pruned-01234567-tr_d.json.zst").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    assert settle(tmp_path, now_s=after(1)) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    hide(tmp_path, "tr_a.json.zst", b"hidden")
    assert settle(tmp_path, now_s=after(1), confirmed=False) == {}
    assert not (tmp_path / "tr_a.json.zst").exists()


def test_a_name_that_was_too_long_is_left_to_people(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can tell it; every prune says that something is there, and deletes nothing."""
    hidden = tmp_path / f".pruned-01234567~{'x' * 238}"
    hidden.write_bytes(b"hidden")
    for hours in (0, 1, 2):
        assert settle(tmp_path, now_s=after(hours)) == {}
    assert hidden.read_bytes() == b"hidden"
    assert [record.getMessage() for record in caplog.records] == [
        f"a killed prune left {hidden}: give it its name, which begins so, back if the mirror does not have it"
    ] * 2


def run_prune(
    records: Path, mirror: Path, hours: float = 0, *, confirmed: bool = True
) -> tuple[PruneResult, list[Keep]]:
    steps: list[PruneStep] = []
    rules = PruneRules(older_than_s=0)
    result = prune([records], mirror, confirmed=confirmed, rules=rules, each=steps.append, clock=lambda: after(hours))
    return result, [step.keep for step in steps if step.keep is not None]


def test_a_prune_that_follows_a_killed_one_loses_nothing(tmp_path: Path) -> None:
    """It leaves the record alone that the other hid a file of, until somebody has decided which file is wanted."""
    records, mirror = tmp_path / "records", tmp_path / "m"
    for record_id in ("tr_a", "tr_b"):
        write_files(records, record_id, b"old", tokens=b"old")

    def copy() -> None:
        with RecordMirror(mirror) as copier:
            copier.scan(records)
            assert copier.flush(60)

    copy()
    hidden = kill_a_prune_at(records, "tr_a.json.zst", "between")
    write_files(records, "tr_a", b"newest", tokens=b"newest")
    copy()
    assert run_prune(records, mirror, confirmed=False)[1] == [Keep.HIDDEN]
    result, kept = run_prune(records, mirror)
    assert (result.pruned, kept) == (1, [Keep.HIDDEN])
    assert contents(records) == {"tr_a.json.zst": b"newest", "tr_a.tokens.zst": b"newest", hidden: b"between"}
    assert run_prune(records, mirror, hours=1)[1] == [Keep.HIDDEN]
    (records / hidden).unlink()
    result, kept = run_prune(records, mirror, hours=1)
    assert (result.pruned, kept) == (1, [])
    assert contents(records) == {}
    copy()
    assert (mirror / "tr_a.json.zst").read_bytes() == b"newest"


def test_the_command_says_which_record_waits(tmp_path: Path, line: Line) -> None:
    """With the name of the hidden file."""
    write_files(tmp_path / "records", "tr_a")
    assert line("sync", tmp_path / "records", tmp_path / "m").code == 0
    hidden = hide(tmp_path / "records", "tr_a.json.zst", b"hidden")
    said = line("prune", "--older-than", "0", "--yes", tmp_path / "records", tmp_path / "m")
    assert said.code == 0
    assert f"keep tr_a: a prune was killed while it deleted it, see {hidden.name}\n" in said.out
    assert "kept 1 record (1 hidden)" in said.out
