"""How ``references/entry.py`` reads what a generator hands over."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from references.entry import Entry, read_entry, read_location
from references.run_index import RecordLocation
from tests.references.index_builders import TrajectoryID, finished


def test_a_finished_trajectory_is_read_whole() -> None:
    """Everything a finished trajectory says is in the entry."""
    source = TrajectoryID("task-1", 2)
    entry = read_entry(trajectory_id=source, attempt=1, trajectory=finished("tr_1", mirror="s3://b/run"), order=5)
    assert entry == Entry(
        id="tr_1",
        instance_id="task-1",
        repetition_id=2,
        attempt=1,
        status="finished",
        annotations={"reward": 1.0},
        record=RecordLocation(
            host="10.0.0.5",
            path="/data/record/tr_1.json.zst",
            mirror="s3://b/run/tr_1.json.zst",
            files=("tr_1.tokens.zst", "tr_1.json.zst"),
        ),
    )
    assert (entry.order, entry.source, entry.key) == (5, source, ("task-1", 2))


@pytest.mark.parametrize(
    "trajectory",
    [
        None,
        SimpleNamespace(),
        SimpleNamespace(id=None, result=None, finishing=None),
        {"result": {"record": {}}},
        SimpleNamespace(result=SimpleNamespace(status=None, record=None), finishing="not a mapping"),
        SimpleNamespace(result=SimpleNamespace(record=SimpleNamespace(files=["tr.json.zst"]))),
    ],
)
@pytest.mark.parametrize("trajectory_id", [None, SimpleNamespace(), {"instance_id": None}])
def test_whatever_is_missing_is_none(trajectory: object, trajectory_id: object) -> None:
    """A trajectory without id, result, record or annotations is still an attempt."""
    entry = read_entry(trajectory_id=trajectory_id, attempt=0, trajectory=trajectory, order=0)
    assert entry == Entry(id="", instance_id="", repetition_id=0, attempt=0)


def test_older_servers_list_no_files_and_no_host() -> None:
    """A record without host and files is known by its document alone; unknown fields are ignored."""
    record = read_location({"path": "/data/tr_1.json.zst", "mirror": None, "etag": "x"})
    assert record == RecordLocation(path="/data/tr_1.json.zst")
    assert record.host is None
    assert record.files is None
    assert record.file_names == ("tr_1.json.zst",)


@pytest.mark.parametrize(
    ("mirror", "public"),
    [
        ("s3://key:secret@bucket/run/tr_1.json.zst", "s3://bucket/run/tr_1.json.zst"),
        ("s3://key:sec/r+et/@bucket/run/tr_1.json.zst", "s3://bucket/run/tr_1.json.zst"),
        ("s3://key@bucket/run/tr_1.json.zst", "s3://bucket/run/tr_1.json.zst"),
        ("abfs://box@account.example/run/tr_1.json.zst", "abfs://box@account.example/run/tr_1.json.zst"),
        ("abfs://box:secret@account.example/run/tr_1.json.zst", "abfs://account.example/run/tr_1.json.zst"),
        ("cache::s3://key:secret@bucket/run/tr_1.json.zst", "cache::s3://bucket/run/tr_1.json.zst"),
        ("s3:/key:secret@bucket/tr_1.json.zst", "s3:/bucket/tr_1.json.zst"),
        ("https://store/run/tr_1.json.zst?sig=secret&se=1", "https://store/run/tr_1.json.zst"),
        ("s3://bucket/run/a:b@c?d=e.json.zst", "s3://bucket/run/a:b@c?d=e.json.zst"),
        ("s3://bucket/a:/run@1/tr_1.json.zst", "s3://bucket/a:/run@1/tr_1.json.zst"),
        ("sftp://host:22/run@1/tr_1.json.zst", "sftp://host:22/run@1/tr_1.json.zst"),
        ("file:///data/run@1/tr_1.json.zst", "file:///data/run@1/tr_1.json.zst"),
        ("/data/run@1/tr_1.json.zst", "/data/run@1/tr_1.json.zst"),
    ],
)
def test_the_secrets_of_a_mirror_are_not_logged(mirror: str, public: str) -> None:
    """Credentials in a mirror's URL reach no step index, and names that look like some stay as they are."""
    record = read_location({"mirror": mirror})
    assert record is not None
    assert record.mirror == public


def test_a_name_that_is_no_plain_file_name_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """A server that names a path gets no file outside of its record into the index."""
    with caplog.at_level(logging.WARNING):
        record = read_location({"path": "/data/tr_1.json.zst", "files": ["../../etc/passwd", "tr_1.json.zst"]})
    assert record is not None
    assert record.files == ("tr_1.json.zst",)
    assert "../../etc/passwd" in caplog.text
