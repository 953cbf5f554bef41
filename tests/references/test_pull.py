"""A run pulled from its mirror, in a directory and on a real S3 server."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mirror import MirrorConfig
from mirror.receipts.receipt import encode_line
from mirror.samples import write_record
from references.errors import OutDirectoryError, SourceError
from references.folder import Folder
from references.pull import pull
from references.pull_plan import PullSummary, Why
from references.run_index import RecordLocation, StepIndex
from references.scratch import Scratch
from references.selection import Selection
from tests.mirror.local_records import tree
from tests.mirror.places import DirectoryPlace, Place, S3Place, mirror_to
from tests.references.whole_runs import SampleRun, delete_object, put_object, times

TEN = [f"tr_{number}" for number in range(10)]


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.integration)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place for a mirror, of each kind in turn."""
    if request.param == "directory":
        return DirectoryPlace(tmp_path / "mirror")
    return S3Place(request.getfixturevalue("seaweed"), request.getfixturevalue("s3_bucket"))


@pytest.fixture
def run(place: Place, tmp_path: Path) -> SampleRun:
    """A run without a step yet."""
    return SampleRun(place, tmp_path / "records")


@pytest.fixture
def local_run(tmp_path: Path) -> SampleRun:
    """A run in a directory, for what has nothing to do with the kind of store."""
    return SampleRun(DirectoryPlace(tmp_path / "mirror"), tmp_path / "records")


def pulled(run: SampleRun, out: Path, **options: Any) -> PullSummary:  # noqa: ANN401 - options of a pull
    """Pull from the run's mirror."""
    config = MirrorConfig(backoff_s=0.05, storage_options=run.place.options())
    return pull(run.place.url, out, config=config, **options)


def not_pulled(summary: PullSummary) -> dict[str, Why]:
    """Return what did not come, and why."""
    return {record.record_id: record.why for record in summary.not_pulled}


def test_a_run_comes_back_byte_for_byte(run: SampleRun, tmp_path: Path) -> None:
    """A record directory for each phase, with the step indexes in it, and nothing else."""
    run.step(1, ["tr_a", "tr_b"])
    run.step(2, ["tr_c"], profile="tokens")
    run.step(2, ["tr_d"], phase="eval")
    summary = pulled(run, tmp_path / "deep" / "out")
    assert tree(tmp_path / "deep" / "out" / "train") == run.pulled("train")
    assert tree(tmp_path / "deep" / "out" / "eval") == run.pulled("eval")
    assert sorted(path.name for path in (tmp_path / "deep" / "out").iterdir()) == ["eval", "train"]
    files = [file for receipt in run.receipts().values() for file in receipt.files]
    assert summary.is_complete
    assert (summary.steps, summary.records, summary.copied_records, summary.unchanged_records) == (3, 4, 4, 0)
    assert (summary.copied_files, summary.copied_bytes) == (len(files), sum(file.size for file in files))


def test_a_second_pull_changes_nothing(local_run: SampleRun, tmp_path: Path) -> None:
    """No file and no directory below is touched, and it says that all is here."""
    local_run.step(1, TEN)
    pulled(local_run, tmp_path / "out")
    before = times(tmp_path / "out" / "train" / "index") | times(tmp_path / "out")
    summary = pulled(local_run, tmp_path / "out")
    after = times(tmp_path / "out" / "train" / "index") | times(tmp_path / "out")
    del before["train"], after["train"]  # where the scratch folder comes and goes
    assert after == before
    assert (summary.copied_records, summary.copied_files, summary.unchanged_records) == (0, 0, 10)


def test_what_was_damaged_here_is_fetched_again(local_run: SampleRun, tmp_path: Path) -> None:
    """A file that is not what its receipt says comes anew, be its size right or not, and no other file is touched."""
    local_run.step(1, TEN)
    pulled(local_run, tmp_path / "out")
    train = tmp_path / "out" / "train"
    document = train / "tr_3.json.zst"
    document.write_bytes(bytes(document.stat().st_size))
    (train / "tr_5.tokens.zst").unlink()
    untouched = times(train)
    summary = pulled(local_run, tmp_path / "out")
    assert (summary.copied_records, summary.copied_files) == (2, 2)
    assert tree(train) == local_run.pulled()
    changed = {name for name, when in times(train).items() if when != untouched.get(name)}
    assert changed == {"tr_3.json.zst", "tr_5.tokens.zst"}


