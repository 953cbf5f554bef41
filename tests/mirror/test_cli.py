"""The mirror's commands, from the arguments to the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mirror.names import document_name
from mirror.samples import write_corpus, write_litter
from mirror.terminal.output import COUNTS
from tests.mirror.command_line import Line, Ran
from tests.mirror.local_records import tree, write_files


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Twenty records of two files each, and what never is a record."""
    write_corpus(tmp_path / "records", profile="tiny", count=20, seed=1)
    write_litter(tmp_path / "records")
    return tmp_path / "records"


def test_sync_copies_what_is_missing_and_then_has_nothing_to_do(line: Line, records: Path, tmp_path: Path) -> None:
    """The first run copies every finished record, the second says that there is nothing to do; both are complete."""
    first = line("sync", records, tmp_path / "mirror")
    assert first.code == 0
    assert first.out.startswith("copied 40 files of 20 records, ")
    copied = {name: data for name, data in tree(tmp_path / "mirror").items() if not name.startswith("_receipts/")}
    assert len(copied) == 40
    assert all((records / name).read_bytes() == data for name, data in copied.items())
    second = line("sync", records, tmp_path / "mirror")
    url = f"file://{tmp_path}/mirror"
    assert (second.code, second.out) == (
        0,
        f"nothing to do: by their receipts all 40 files are in {url} already; verify asks the store\n",
    )


def test_json_is_lines_with_a_summary_of_files(line: Line, records: Path, tmp_path: Path) -> None:
    """Standard output has JSON lines only, the last one the summary, whose counts are of files."""
    first = line("sync", "--json", records, tmp_path / "mirror")
    assert [found["type"] for found in first.lines] == ["summary"]
    assert set(COUNTS) | {"elapsed_s"} <= set(first.summary)
    assert (first.summary["copied"], first.summary["unchanged"], first.summary["records"]) == (40, 0, 20)
    assert first.summary["bytes"] == sum(path.stat().st_size for path in (tmp_path / "mirror").glob("*.zst"))
    write_corpus(records, profile="text", count=3, seed=2)
    second = line("sync", "--json", records, tmp_path / "mirror").summary
    assert (second["copied"], second["unchanged"], second["failed"], second["late"]) == (3, 40, 0, 0)


def test_a_dry_run_tells_the_same_plan_and_writes_nothing(line: Line, records: Path, tmp_path: Path) -> None:
    """What it lists is exactly what the run after it sends, and nothing at all appears anywhere."""
    line("sync", records, tmp_path / "mirror")
    write_corpus(records, profile="tokens", count=5, seed=3)
    rewritten = next(iter(sorted(records.glob("*.json.zst"))))
    write_files(records, rewritten.name.removesuffix(".json.zst"), b"other bytes")
    before = tree(tmp_path)
    planned = line("sync", "--dry-run", "--json", records, tmp_path / "mirror")
    assert planned.code == 0
    assert tree(tmp_path) == before
    names = {name for found in planned.of_type("plan") for name in found["files"]}
    assert len(names) == planned.summary["planned"] == 16
    done = line("sync", "--json", records, tmp_path / "mirror").summary
    assert (done["copied"], done["bytes"]) == (planned.summary["planned"], planned.summary["planned_bytes"])
    assert done["unchanged"] == planned.summary["unchanged"] == 39
    after = tree(tmp_path / "mirror")
    sent = {name for name in after if after[name] != before.get(f"mirror/{name}") and not name.startswith("_")}
    assert sent == names


def test_a_dry_run_before_the_first_copy_leaves_no_trace(line: Line, records: Path, tmp_path: Path) -> None:
    """Neither the mirror nor the receipts beside the records are begun."""
    said = line("sync", "--dry-run", records, tmp_path / "mirror")
    assert said.code == 0
    assert "would copy 20 records (40 files, " in said.out
    assert not (tmp_path / "mirror").exists()
    assert not (records / ".mirror").exists()


