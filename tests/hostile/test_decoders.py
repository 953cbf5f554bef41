"""Whatever bytes stand where ours should, a decoder gives what it promises, or an error of ours that says why not."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import ReceiptError
from mirror.names import check_name, document_name
from mirror.receipts.ledger import DIRECTORY, reading
from mirror.receipts.receipt import LATEST_S, FileReceipt, Receipt, decode_line, encode_line
from mirror.receipts.segments import decode_segment
from references.codec import MAX_VALUES, decode
from references.errors import IndexFormatError, ReferencesError
from references.listed import listed_records
from references.run_index import Phase
from references.selection import Selection
from references.spool import Spool, StepKey
from tests.hostile.anything import BAD_JSON, BOUNDED, EVIL_NAMES, changed_json, names, only

RECEIPT = Receipt(
    id="tr_a",
    at=1.0,
    writer="w",
    host="10.0.0.5",
    path="/data/record/tr_a.json.zst",
    files=(
        FileReceipt(name="tr_a.tokens.zst", size=3, xxh3_128="0" * 32, etag="e", version_id="v", md5="1" * 32, inode=1),
        FileReceipt(name="tr_a.json.zst", size=3, xxh3_128="0" * 32, ctime_ns=1),
    ),
    excluded=("experts",),
)
INDEX: dict[str, Any] = {
    "format_version": 1,
    "run": "r",
    "phase": "train",
    "step": 1,
    "rows": [
        {
            "id": "tr_a",
            "instance_id": "i",
            "repetition_id": 0,
            "attempt": 0,
            "status": "finished",
            "annotations": {"reward": 1.0},
            "superseded": False,
            "trained": True,
            "record": {
                "host": "10.0.0.5",
                "path": "/data/record/tr_a.json.zst",
                "mirror": "s3://bucket/run-7/tr_a.json.zst",
                "files": ["tr_a.tokens.zst", "tr_a.json.zst"],
            },
        }
    ],
}
receipt_lines = changed_json(json.loads(encode_line(RECEIPT)))


@BOUNDED
@given(receipt_lines)
def test_a_line_is_a_receipt_of_plain_names_or_a_named_error(line: bytes) -> None:
    """A receipt that was believed speaks of one record's own files, in numbers that a file system has."""
    try:
        receipt = decode_line(line)
    except ReceiptError:
        return
    for file in receipt.files:
        assert check_name(file.name).startswith(receipt.id + ".")
        assert 0 <= file.size < 2**63
    assert decode_line(encode_line(receipt)) == receipt


@BOUNDED
@given(st.lists(receipt_lines, max_size=20))
def test_a_segment_of_anything_gives_the_receipts_in_it(lines: list[bytes]) -> None:
    """Lines that are none are skipped, whatever stands in them."""
    found = decode_segment("_receipts/evil/00000001.jsonl", b"\n".join([*lines, encode_line(RECEIPT)]))
    assert RECEIPT in found


@BOUNDED
@given(st.lists(receipt_lines, max_size=20), st.binary(max_size=40))
def test_a_journal_of_anything_gives_the_receipts_in_it(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], sent: bytes
) -> None:
    """So does a journal beside the records, whatever the note says of what was sent."""
    directory = tmp_path_factory.mktemp("records")
    folder = directory / DIRECTORY / "place"
    folder.mkdir(parents=True)
    ours = RECEIPT.__class__(**{name: getattr(RECEIPT, name) for name in RECEIPT.__slots__} | {"at": LATEST_S})
    (folder / "evil.jsonl").write_bytes(
        b"".join(line.replace(b"\n", b"") + b"\n" for line in lines) + encode_line(ours)
    )
    (folder / "evil.sent").write_bytes(sent)
    with reading(directory, "place") as ledger:
        ledger.load()
        ledger.load()
        assert ledger.count() >= 1
        assert ledger.get("tr_a") is not None