@pytest.mark.parametrize("gone", ["tr_3.json.zst", "tr_3.tokens.zst"])
def test_one_missing_record_of_ten_is_named_and_nine_come(run: SampleRun, tmp_path: Path, gone: str) -> None:
    """Whichever of its files is gone, nothing of the record comes."""
    run.step(1, TEN)
    delete_object(run.place, gone)
    summary = pulled(run, tmp_path / "out")
    assert not_pulled(summary) == {"tr_3": Why.MISSING}
    assert gone in summary.not_pulled[0].detail
    assert (summary.copied_records, summary.is_complete) == (9, False)
    assert tree(tmp_path / "out" / "train") == run.pulled(ids=set(TEN) - {"tr_3"})


@pytest.mark.parametrize(
    "change", [lambda data: bytes([data[0] ^ 1]) + data[1:], lambda data: data[:-1], lambda data: data * 9]
)
def test_a_record_that_is_not_what_its_receipt_says_does_not_come(
    local_run: SampleRun,
    tmp_path: Path,
    change: Any,  # noqa: ANN401 - a function on bytes
) -> None:
    """Flipped, cut short, grown: it is named, and nothing of it is left, scratch included."""
    local_run.step(1, TEN)
    put_object(local_run.place, "tr_3.tokens.zst", change((local_run.records / "tr_3.tokens.zst").read_bytes()))
    summary = pulled(local_run, tmp_path / "out")
    assert not_pulled(summary) == {"tr_3": Why.DAMAGED}
    assert tree(tmp_path / "out" / "train") == local_run.pulled(ids=set(TEN) - {"tr_3"})


def test_what_is_no_use_is_not_kept_until_the_end(local_run: SampleRun, tmp_path: Path) -> None:
    """Each record's scratch files are gone when it is done with, however it ended: they may be large."""
    local_run.step(1, TEN)
    put_object(local_run.place, "tr_3.json.zst", b"damaged")
    scratch = tmp_path / "out" / "train" / ".pull"
    parts: list[int] = []
    config = MirrorConfig(workers=1)
    watch = lambda _summary: parts.append(len(list(scratch.glob("*.part"))))  # noqa: E731 - one expression
    pull(local_run.place.url, tmp_path / "out", config=config, progress=watch)
    assert set(parts) == {0}


def test_large_files_come_chunk_by_chunk(local_run: SampleRun, tmp_path: Path) -> None:
    """In their order, to the last byte."""
    rng = random.Random(4)  # noqa: S311 - sample data
    local_run.records.mkdir()
    (local_run.records / "tr_a.experts.zst").write_bytes(rng.randbytes((9 << 20) + 7))
    local_run.step(1, ["tr_a"])
    assert pulled(local_run, tmp_path / "out").is_complete
    assert tree(tmp_path / "out" / "train") == local_run.pulled()


def test_a_damaged_copy_leaves_what_was_here(local_run: SampleRun, tmp_path: Path) -> None:
    """A record that was pulled and is then written again and damaged in the mirror stays as it was pulled."""
    local_run.step(1, ["tr_a"])
    pulled(local_run, tmp_path / "out")
    before = tree(tmp_path / "out")
    local_run.step(2, ["tr_a"], seed=1)
    put_object(local_run.place, "tr_a.json.zst", b"damaged")
    assert not_pulled(pulled(local_run, tmp_path / "out", selection=Selection(steps=[1]))) == {"tr_a": Why.DAMAGED}
    assert tree(tmp_path / "out") == before