def test_touching_a_file_copies_nothing(line: Line, records: Path, tmp_path: Path) -> None:
    """A new time stamp is no new record: neither the dry run nor the run thinks so."""
    line("sync", records, tmp_path / "mirror")
    for path in records.glob("*.json.zst"):
        path.touch()
    for args in (("sync", "--dry-run"), ("sync",)):
        said = line(*args, records, tmp_path / "mirror")
        assert (said.code, said.out.startswith("nothing to do: by their receipts all 40 files are in ")) == (0, True)


def test_why_there_is_nothing_to_do_is_said(line: Line, records: Path, tmp_path: Path) -> None:
    """No record at all, or none that matches, is not the same as all being there."""
    (tmp_path / "empty").mkdir()
    for args in (("sync", "--dry-run"), ("sync",)):
        said = line(*args, tmp_path / "empty", tmp_path / "mirror")
        assert (said.code, said.out) == (0, f"nothing to do: no finished records in {tmp_path / 'empty'}\n")
        said = line(*args, "--include", "zz*", records, tmp_path / "mirror")
        assert (said.code, said.out) == (0, f"nothing to do: no record in {records} matches 'zz*'\n")


def test_records_one_level_below_are_pointed_at(line: Line, tmp_path: Path) -> None:
    """A record directory is flat: whoever named the one above it is told so, and nothing of it is copied."""
    above = tmp_path / "kept"
    write_files(above / "records", "tr_a", tokens=b"t")
    (above / "notes").mkdir()
    write_files(above / ".hidden", "tr_b")
    for args in (("sync", "--dry-run"), ("sync",)):
        said = line(*args, above, tmp_path / "mirror")
        hint = f"some are in {above / 'records'}: name the subdirectory itself"
        assert (said.code, said.out) == (0, f"nothing to do: no finished records in {above}; {hint}\n")


def test_include_chooses_records_by_id(line: Line, tmp_path: Path) -> None:
    """Patterns as a shell has them; the other records are left for another run."""
    for record_id in ("tr_a1", "tr_a2", "tr_b1"):
        write_files(tmp_path / "records", record_id, tokens=b"t")
    args = ("--include", "tr_a*", tmp_path / "records", tmp_path / "mirror")
    assert line("sync", "--dry-run", *args).out.startswith("copy tr_a1")
    assert line("sync", "--json", *args).summary["copied"] == 4
    assert not (tmp_path / "mirror" / document_name("tr_b1")).exists()
    assert line("sync", *args).out.startswith("nothing to do: by their receipts all 4 files are in ")
    assert line("sync", "--json", tmp_path / "records", tmp_path / "mirror").summary["copied"] == 2


def test_exclude_leaves_a_kind_out(line: Line, tmp_path: Path) -> None:
    """A kind that is left out is neither planned nor copied."""
    write_files(tmp_path / "records", "tr_a", tokens=b"t", experts=b"e")
    args = ("--json", "--exclude", "experts", tmp_path / "records", tmp_path / "mirror")
    assert line("sync", "--dry-run", *args).summary["planned"] == 2
    assert line("sync", *args).summary["copied"] == 2
    assert not (tmp_path / "mirror" / "tr_a.experts.zst").exists()


def test_a_kind_that_no_record_has_is_remarked(line: Line, tmp_path: Path) -> None:
    """Where the records have one of nearly that name: a slip would copy what was to be left out."""
    write_files(tmp_path / "records", "tr_a", tokens=b"t", experts=b"e")
    said = line("sync", "--exclude", "expert", tmp_path / "records", tmp_path / "mirror")
    assert (said.code, said.err) == (0, "no record has 'expert', which --exclude names; there is 'experts'\n")
    said = line("sync", "--exclude", "experts", "--exclude", "zzz", tmp_path / "records", tmp_path / "second")
    assert (said.code, said.err) == (0, "")