@BOUNDED
@given(changed_json(INDEX))
def test_a_step_index_is_read_or_refused_by_name(data: bytes) -> None:
    """What is read lists plain file names only; whatever the rows say can be asked for."""
    try:
        index = decode(data)
    except IndexFormatError:
        return
    for listed in listed_records(index, Selection()):
        for name in listed.location.file_names:
            assert check_name(name) == name
        assert isinstance(listed.where, str)
        assert listed.lacking(RECEIPT) in ([], ["tr_a.experts.zst"])


@pytest.mark.parametrize("data", BAD_JSON, ids=lambda data: repr(data[:12]))
def test_what_is_no_json_object_is_refused_by_every_decoder(data: bytes) -> None:
    """Bombs of brackets, numbers out of range and lone surrogates included."""
    for decoder, error in ((decode_line, ReceiptError), (decode, IndexFormatError)):
        with pytest.raises(error):
            decoder(data)


def test_duplicate_ids_and_names_are_one_record() -> None:
    """Of many receipts for one id the newest counts; a receipt that lists a file twice is none."""
    with pytest.raises(ReceiptError):
        decode_line(encode_line(RECEIPT).replace(b"tr_a.tokens.zst", b"tr_a.json.zst"))
    rows = [INDEX["rows"][0]] * 3
    assert len(decode(json.dumps({**INDEX, "rows": rows}).encode()).rows) == len(rows)


@pytest.mark.parametrize("value", [b"[]", b"0.5"])
def test_an_index_that_would_fill_the_memory_is_not_read(value: bytes) -> None:
    """Small values take many times their bytes once they are read: they are counted first."""
    bomb = json.dumps({**INDEX, "rows": [{**INDEX["rows"][0], "annotations": {"a": "@"}}]}).encode()
    bomb = bomb.replace(b'"@"', b"[" + b",".join([value] * MAX_VALUES) + b"]")
    tracemalloc.start()
    try:
        with pytest.raises(IndexFormatError):
            decode(bomb)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_an_endless_line_beside_the_records_is_not_held(tmp_path: Path) -> None:
    """A journal of a gigabyte without a line's end takes neither memory nor long."""
    folder = tmp_path / DIRECTORY / "place"
    folder.mkdir(parents=True)
    with (folder / "evil.jsonl").open("wb") as file:
        file.write(encode_line(RECEIPT))
        file.truncate(1 << 30)  # sparse
    for name in ("evil.sent", "url"):
        with (folder / name).open("wb") as file:
            file.truncate(1 << 30)
    began = time.process_time()
    tracemalloc.start()
    try:
        with reading(tmp_path, "place") as ledger:
            ledger.load()
            assert ledger.get("tr_a") == RECEIPT
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 10  # of CPU, where reading it all takes minutes


@BOUNDED
@given(names, st.sampled_from(["train", "eval"]), st.integers(0, 10**17))
def test_a_spool_keeps_to_its_directory(
    tmp_path_factory: pytest.TempPathFactory, run: str, phase: Phase, step: int
) -> None:
    """Whatever a run is called, its steps lie below the spool, and are found again; or the spool refuses them."""
    above = tmp_path_factory.mktemp("above")
    spool = Spool(above / "spool")
    key = StepKey(run, phase, step)
    failed = only(ReferencesError)(lambda: spool.put(key, b"{}"))
    assert {path.name for path in above.iterdir()} <= {"spool"}
    if failed is None:
        assert list(spool.steps()) == [key]
        assert spool.get(key) == b"{}"


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_an_evil_name_is_no_id(name: str) -> None:
    """A receipt for it is refused, unless it is plain enough for any file system."""
    line = encode_line(RECEIPT).replace(b"tr_a.", json.dumps(name).encode()[1:-1] + b".")
    line = line.replace(b'"id":"tr_a"', b'"id":' + json.dumps(name).encode())
    try:
        receipt = decode_line(line)
    except ReceiptError:
        return
    assert check_name(document_name(receipt.id)) == document_name(name)
