"""A pull from a bucket that somebody else writes to: nothing leaves the directory, nothing unbounded is read."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mirror import MirrorConfig
from mirror.receipts.receipt import encode_line
from references.codec import MAX_BYTES
from references.errors import OutDirectoryError
from references.pull import pull
from references.pull_plan import PullSummary, Why
from references.run_index import RecordLocation
from tests.mirror.local_records import tree
from tests.mirror.places import DirectoryPlace
from tests.references.whole_runs import SampleRun, put_object

EVIL_NAMES = [
    "../evil.json.zst",
    "/tmp/evil.json.zst",  # noqa: S108 - never written
    "..",
    "a/../../evil.json.zst",
    "..\\evil.json.zst",
    ".evil.json.zst",
    "evil\x00.json.zst",
    "evil\n.json.zst",
    "",
    "e" * 300 + ".json.zst",
]


@pytest.fixture
def run(tmp_path: Path) -> SampleRun:
    """A run of one step in a directory."""
    sample = SampleRun(DirectoryPlace(tmp_path / "mirror"), tmp_path / "records")
    sample.step(1, ["tr_a"])
    return sample


def pulled(run: SampleRun, out: Path, **options: Any) -> PullSummary:  # noqa: ANN401 - options of a pull
    return pull(run.place.url, out, **options)


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_a_receipt_that_names_another_place_is_none(run: SampleRun, tmp_path: Path, name: str) -> None:
    """It is passed over, its record is missing, and nothing is written but what is right."""
    receipt = run.receipts()["tr_a"]
    document = dataclasses.replace(receipt.files[-1], name=name)
    evil = dataclasses.replace(receipt, id=name.removesuffix(".json.zst"), files=(document,))
    put_object(run.place, "_receipts/evil/00000000.jsonl", encode_line(evil))
    index = run.steps["train", 1]
    row = run.row(evil.id, run.promised("tr_b"))
    run.index(msgspec.structs.replace(index, rows=(*index.rows, row)))
    summary = pulled(run, tmp_path / "out")
    assert [record.why for record in summary.not_pulled] == [Why.MISSING]
    assert tree(tmp_path / "out") == {f"train/{name}": data for name, data in run.pulled(ids=["tr_a"]).items()}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mirror", "out", "records"]


def test_a_receipt_with_the_files_of_another_record_is_none(run: SampleRun, tmp_path: Path) -> None:
    """It could bring a stranger's document under a known id."""
    receipt = run.receipts()["tr_a"]
    put_object(run.place, "_receipts/evil/00000000.jsonl", encode_line(dataclasses.replace(receipt, id="tr_b")))
    index = run.steps["train", 1]
    run.index(msgspec.structs.replace(index, rows=(*index.rows, run.row("tr_b", run.promised("tr_b")))))
    assert [record.why for record in pulled(run, tmp_path / "out").not_pulled] == [Why.MISSING]


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_an_index_that_lists_other_than_plain_names_is_refused(run: SampleRun, tmp_path: Path, name: str) -> None:
    """The step is bad as a whole: nobody honest writes such names."""
    document = json.loads(msgspec.json.encode(run.steps["train", 1]))
    document["rows"][0]["record"]["files"] = [name]
    put_object(run.place, "index/train/step-1.json", json.dumps(document).encode())
    summary = pulled(run, tmp_path / "out")
    assert len(summary.bad_steps) == 1
    assert tree(tmp_path / "out") == {}


@pytest.mark.parametrize("link", ["train", "train/index", "train/.pull"])
def test_a_link_in_place_of_a_directory_is_not_followed(run: SampleRun, tmp_path: Path, link: str) -> None:
    """Somebody else's directory behind it stays as it is."""
    target = tmp_path / "precious"
    target.mkdir()
    (target / "0.part").write_bytes(b"mine")
    (tmp_path / "out" / link).parent.mkdir(parents=True)
    (tmp_path / "out" / link).symlink_to(target)
    with pytest.raises(OutDirectoryError, match="links are not followed"):
        pulled(run, tmp_path / "out")
    assert tree(target) == {"0.part": b"mine"}