def test_several_directories_go_to_one_mirror(line: Line, tmp_path: Path) -> None:
    """The URL is the last argument; a directory named twice counts once."""
    write_files(tmp_path / "one", "tr_a")
    write_files(tmp_path / "two", "tr_b")
    said = line("sync", "--json", tmp_path / "one", tmp_path / "two", tmp_path / "one", tmp_path / "mirror")
    assert said.summary["copied"] == 2


def test_what_cannot_be_copied_makes_the_run_partial(line: Line, tmp_path: Path) -> None:
    """A refused name is an error with its record; the others are copied; the dry run said so before."""
    write_files(tmp_path / "records", "tr_a", tokens=b"t")
    write_files(tmp_path / "records", "tr_\x07bell", tokens=b"t")
    planned = line("sync", "--dry-run", "--json", tmp_path / "records", tmp_path / "mirror")
    assert (planned.code, planned.summary["planned"], planned.summary["failed"]) == (3, 4, 2)
    done = line("sync", "--json", tmp_path / "records", tmp_path / "mirror")
    assert (done.code, done.summary["copied"], done.summary["failed"]) == (3, 2, 2)
    (error,) = done.of_type("error")
    assert (error["id"], error["directory"]) == ("tr_\x07bell", str(tmp_path / "records"))
    assert "control character" in error["message"]
    (tmp_path / "records" / document_name("tr_a")).unlink()
    alone = line("sync", "--json", tmp_path / "records", tmp_path / "elsewhere")
    assert (alone.code, alone.summary["copied"]) == (1, 0)


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["sync", "{tmp}/nowhere", "{tmp}/mirror"], "the record directory {tmp}/nowhere does not exist"),
        (["sync", "s3://b/x", "{tmp}/records"], "s3://b/x is a URL where a record directory is expected"),
        (["sync", "{tmp}/records", "{tmp}/records"], "{tmp}/records cannot be its own mirror"),
        (["sync", "{tmp}/records", "s3://"], "names no bucket"),
        (["sync", "s3://user:secret@b/x", "{tmp}/records"], "s3://***@b/x is a URL where a record directory"),
        (["sync", "{tmp}/records", "nonsense://x"], "no store is known for nonsense://"),
        (["sync", "--dry-run", "{tmp}/records", "nonsense://x"], "no store is known for nonsense://"),
        (
            ["sync", "{tmp}/records", "http://me:pw@h:9/b/run"],
            "http://h:9/b/run is a web address, which can only be read",
        ),
        (
            ["verify", "https://h/b"],
            "write s3://bucket/prefix, with the option endpoint_url=https://h if that is an S3",
        ),
        (["status", "github://org:repo@main/dir"], "can only be read: give a mirror that can be written"),
        (["sync", "{tmp}/records"], "the mirror's URL is missing: put it behind {tmp}/records"),
        (["watch", "s3://b/x"], "no record directory is named: put DIR before it"),
        (["sync", "{tmp}/records", "{tmp}/a-file"], "{tmp}/a-file is a file, not a directory"),
        (["watch", "{tmp}/a-file", "{tmp}/mirror"], "{tmp}/a-file is a file, not a directory"),
        (["verify", "{tmp}/a-file"], "{tmp}/a-file is a file, not a directory"),
        (["status", "{tmp}/a-file"], "{tmp}/a-file is a file, not a directory"),
        (["sync", "--exclude", "json", "{tmp}/records", "{tmp}/mirror"], "which is the document itself"),
        (["sync", "--endpoint-url", "http://x", "{tmp}/records", "{tmp}/mirror"], "--endpoint-url is for s3://"),
        (["watch", "{tmp}/records", "{tmp}/mirror", "--listen", "nonsense"], "--listen takes host:port"),
        (["verify", "{tmp}/mirror", "{tmp}/nowhere"], "the record directory {tmp}/nowhere does not exist"),
        (["verify", "{tmp}/mirror", "--sample", "120%"], "'120%' is not a share such as 5% or 0.05"),
        (["verify", "{tmp}/mirror", "--download", "--ask-store"], "give one of them"),
        (["repair", "{tmp}/mirror"], "a repair needs a source"),
        (["nonsense"], "No such command 'nonsense': `--help` lists them"),
        (["copy", "{tmp}/records"], "No such command 'copy': did you mean 'sync'?"),
        (["verfy", "{tmp}/records"], "No such command 'verfy': did you mean 'verify'?"),
        (["sync", "--nonsense", "{tmp}/records", "{tmp}/mirror"], "No such option"),
    ],
)
def test_a_mistake_of_the_user_is_one_sentence(
    line: Line, records: Path, tmp_path: Path, args: list[str], complaint: str
) -> None:
    """It ends with code 2 and says what to do instead; with --json also as an error line before a summary."""
    assert records.is_dir()
    (tmp_path / "a-file").touch()
    filled = [arg.format(tmp=tmp_path) for arg in args]
    said = line(*filled)
    assert said.code == 2
    assert said.out == ""
    last = said.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert complaint.format(tmp=tmp_path) in last
    if len(args) > 1:
        as_json = line(filled[0], "--json", *filled[1:])
        assert [found["type"] for found in as_json.lines] == ["error", "summary"]
        assert as_json.summary["exit_code"] == 2
    assert not (tmp_path / "mirror").exists()


