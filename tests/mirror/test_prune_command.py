"""``record-mirror prune``, from the arguments to the exit code."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mirror.samples import write_corpus, write_litter
from tests.mirror.command_line import Line
from tests.mirror.local_records import write_files
from tests.mirror.places import record_files

NOW = ("--older-than", "0")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Twenty records of two files each, and what never is a record."""
    write_corpus(tmp_path / "records", profile="tiny", count=20, seed=1)
    write_litter(tmp_path / "records")
    return tmp_path / "records"


@pytest.fixture
def mirror(line: Line, records: Path, tmp_path: Path) -> Path:
    """The mirror that they are in."""
    assert line("sync", records, tmp_path / "mirror").code == 0
    return tmp_path / "mirror"


def test_it_deletes_only_what_was_confirmed_and_then_has_nothing_to_do(line: Line, records: Path, mirror: Path) -> None:
    """Without --yes it says what it would do, in the words of the run that does it."""
    before = record_files(records)
    planned, asked = line("prune", *NOW, records, mirror), line("prune", *NOW, "--dry-run", "--yes", records, mirror)
    assert (planned.code, asked.code) == (0, 0)
    assert record_files(records) == before
    assert planned.out.splitlines()[-1].startswith("would delete 20 records (40 files, ")
    assert planned.out.endswith("; nothing was deleted, --yes does it\n")
    assert asked.out.endswith("; nothing was deleted\n")
    done = line("prune", *NOW, "--yes", records, mirror)
    assert record_files(records) == {}
    lines = [sorted(said.out.splitlines()[:-1]) for said in (planned, asked, done)]
    assert lines[0] == lines[1] == lines[2]
    assert done.out.splitlines()[-1].startswith("deleted 20 records (40 files, ")
    again = line("prune", *NOW, "--yes", records, mirror)
    assert (again.code, again.out.partition(";")[0]) == (0, f"nothing to do: no finished records in {records}")


def test_only_the_command_line_confirms(
    line: Line, records: Path, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file or a variable that answers other commands' questions deletes nothing."""
    (tmp_path / "config.toml").write_text("yes = true\nolder_than = '0s'\n")
    monkeypatch.setenv("RECORD_MIRROR_YES", "1")
    said = line("prune", "--config", tmp_path / "config.toml", records, mirror)
    assert said.out.splitlines()[-1].startswith("would delete 20 records")
    assert len(record_files(records)) == 40


def test_what_stays_is_named_or_counted(line: Line, records: Path, mirror: Path) -> None:
    """Records that an option keeps are counted; others are named with the reason, and neither is a failure."""
    assert line("prune", "--yes", records, mirror).out == "nothing to do: kept 20 records (20 young)\n"
    write_files(records, "tr_new", tokens=b"t")
    said = line("prune", *NOW, "--yes", "--keep-newest", "2", records, mirror)
    assert said.code == 0
    assert said.out.splitlines()[-1].endswith("; kept 2 records (2 newest)")
    said = line("prune", *NOW, "--yes", records, mirror)
    assert "keep tr_new: the mirror has no receipt for it" in said.out
    assert said.out.splitlines()[-1].endswith("; kept 1 record (1 no receipt)")


def test_what_is_said_of_many_records_is_said_once(line: Line, records: Path, mirror: Path, tmp_path: Path) -> None:
    """To people, with how many they are; to programs, a line a record."""
    second = tmp_path / "second"
    assert line("sync", records, second).code == 0
    for number in range(3):
        write_files(records, f"tr_new{number}")
    assert line("sync", records, mirror).code == 0
    args = ("prune", *NOW, "--include", "tr_new*", records, mirror)
    said = line(*args)
    assert said.out.startswith(f"keep 3 records: another mirror of the directory, file://{second}, does not have it ")
    assert said.out.splitlines()[1:] == ["nothing to do: kept 3 records (3 elsewhere)"]
    assert Counter(found["keep"] for found in line(*args, "--json").of_type("plan")) == {"elsewhere": 3}
    assert line(*args, "--quiet").out == ""


def test_a_mistyped_kind_to_discard_is_told(line: Line, records: Path, mirror: Path) -> None:
    """Else what it was to let go would stay without a word."""
    said = line("prune", *NOW, "--discard", "token", records, mirror)
    assert "no record has 'token', which --discard names; there is 'tokens'" in said.err


def test_json_is_a_line_a_record_and_a_summary(line: Line, records: Path, mirror: Path) -> None:
    """With what stays and why, and what is wrong in the mirror as findings."""
    write_files(records, "tr_new", tokens=b"t")
    damaged = min(mirror.glob("*.json.zst"))
    damaged.unlink()
    said = line("prune", *NOW, "--yes", "--json", records, mirror)
    assert said.code == 4
    assert Counter(found["keep"] for found in said.of_type("plan")) == {None: 19, "no_receipt": 1}
    assert [(found["kind"], found["name"]) for found in said.of_type("finding")] == [("missing", damaged.name)]
    summary = said.summary
    assert (summary["pruned"], summary["pruned_records"], summary["records"]) == (38, 19, 21)
    assert (summary["kept"], summary["findings"]) == ({"damaged": 1, "no_receipt": 1}, 1)
    assert summary["bytes"] == sum(found["bytes"] for found in said.of_type("plan") if found["keep"] is None)
    assert line("repair", "--quiet", mirror, records).code == 0  # which sends the new one, too
    assert line("prune", *NOW, "--yes", "--json", records, mirror).summary["pruned_records"] == 2


def test_quiet_and_complete_says_nothing(line: Line, records: Path, mirror: Path) -> None:
    """As every command."""
    said = line("prune", "--quiet", *NOW, "--yes", records, mirror)
    assert (said.code, said.out, said.err) == (0, "", "")


def test_kinds_to_discard_are_named(line: Line, tmp_path: Path) -> None:
    """Several in one word, as those that are excluded."""
    write_files(tmp_path / "records", "tr_a", tokens=b"t", experts=b"e")
    line("sync", "--exclude", "experts,tokens", tmp_path / "records", tmp_path / "mirror")
    args = (*NOW, "--yes", tmp_path / "records", tmp_path / "mirror")
    said = line("prune", *args)
    assert "exists nowhere else (--discard experts)" in said.out
    assert line("prune", "--discard", "experts, tokens", "--json", *args).summary["pruned"] == 3


def test_a_mistake_of_the_user_is_one_sentence(line: Line, records: Path, mirror: Path, tmp_path: Path) -> None:
    """Swapped arguments, a mirror that is none, an age that is none; nothing is deleted."""
    before = record_files(records)
    cases = [
        ((mirror, records), 2, f"{records} is a record directory (it has .mirror)"),
        ((records, tmp_path / "typo"), 5, f"no mirror at file://{tmp_path}/typo"),
        ((records,), 2, "the mirror's URL is missing"),
        ((tmp_path / "none", mirror), 2, f"the record directory {tmp_path}/none does not exist"),
        (("--older-than", "soon", records, mirror), 2, "Invalid value for '--older-than'"),
    ]
    for args, code, complaint in cases:
        said = line("prune", *NOW, "--yes", *args)
        assert (said.code, said.out) == (code, "")
        assert complaint in said.err.splitlines()[-1]
    assert record_files(records) == before
