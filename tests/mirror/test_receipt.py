"""Receipts survive their way through a file, a crash in the middle of it, and whoever else may write there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import ReceiptError
from mirror.receipts.receipt import (
    LATEST_S,
    MAX_FILES,
    MAX_LINE_BYTES,
    FileReceipt,
    Receipt,
    decode_line,
    decode_lines,
    encode_line,
    following,
    glance_at,
    newest,
)
from tests.mirror.local_records import receipts

HASH = "0123456789abcdef" * 2


def plain(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    """Return a good receipt as JSON, with some fields changed."""
    good: dict[str, Any] = {
        "v": 1,
        "id": "tr_a",
        "at": 5.5,
        "writer": "w-1",
        "host": "10.0.0.5",
        "path": "/data/tr_a.json.zst",
        "files": [
            {"name": "tr_a.tokens.zst", "size": 3, "xxh3_128": HASH, "etag": "e1", "version_id": "7", "md5": None},
            {"name": "tr_a.json.zst", "size": 2, "xxh3_128": HASH, "etag": "e2", "version_id": None, "md5": "ab" * 16},
        ],
        "excluded": ["experts"],
    }
    return {key: value for key, value in {**good, **changes}.items() if value is not ...}


def line_of(**changes: Any) -> bytes:  # noqa: ANN401 - JSON values
    return json.dumps(plain(**changes)).encode()


def file_of(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    return {"name": "tr_a.json.zst", "size": 2, "xxh3_128": HASH, **changes}


@given(receipts())
def test_a_receipt_is_read_back_as_it_was_written(receipt: Receipt) -> None:
    """Any receipt survives its line, which is one line."""
    line = encode_line(receipt)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_line(line) == receipt
    assert decode_line(line.rstrip(b"\n")) == receipt


@given(receipts())
def test_a_glance_sees_what_says_which_document_is_covered(receipt: Receipt) -> None:
    """It is a part of what the whole receipt says, whatever that is."""
    glance = glance_at(encode_line(receipt))
    assert (glance.id, glance.at, glance.excluded) == (receipt.id, receipt.at, receipt.excluded)
    seen = [(file.name, file.size, file.ctime_ns, file.inode) for file in glance.files]
    assert seen == [(file.name, file.size, file.ctime_ns, file.inode) for file in receipt.files]


def test_a_glance_refuses_another_version() -> None:
    """What a later release writes may mean something else."""
    with pytest.raises(ReceiptError, match="upgrade"):
        glance_at(line_of(v=2))


@given(st.lists(receipts(), max_size=5), st.data())
def test_a_file_that_is_cut_gives_every_whole_line_and_nothing_else(
    written: list[Receipt], data: st.DataObject
) -> None:
    """Wherever a crash cuts a file, the receipts of whole lines come back; a torn one is an error, not a receipt."""
    text = b"".join(map(encode_line, written))
    kept = text[: data.draw(st.integers(0, len(text)))]
    whole = kept.count(b"\n")
    found = list(decode_lines(kept))
    torn = kept.rpartition(b"\n")[2]
    if written[whole:] and torn == encode_line(written[whole]).rstrip(b"\n"):  # only its line end is missing
        whole, torn = whole + 1, b""
    assert found[:whole] == written[:whole]
    assert [type(item) for item in found[whole:]] == ([ReceiptError] if torn else [])


@given(st.lists(receipts(), max_size=4), st.binary(max_size=60).filter(lambda noise: b"\n" not in noise), st.data())
def test_a_bad_line_costs_only_itself(written: list[Receipt], noise: bytes, data: st.DataObject) -> None:
    """Noise between lines is an error where it stands; the lines around it are read."""
    at = data.draw(st.integers(0, len(written)))
    lines = [encode_line(receipt) for receipt in written]
    found = list(decode_lines(b"".join([*lines[:at], noise + b"\n", *lines[at:]])))
    assert [item for item in found if isinstance(item, Receipt)] == written
    assert sum(isinstance(item, ReceiptError) for item in found) == bool(noise)


@given(st.binary(max_size=300))
def test_bytes_are_a_receipt_or_an_error(noise: bytes) -> None:
    """Nothing that a bucket may hold raises anything else."""
    for item in decode_lines(noise):
        assert isinstance(item, ReceiptError)


def test_the_line_has_the_fields_of_the_format() -> None:
    """Other software reads these names; change times and inodes come in addition."""
    receipt = Receipt(
        id="tr_a",
        at=5.5,
        writer="w-1",
        host="10.0.0.5",
        path="/data/tr_a.json.zst",
        files=(FileReceipt(name="tr_a.json.zst", size=2, xxh3_128=HASH, etag="e", ctime_ns=9, inode=8),),
        excluded=("experts",),
    )
    assert json.loads(encode_line(receipt)) == {
        "v": 1,
        "id": "tr_a",
        "at": 5.5,
        "writer": "w-1",
        "host": "10.0.0.5",
        "path": "/data/tr_a.json.zst",
        "files": [
            {
                "name": "tr_a.json.zst",
                "size": 2,
                "xxh3_128": HASH,
                "etag": "e",
                "version_id": None,
                "md5": None,
                "ctime_ns": 9,
                "inode": 8,
            }
        ],
        "excluded": ["experts"],
    }


def test_a_line_of_another_writer_is_read() -> None:
    """The format's own fields suffice; fields that this release does not know are ignored."""
    receipt = decode_line(line_of(colour="green"))
    assert (receipt.id, receipt.at, receipt.excluded) == ("tr_a", 5.5, ("experts",))
    document = receipt.file("tr_a.json.zst")
    assert document is not None
    assert (document.etag, document.md5, document.ctime_ns) == ("e2", "ab" * 16, None)
    assert receipt.file("tr_a.experts.zst") is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"v": 2}, "version 2: .*upgrade"),
        ({"v": "1"}, "not a receipt"),
        ({"id": "tr_b"}, "not a file of that record"),
        ({"id": 5}, "not a receipt"),
        ({"at": "now"}, "not a receipt"),
        ({"writer": None}, "not a receipt"),
        ({"path": ...}, "not a receipt"),
        ({"files": []}, "0 files"),
        ({"files": None}, "not a receipt"),
        ({"files": [file_of()] * 2}, "each file once"),
        ({"files": [file_of(name="tr_a.tokens.zst")]}, "one document"),
        ({"files": [file_of(name=f"tr_a.k{number}.zst") for number in range(MAX_FILES + 1)]}, "files"),
        ({"files": [file_of(), file_of(name="../tr_a.tokens.zst")]}, "refused"),
        ({"files": [file_of(), file_of(name="/etc/passwd")]}, "refused"),
        ({"files": [file_of(), file_of(name="tr_a.to\nkens.zst")]}, "refused"),
        ({"files": [file_of(), file_of(name="tr_b.tokens.zst")]}, "not a file of that record"),
        ({"files": [file_of(), file_of(name="readme.txt")]}, "not a file of that record"),
        ({"files": [file_of(size=-1)]}, "size and hash"),
        ({"files": [file_of(size=1.5)]}, "not a receipt"),
        ({"files": [file_of(md5="not hex")]}, "no valid md5"),
        ({"files": [file_of(md5="")]}, "no valid md5"),
        ({"files": [file_of(size=10**30)]}, "not a receipt|size and hash"),
        ({"files": [file_of(xxh3_128="0" * 31)]}, "size and hash"),
        ({"files": [file_of(xxh3_128="0" * 31 + "G")]}, "size and hash"),
        ({"files": [file_of(xxh3_128=HASH.upper())]}, "size and hash"),
        ({"files": [file_of(xxh3_128=HASH + "\n")]}, "size and hash"),
        ({"excluded": "experts"}, "not a receipt"),
    ],
)
def test_a_receipt_claims_only_what_one_may_claim(changes: dict[str, Any], reason: str) -> None:
    """Other versions, foreign or unsafe names, impossible sizes and hashes are refused, in a printable line."""
    with pytest.raises(ReceiptError, match=reason) as caught:
        decode_line(line_of(**changes))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b'"receipt"',
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"files":' * 50_000,
        line_of()[:-1],
        line_of() * 2,
        line_of().replace(b"5.5", b"NaN"),
        line_of().replace(b"5.5", b"1e999"),
        line_of().replace(b"5.5", b"1e300"),
        line_of().replace(b"5.5", b"100000000001"),
    ],
)
def test_hostile_lines_are_refused(line: bytes) -> None:
    """Other JSON, no JSON, deep nesting, numbers that are none and times beyond any clock end in a ReceiptError."""
    with pytest.raises(ReceiptError):
        decode_line(line)
    with pytest.raises(ReceiptError):
        glance_at(line)