def test_a_mirror_where_none_can_be_is_refused_in_plain_words(line: Line, records: Path, tmp_path: Path) -> None:
    """What the file system said of which directory, and what to do: no number, and no name of a temporary file."""
    (tmp_path / "a-file").touch()
    mirror = tmp_path / "a-file" / "mirror"
    said = line("sync", records, mirror)
    reason = f"Not a directory ({mirror}): a part of this path is a file, correct it"
    assert (said.code, said.err) == (1, f"error: file://{mirror} refuses everything: {reason}\n")


def test_swapped_arguments_are_noticed(line: Line, records: Path, tmp_path: Path) -> None:
    """A mirror is no record directory and the other way round; the sentence says which comes first, nothing changes."""
    mirror = tmp_path / "mirror"
    line("sync", records, mirror)
    before = tree(tmp_path)
    last, first = "the record directory comes first, the mirror's URL last", "the mirror's URL comes first"
    cases: list[tuple[tuple[str | Path, ...], str, str]] = [
        (("sync", mirror, records), f"{records} is a record directory (it has .mirror)", last),
        (("watch", mirror, tmp_path / "other"), f"{mirror} is a mirror (it has _receipts)", last),
        (("verify", records, mirror), f"{records} is a record directory (it has .mirror)", first),
        (("verify", "s3://b/x", mirror), f"{mirror} is a mirror (it has _receipts)", first),
        (("repair", records, mirror), f"{records} is a record directory (it has .mirror)", first),
    ]
    for args, is_what, order in cases:
        said = line(*args)
        assert said.code == 2
        assert said.err.startswith(f"error: {is_what}: {order}")
    assert tree(tmp_path) == before