def test_files_without_a_receipt_are_not_trusted(local_run: SampleRun, tmp_path: Path) -> None:
    """Nothing says what they should be: the record is named, and does not come."""
    local_run.step(1, ["tr_a"])
    row = local_run.row("tr_b", local_run.promised("tr_b"))
    local_run.index(StepIndex(run="run", phase="train", step=2, rows=(row,)))
    put_object(local_run.place, "tr_b.json.zst", b"who knows")
    summary = pulled(local_run, tmp_path / "out")
    assert not_pulled(summary) == {"tr_b": Why.MISSING}
    assert "10.0.0.5:/data/tr_b.json.zst" in summary.not_pulled[0].detail
    assert not (tmp_path / "out" / "train" / "tr_b.json.zst").exists()


def test_records_that_are_on_their_node_only_are_listed(local_run: SampleRun, tmp_path: Path) -> None:
    """As scp takes them; without them the pull is not complete."""
    local_run.step(1, ["tr_a"])
    location = RecordLocation(host="2001:db8::7", path="/data/tr_c.json.zst")
    rows = (
        local_run.row("tr_b", RecordLocation(path="/data/tr_b.json.zst")),
        local_run.row("tr_c", location),
        local_run.row("tr_d", None),
    )
    local_run.index(StepIndex(run="run", phase="train", step=2, rows=rows))
    summary = pulled(local_run, tmp_path / "out")
    assert [record.where for record in summary.local_only] == [
        "/data/tr_b.json.zst",
        "[2001:db8::7]:/data/tr_c.json.zst",
    ]
    assert (summary.not_pulled, summary.is_complete) == ([], False)
    assert (summary.records, summary.copied_records) == (3, 1)


def test_a_record_that_was_copied_after_its_step_was_indexed_comes(local_run: SampleRun, tmp_path: Path) -> None:
    """The receipt decides, not what was known at the step's end."""
    local_run.step(1, ["tr_a"], mirrored=False)
    with mirror_to(local_run.place) as mirror:
        mirror.submit(local_run.records, "tr_a")
    summary = pulled(local_run, tmp_path / "out")
    assert (summary.copied_records, summary.local_only) == (1, [])
    assert tree(tmp_path / "out" / "train") == local_run.pulled()


def test_excluded_kinds_are_absent_on_purpose(local_run: SampleRun, tmp_path: Path) -> None:
    """What the mirror leaves out is no lack; it is said which kinds these are, if they were wanted."""
    local_run.step(1, ["tr_a"], profile="tokens", exclude=("sampling_mask",))
    summary = pulled(local_run, tmp_path / "out")
    assert (summary.is_complete, summary.left_out) == (True, {"sampling_mask"})
    assert sorted(tree(tmp_path / "out" / "train")) == ["index/step-1.json", "tr_a.json.zst", "tr_a.tokens.zst"]
    assert pulled(local_run, tmp_path / "other", selection=Selection(kinds=["tokens"])).left_out == set()


def test_a_sidecar_that_the_step_lists_and_no_receipt_does_is_missed(local_run: SampleRun, tmp_path: Path) -> None:
    """Such a record is not whole, unless that kind is not wanted."""
    index = local_run.step(1, ["tr_a"])
    location = msgspec.structs.replace(
        local_run.promised("tr_a"), files=("tr_a.tokens.zst", "tr_a.novel.zst", "tr_a.json.zst")
    )
    local_run.index(msgspec.structs.replace(index, rows=(local_run.row("tr_a", location),)))
    summary = pulled(local_run, tmp_path / "out")
    assert not_pulled(summary) == {"tr_a": Why.MISSING}
    assert "tr_a.novel.zst" in summary.not_pulled[0].detail
    assert pulled(local_run, tmp_path / "out", selection=Selection(kinds=["tokens"])).is_complete


