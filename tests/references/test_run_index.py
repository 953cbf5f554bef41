"""What ``references/run_index.py`` says of one record."""

from __future__ import annotations

import pytest

from references.run_index import RecordLocation


@pytest.mark.parametrize(
    ("record", "names"),
    [
        (RecordLocation(files=("tr.tokens.zst", "tr.json.zst"), mirror="s3://b/tr.json.zst"), 2),
        (RecordLocation(mirror="s3://b/run/tr.json.zst", path="/data/other.json.zst"), 1),
        (RecordLocation(path="/data/tr.json.zst"), 1),
        (RecordLocation(path="/data/"), 0),
        (RecordLocation(mirror="s3://b/run/.."), 0),
        (RecordLocation(files=(), path="/data/tr.json.zst"), 0),
        (RecordLocation(), 0),
    ],
)
def test_a_record_has_the_files_that_are_listed_else_its_document(record: RecordLocation, names: int) -> None:
    """Without a list the document's name is taken from the mirror, else from the path, if it is a plain one."""
    assert len(record.file_names) == names
    assert all("tr." in name for name in record.file_names)