def test_the_summary_of_verify_and_repair(line: Line, records: Path, tmp_path: Path) -> None:
    """Damage is listed file by file and ends in code 4; a repair mends it; a second one has nothing to do."""
    mirror = tmp_path / "mirror"
    line("sync", records, mirror)
    names = sorted(path.name for path in mirror.glob("*.zst"))
    (mirror / names[0]).unlink()
    (mirror / names[2]).write_bytes(b"short")
    flipped = bytearray((mirror / names[4]).read_bytes())
    flipped[50] ^= 1
    (mirror / names[4]).write_bytes(flipped)
    found = line("verify", "--json", "--download", mirror, records)
    assert found.code == 4
    kinds = {finding["name"]: finding["kind"] for finding in found.of_type("finding")}
    assert kinds == {names[0]: "missing", names[2]: "wrong_size", names[4]: "changed"}
    assert (found.summary["findings"], found.summary["intact"], found.summary["files"]) == (3, 37, 40)
    planned = line("repair", "--dry-run", "--json", "--download", mirror, records)
    assert (planned.code, planned.summary["copied"], planned.summary["dry_run"]) == (4, 0, True)
    assert sorted(name for step in planned.of_type("plan") for name in step["files"]) == [names[0], names[2], names[4]]
    mended = line("repair", "--json", "--download", mirror, records)
    assert (mended.code, mended.summary["copied"], mended.summary["findings"]) == (0, 3, 3)
    assert line("verify", "--download", mirror, records).code == 0
    again = line("repair", "--download", mirror, records)
    assert (again.code, again.out) == (
        0,
        f"nothing to do in file://{mirror}: 40 intact by hash, 0 present by size and identity\n",
    )
    assert "nothing was hashed" not in again.err


def test_a_repair_that_hashed_nothing_says_so(line: Line, records: Path, tmp_path: Path) -> None:
    """A bit that was flipped in a mirror without ETags does not show, whether or not something else was restored."""
    mirror = tmp_path / "mirror"
    line("sync", records, mirror)
    names = sorted(path.name for path in mirror.glob("*.zst"))
    (mirror / names[0]).unlink()
    for says, others in (("would restore 1 file ", 39), ("restored 1 file, ", 39), ("nothing to do in ", 40)):
        said = line("repair", *(["--dry-run"] if says.startswith("would") else []), mirror, records)
        assert said.out.splitlines()[-1].startswith(says)
        assert f"0 intact by hash, {others} present by size" in said.out
        assert "nothing was hashed: --download does" in said.err


def test_a_repair_says_why_each_file_is_sent(line: Line, tmp_path: Path) -> None:
    """Damage in the mirror is told apart from what is newer on disk; one reason is said once for all its files."""
    records, mirror = tmp_path / "records", tmp_path / "mirror"
    write_files(records, "tr_damaged", tokens=b"t")
    write_files(records, "tr_newer", tokens=b"t")
    line("sync", records, mirror)
    (mirror / "tr_damaged.tokens.zst").write_bytes(b"short")
    write_files(records, "tr_newer", document=b"finished later", tokens=b"more")
    args = ("repair", "--dry-run", mirror, records)
    again = f"changed: it was written again in {records} after it was copied"
    assert line(*args).out.splitlines()[:2] == [
        f"restore tr_damaged.tokens.zst (wrong_size: 5 bytes instead of 1) from {records}",
        f"restore tr_newer.json.zst, tr_newer.tokens.zst ({again}) from {records}",
    ]
    assert [step["kinds"] for step in line(*args, "--json").of_type("plan")] == [
        {"tr_damaged.tokens.zst": "wrong_size"},
        {"tr_newer.json.zst": "changed", "tr_newer.tokens.zst": "changed"},
    ]


def test_a_repair_without_a_source_for_a_file_still_has_differences(line: Line, records: Path, tmp_path: Path) -> None:
    """What no source has stays a finding; a second mirror is a source."""
    line("sync", records, tmp_path / "mirror")
    line("sync", records, tmp_path / "second")
    name = next(iter(sorted(path.name for path in records.glob("*.json.zst"))))
    (records / name).unlink()
    (tmp_path / "mirror" / name).unlink()
    hopeless = line("repair", "--json", tmp_path / "mirror", records)
    assert (hopeless.code, hopeless.summary["without_source"]) == (4, 1)
    assert [finding["name"] for finding in hopeless.of_type("finding")] == [name]
    mended = line("repair", "--json", "--from", tmp_path / "second", tmp_path / "mirror")
    assert (mended.code, mended.summary["copied"]) == (0, 1)