@pytest.mark.parametrize("name", ["tr_a.json.zst", "tr_a.tokens.zst", "index/step-1.json"])
def test_a_link_in_place_of_a_file_gives_way(run: SampleRun, tmp_path: Path, name: str) -> None:
    """The file comes in the link's place; what the link led to stays as it is, even with the right bytes."""
    outside = tmp_path / "outside"
    outside.write_bytes(run.pulled()[name])
    (tmp_path / "out" / "train" / name).parent.mkdir(parents=True)
    (tmp_path / "out" / "train" / name).symlink_to(outside)
    assert pulled(run, tmp_path / "out").is_complete
    assert not (tmp_path / "out" / "train" / name).is_symlink()
    assert tree(tmp_path / "out" / "train") == run.pulled()


def test_a_pipe_in_place_of_a_file_gives_way(run: SampleRun, tmp_path: Path) -> None:
    """It is not waited for."""
    (tmp_path / "out" / "train").mkdir(parents=True)
    os.mkfifo(tmp_path / "out" / "train" / "tr_a.json.zst")
    assert pulled(run, tmp_path / "out").is_complete
    assert tree(tmp_path / "out" / "train") == run.pulled()


def test_out_itself_may_be_a_link(run: SampleRun, tmp_path: Path) -> None:
    """The user gave it."""
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    assert pulled(run, tmp_path / "out").is_complete
    assert tree(tmp_path / "real" / "train") == run.pulled()


def test_an_endless_object_is_read_no_further_than_its_receipt_says(run: SampleRun, tmp_path: Path) -> None:
    """A file of 10 GiB under a receipt of a few bytes takes neither memory nor disk."""
    with (tmp_path / "mirror" / "tr_a.json.zst").open("r+b") as file:
        file.truncate(10 << 30)  # sparse
    summary = pulled(run, tmp_path / "out")
    assert [record.why for record in summary.not_pulled] == [Why.DAMAGED]
    assert "larger than" in summary.not_pulled[0].detail


def test_a_receipt_may_not_lie_about_sizes(run: SampleRun, tmp_path: Path) -> None:
    """A size that is not the object's is damage, whatever it is."""
    receipt = run.receipts()["tr_a"]
    files = tuple(dataclasses.replace(file, size=1 << 60) for file in receipt.files)
    lie = dataclasses.replace(receipt, at=receipt.at + 1, files=files)
    put_object(run.place, "_receipts/evil/00000000.jsonl", encode_line(lie))
    assert [record.why for record in pulled(run, tmp_path / "out").not_pulled] == [Why.DAMAGED]


def test_a_giant_index_is_not_read(run: SampleRun, tmp_path: Path) -> None:
    """Its size in the listing is enough to refuse it."""
    with (tmp_path / "mirror" / "index" / "train" / "step-1.json").open("r+b") as file:
        file.truncate(MAX_BYTES + 1)  # sparse
    summary = pulled(run, tmp_path / "out")
    assert [f"the index has {MAX_BYTES + 1} bytes" in bad.reason for bad in summary.bad_steps] == [True]


@pytest.mark.parametrize(
    "mirror",
    ["file:///etc/passwd", "/etc/passwd", "s3://somebody/else/tr_a.json.zst", "http://127.0.0.1:9/tr_a.json.zst", "??"],
)
def test_with_a_mirrors_url_the_rows_mirrors_are_not_followed(run: SampleRun, tmp_path: Path, mirror: str) -> None:
    """The user said where the records are."""
    index = run.steps["train", 1]
    run.index(msgspec.structs.replace(index, rows=(run.row("tr_a", RecordLocation(path="/x", mirror=mirror)),)))
    assert pulled(run, tmp_path / "out", config=MirrorConfig(attempts=1, timeout_s=5)).copied_records == 1