def test_only_what_is_selected_comes(local_run: SampleRun, tmp_path: Path) -> None:
    """Phases, steps, ids, what trained, rewards and kinds, each alone and together."""
    local_run.step(1, ["tr_0", "tr_1"], profile="tokens")
    local_run.step(2, ["tr_2", "tr_3"], trained=False)
    local_run.step(2, ["tr_e"], phase="eval", trained=False)

    def names(selection: Selection) -> set[str]:
        out = tmp_path / uuid.uuid4().hex
        assert pulled(local_run, out, selection=selection).is_complete
        return {Path(name).name for name in tree(out) if name.endswith(".zst")}

    def documents(selection: Selection) -> set[str]:
        return {name.removesuffix(".json.zst") for name in names(selection) if name.endswith(".json.zst")}

    assert documents(Selection(phases=["eval"])) == {"tr_e"}
    assert documents(Selection(steps=[1])) == {"tr_0", "tr_1"}
    assert documents(Selection(ids=["tr_1", "tr_e"])) == {"tr_1", "tr_e"}
    assert documents(Selection(only_trained=True)) == {"tr_0", "tr_1"}
    assert documents(Selection(min_reward=1.0)) == {"tr_1", "tr_3"}
    assert documents(Selection(min_reward=1.0, steps=[2])) == {"tr_3"}
    assert names(Selection(ids=["tr_0"], kinds=["tokens"])) == {"tr_0.json.zst", "tr_0.tokens.zst"}
    assert names(Selection(ids=["tr_0"], kinds=[])) == {"tr_0.json.zst"}


def test_sidecars_may_be_fetched_later(local_run: SampleRun, tmp_path: Path) -> None:
    """A pull of more kinds adds them, and leaves the document alone."""
    local_run.step(1, ["tr_a"], profile="tokens")
    pulled(local_run, tmp_path / "out", selection=Selection(kinds=[]))
    document = (tmp_path / "out" / "train" / "tr_a.json.zst").stat()
    summary = pulled(local_run, tmp_path / "out")
    assert (summary.copied_records, summary.copied_files) == (1, 2)
    assert (tmp_path / "out" / "train" / "tr_a.json.zst").stat().st_mtime_ns == document.st_mtime_ns
    assert tree(tmp_path / "out" / "train") == local_run.pulled()


def test_a_record_that_was_written_again_comes_again(local_run: SampleRun, tmp_path: Path) -> None:
    """The newer generation takes the former's place; sidecars of the former that are not wanted now are gone."""
    local_run.step(1, ["tr_a"], profile="tokens")
    pulled(local_run, tmp_path / "out")
    local_run.step(1, ["tr_a"], profile="tokens", seed=1)
    assert pulled(local_run, tmp_path / "out", selection=Selection(kinds=["tokens"])).copied_files == 2
    names = {"tr_a.tokens.zst", "tr_a.json.zst", "index/step-1.json"}
    assert tree(tmp_path / "out" / "train") == {name: local_run.pulled()[name] for name in names}


def test_a_record_that_is_written_again_during_the_pull_comes(local_run: SampleRun, tmp_path: Path) -> None:
    """Its receipt is read again in the end, and the newer bytes come: late, not damaged. So does what landed late."""
    local_run.step(1, TEN)
    index = local_run.step(2, ["tr_x"], mirrored=False)
    assert index.rows[0].record is not None
    promised = msgspec.structs.replace(index.rows[0].record, mirror=f"{local_run.place.url}/tr_x.json.zst")
    local_run.index(msgspec.structs.replace(index, rows=(local_run.row("tr_x", promised),)))
    rng = random.Random(3)  # noqa: S311 - sample data

    def meanwhile(_summary: PullSummary) -> None:
        if not rewritten:
            rewritten.append(write_record(local_run.records, "tr_9", profile="tiny", rng=rng))
            with mirror_to(local_run.place) as mirror:
                mirror.submit(local_run.records, "tr_9")
                mirror.submit(local_run.records, "tr_x")

    rewritten: list[list[str]] = []
    config = MirrorConfig(workers=1)
    summary = pull(local_run.place.url, tmp_path / "out", config=config, progress=meanwhile)
    assert summary.not_pulled == []
    assert tree(tmp_path / "out" / "train") == local_run.pulled()