def test_a_sample_is_read_back(line: Line, records: Path, tmp_path: Path) -> None:
    """What was not read is present, never intact."""
    line("sync", records, tmp_path / "mirror")
    summary = line("verify", "--json", "--sample", "50%", tmp_path / "mirror").summary
    assert summary["intact"] + summary["present"] == 40
    assert 0 < summary["intact"] < 40
    summary = line("verify", "--json", "--sample", "0.000001%", tmp_path / "mirror").summary
    assert (summary["intact"], summary["present"]) == (1, 39)


def test_a_directory_has_no_identities_and_that_is_said(line: Line, records: Path, tmp_path: Path) -> None:
    """By size alone little is known; how to know more is remarked."""
    line("sync", records, tmp_path / "mirror")
    said = line("verify", tmp_path / "mirror")
    assert "0 intact by hash, 40 present by size, 0 findings" in said.out
    assert (said.code, said.err) == (0, "nothing was hashed: --download does\n")
    assert line("verify", "--download", tmp_path / "mirror").err == ""


def test_what_the_store_cannot_tell_is_not_checked(line: Line, records: Path, tmp_path: Path) -> None:
    """A directory keeps no hashes: asking for them ends in code 5."""
    line("sync", records, tmp_path / "mirror")
    said = line("verify", "--json", "--ask-store", tmp_path / "mirror")
    assert (said.code, said.summary["unchecked"], said.summary["findings"]) == (5, 40, 0)
    assert len(said.of_type("finding")) == 40
    said = line("verify", "--ask-store", tmp_path / "mirror")
    assert said.out.splitlines()[0] == (
        "unchecked  40 files  not checked: the store keeps no xxh3_128 of it: have it read back (--download)"
    )
    assert len(said.out.splitlines()) == 2


def test_where_there_is_no_mirror_nothing_is_complete(line: Line, records: Path, tmp_path: Path) -> None:
    """A check of a URL where nothing is could not run, whether or not directories are given: code 5, one sentence."""
    (tmp_path / "empty").mkdir()
    for place in ("nowhere", "empty"):
        for said in (
            line("verify", tmp_path / place),
            line("status", tmp_path / place),
            line("verify", tmp_path / place, records),
        ):
            assert (said.code, said.out) == (5, "")
            url = f"file://{tmp_path / place}"
            assert said.err == f"error: no mirror at {url}: it has no receipts and no record files; check the URL\n"


def test_quiet_and_complete_says_nothing(line: Line, records: Path, tmp_path: Path) -> None:
    """For cron: a line only where something is wrong."""
    assert line("sync", "--quiet", records, tmp_path / "mirror") == Ran(0, "", "")
    assert line("verify", "-q", tmp_path / "mirror", records) == Ran(0, "", "")


def test_verbose_logs_each_record(line: Line, tmp_path: Path) -> None:
    """Twice verbose: every record that is copied, on standard error."""
    write_files(tmp_path / "records", "tr_a")
    said = line("sync", "-vv", tmp_path / "records", tmp_path / "mirror")
    assert "copied tr_a: 1 files" in said.err


def test_who_reads_no_further_is_no_fault_of_the_disk(tmp_path: Path) -> None:
    """A plan of which only the first line is wanted ends without a word."""
    for number in range(3_000):
        write_files(tmp_path / "records", f"tr_{number}")
    args = ["sync", "--dry-run", str(tmp_path / "records"), str(tmp_path / "mirror")]
    command = [sys.executable, "-m", "references.cli", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:  # noqa: S603 - our own command
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith("copy tr_")
        running.stdout.close()
        assert running.stderr.read() == ""


def test_help_needs_no_store() -> None:
    """Help and version are there at once: nothing is imported that only a command needs."""
    code = (
        "import json, sys\n"
        "from references.cli import commands\n"
        "from mirror.terminal.commands import run\n"
        "assert run(commands, ['--help']) == run(commands, []) == run(commands, ['sync', '--help']) == 0\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert not {"asyncio", "fsspec", "rich", "watchfiles", "prometheus_client", "sqlite3", "http.server"} & loaded