def test_an_endless_line_is_refused_before_it_is_parsed() -> None:
    """A line's length is bounded."""
    with pytest.raises(ReceiptError, match="longer than"):
        decode_line(line_of(path="x" * MAX_LINE_BYTES))


@given(st.lists(receipts(), max_size=6), st.randoms(use_true_random=False))
def test_the_newest_receipt_of_an_id_wins_whatever_the_order(written: list[Receipt], random: Any) -> None:  # noqa: ANN401 - Hypothesis's own
    """Segments are read in any order: one receipt an id comes out, and none is newer."""
    shuffled = list(written)
    random.shuffle(shuffled)
    found = newest(shuffled)
    assert {record_id: receipt.at for record_id, receipt in found.items()} == {
        receipt.id: max(other.at for other in written if other.id == receipt.id) for receipt in written
    }


def test_of_two_receipts_of_one_moment_the_later_in_order_wins() -> None:
    """A writer's own order decides where the clock does not."""
    first, second = decode_line(line_of(host="first")), decode_line(line_of(host="second"))
    assert newest([first, second]) == {"tr_a": second}


@given(receipts(), st.floats(max_value=LATEST_S, allow_infinity=False))
def test_a_receipt_that_follows_another_is_the_newer_one(receipt: Receipt, before: float) -> None:
    """Whatever clocks did in between, and whatever time the other claims, it can be written, read and wins."""
    previous = replace(receipt, at=before, writer="previous")
    written = decode_line(encode_line(following(previous, receipt)))
    assert written.at > previous.at or previous.at == LATEST_S
    assert newest([previous, written]) == {receipt.id: written}


def test_a_receipt_goes_on_to_prove_what_is_left_out_by_now() -> None:
    """Files of the same document that an earlier receipt names stay named; those of another document do not."""
    document, experts = FileReceipt(name="tr_a.json.zst", size=2, xxh3_128=HASH), "tr_a.experts.zst"
    later = replace(decode_line(line_of()), files=(document,), excluded=("experts",))
    previous = replace(later, files=(FileReceipt(name=experts, size=9, xxh3_128="1" * 32), document), excluded=())
    assert [file.name for file in following(previous, later).files] == [experts, "tr_a.json.zst"]
    rewritten = replace(later, files=(replace(document, xxh3_128="2" * 32),))
    assert following(previous, rewritten).files == rewritten.files
    assert following(None, later) == later