def test_a_record_of_two_steps_counts_once(local_run: SampleRun, tmp_path: Path) -> None:
    """It is one record, whoever lists it; in another phase it is another."""
    index = local_run.step(1, ["tr_a"])
    local_run.index(msgspec.structs.replace(index, step=2))
    local_run.index(msgspec.structs.replace(index, phase="eval", step=2))
    summary = pulled(local_run, tmp_path / "out")
    assert (summary.steps, summary.records, summary.copied_records) == (3, 2, 2)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b'{"format_version": 2}', b'{"format_version":1,"run":"r","phase":"train","step":5,"rows":[]}'],
    ids=["empty", "torn", "unknown version", "another step"],
)
def test_a_bad_index_is_named_and_the_other_steps_come(local_run: SampleRun, tmp_path: Path, data: bytes) -> None:
    """It hides nothing but its own records."""
    local_run.step(1, ["tr_a"])
    local_run.step(3, ["tr_c"])
    put_object(local_run.place, "index/train/step-2.json", data)
    summary = pulled(local_run, tmp_path / "out")
    assert [(bad.known.phase, bad.known.step) for bad in summary.bad_steps] == [("train", 2)]
    assert tree(tmp_path / "out" / "train") == local_run.pulled()
    assert (summary.copied_records, summary.is_complete) == (2, False)


def test_what_is_no_step_index_is_passed_over(local_run: SampleRun, tmp_path: Path) -> None:
    """Other names below ``index/`` are nobody's business."""
    local_run.step(1, ["tr_a"])
    for key in (
        "index/train/step-01.json",
        "index/train/step-1.json.bak",
        "index/test/step-1.json",
        "index/step-1.json",
    ):
        put_object(local_run.place, key, b"?")
    assert pulled(local_run, tmp_path / "out").is_complete


def test_a_mirror_without_an_index_is_an_error(local_run: SampleRun, tmp_path: Path) -> None:
    """An empty result would look like success."""
    with pytest.raises(SourceError, match="no step index"):
        pulled(local_run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_steps_that_are_not_there_are_an_error(local_run: SampleRun, tmp_path: Path) -> None:
    """A step that was misspelt must not look like one that was pulled; the sentence says which there are."""
    local_run.step(1, ["tr_0"])
    with pytest.raises(SourceError, match="has steps 1 to"):
        pulled(local_run, tmp_path / "out", selection=Selection(steps=[99]))
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_the_same_and_writes_nothing(local_run: SampleRun, tmp_path: Path) -> None:
    """Before, the whole run would come; afterwards, nothing would."""
    local_run.step(1, TEN)
    wanted = pulled(local_run, tmp_path / "out", dry_run=True)
    assert not (tmp_path / "out").exists()
    done = pulled(local_run, tmp_path / "out")
    before = times(tmp_path / "out")
    again = pulled(local_run, tmp_path / "out", dry_run=True)
    assert dataclasses.replace(wanted, is_dry_run=False) == done
    assert (again.copied_records, again.unchanged_records) == (0, 10)
    assert times(tmp_path / "out") == before


def test_progress_tells_what_is_known_so_far(local_run: SampleRun, tmp_path: Path) -> None:
    """After each record, with growing counts."""
    local_run.step(1, TEN)
    seen: list[int] = []
    pulled(local_run, tmp_path / "out", progress=lambda summary: seen.append(summary.copied_records))
    assert sorted(set(seen) - {0}) == list(range(1, 11))


def test_files_larger_than_what_may_be_in_flight_come_one_by_one(local_run: SampleRun, tmp_path: Path) -> None:
    """The bound on memory delays, and refuses nothing."""
    local_run.step(1, ["tr_a", "tr_b"], profile="tokens")
    config = MirrorConfig(max_bytes_in_flight=1)
    assert pull(local_run.place.url, tmp_path / "out", config=config).copied_records == 2


def test_odd_names_and_empty_files_come(run: SampleRun, tmp_path: Path) -> None:
    """Whatever a plain file name may hold, and a file of no bytes."""
    odd = ["a#b?c%20d + e", "ü[1]::*", "-rf", "x" * 230]
    run.step(1, odd)
    (run.records / f"{odd[1]}.tokens.zst").write_bytes(b"")
    with mirror_to(run.place) as mirror:
        mirror.submit(run.records, odd[1])
    assert pulled(run, tmp_path / "out").is_complete
    assert tree(tmp_path / "out" / "train") == run.pulled()


def test_another_pull_to_the_same_place_is_refused_while_one_is_at_work(local_run: SampleRun, tmp_path: Path) -> None:
    """It would take the other's scratch files for a dead one's."""
    local_run.step(1, ["tr_a"])
    (tmp_path / "out" / "train").mkdir(parents=True)
    folder = Folder.open(tmp_path / "out" / "train")
    scratch = Scratch(folder)
    with pytest.raises(OutDirectoryError, match="another pull"):
        pulled(local_run, tmp_path / "out")
    scratch.close()
    folder.close()
    assert pulled(local_run, tmp_path / "out").is_complete


def test_what_a_killed_pull_left_is_removed(local_run: SampleRun, tmp_path: Path) -> None:
    """Its scratch folder goes, whatever is in it."""
    local_run.step(1, ["tr_a"])
    scratch = tmp_path / "out" / "train" / ".pull"
    scratch.mkdir(parents=True)
    for name in ("lock", "0.part", "17.part"):
        (scratch / name).write_bytes(b"half")
    pulled(local_run, tmp_path / "out")
    assert tree(tmp_path / "out" / "train") == local_run.pulled()
    assert not scratch.exists()


def test_a_capture_servers_own_directory_is_not_pulled_into(local_run: SampleRun, tmp_path: Path) -> None:
    """Its records may be newer than the mirror's."""
    local_run.step(1, ["tr_a"])
    shutil.copytree(local_run.records, tmp_path / "out" / "train")
    with pytest.raises(OutDirectoryError, match="capture server"):
        pulled(local_run, tmp_path / "out")


def test_a_directory_in_a_files_place_is_named(local_run: SampleRun, tmp_path: Path) -> None:
    """That record does not come, others do."""
    local_run.step(1, ["tr_a", "tr_b"])
    (tmp_path / "out" / "train" / "tr_a.json.zst").mkdir(parents=True)
    summary = pulled(local_run, tmp_path / "out")
    assert not_pulled(summary) == {"tr_a": Why.UNWRITABLE}
    assert "tr_b.json.zst" in tree(tmp_path / "out" / "train")
    assert not (tmp_path / "out" / "train" / ".pull").exists()


def test_out_that_is_a_file_is_refused(local_run: SampleRun, tmp_path: Path) -> None:
    """One sentence says so, before the source is asked for anything."""
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(OutDirectoryError, match="not a directory"):
        pulled(local_run, tmp_path / "out")


def test_out_that_is_named_by_nothing_is_refused(local_run: SampleRun) -> None:
    """A variable that was never set does not fill the present directory."""
    with pytest.raises(OutDirectoryError, match="name one"):
        pull(local_run.place.url, "")


def test_newer_receipts_win_whatever_segment_has_them(local_run: SampleRun, tmp_path: Path) -> None:
    """A receipt of long ago, in a segment that sorts last, changes nothing."""
    local_run.step(1, ["tr_a"])
    receipt = local_run.receipts()["tr_a"]
    old = dataclasses.replace(
        receipt, at=1.0, files=tuple(dataclasses.replace(file, xxh3_128="0" * 32) for file in receipt.files)
    )
    put_object(local_run.place, "_receipts/zzz/00000000.jsonl", encode_line(old))
    assert pulled(local_run, tmp_path / "out").is_complete


def test_unknown_fields_of_an_index_are_kept(local_run: SampleRun, tmp_path: Path) -> None:
    """The pulled index is the very file."""
    index = local_run.step(1, ["tr_a"])
    data = json.dumps({**msgspec.to_builtins(index), "novel": 1}).encode()
    put_object(local_run.place, "index/train/step-1.json", data)
    pulled(local_run, tmp_path / "out")
    assert (tmp_path / "out" / "train" / "index" / "step-1.json").read_bytes() == data
