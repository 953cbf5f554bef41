"""A restarted server knows by its own disk what is in the mirror, whatever a crash left of the lines."""

from __future__ import annotations

import logging
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mirror.receipts.ledger import Ledger
from mirror.receipts.receipt import Receipt, decode_line, encode_line
from tests.mirror.local_records import receipt_of, replace_file, state_of, write_files

PLACE = "s3-bucket-run-0123456789ab"


def journal_of(records: Path, writer: str = "w") -> Path:
    return records / ".mirror" / PLACE / f"{writer}.jsonl"


def written(records: Path, *ids: str, writer: str = "w") -> list[Receipt]:
    """Have records and their receipts, as an earlier process left them."""
    ledger = Ledger(records, PLACE, writer)
    receipts = []
    for number, record_id in enumerate(ids):
        write_files(records, record_id)
        receipts.append(receipt_of(records, record_id, at=float(number), writer=writer))
        ledger.append(receipts[-1])
    ledger.close()
    return receipts


def reopened(records: Path, writer: str = "later") -> Ledger:
    ledger = Ledger(records, PLACE, writer)
    ledger.load()
    return ledger


def uncovered(ledger: Ledger, records: Path, *ids: str, exclude: tuple[str, ...] = ()) -> list[str]:
    covered = ledger.covered({i: state_of(records / f"{i}.json.zst") for i in ids}, exclude)
    return [i for i in ids if i not in covered]


@contextmanager
def disk_of(size_bytes: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: of what does not fit a part is written, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_writer_knows_when_it_is_alone(tmp_path: Path) -> None:
    """Not before it looked, nor while the folder's time stamp is too young to tell; not once there is another."""
    write_files(tmp_path, "tr_a")
    receipt = receipt_of(tmp_path, "tr_a", at=1.0, writer="one")
    ledger, other = Ledger(tmp_path, PLACE, "one"), Ledger(tmp_path, PLACE, "other")
    assert not ledger.is_alone()
    ledger.append(receipt)
    ledger.refresh()
    assert not ledger.is_alone()
    folder = journal_of(tmp_path).parent
    os.utime(folder, (1, 1))
    assert not ledger.is_alone()
    ledger.refresh()
    assert ledger.is_alone()
    ledger.append(receipt)
    assert ledger.is_alone()
    other.append(receipt)
    assert not ledger.is_alone()
    os.utime(folder, (2, 2))
    ledger.refresh()
    assert not ledger.is_alone()
    ledger.close()
    other.close()


def test_a_receipt_is_known_at_once_and_after_a_restart(tmp_path: Path) -> None:
    """What one process kept the next one reads, without asking the store."""
    (receipt,) = written(tmp_path, "tr_a")
    ledger = reopened(tmp_path)
    assert ledger.get("tr_a") == receipt
    assert ledger.get("tr_b") is None
    assert ledger.count() == 1
    assert uncovered(ledger, tmp_path, "tr_a") == []


def test_a_document_is_covered_only_as_it_was_receipted(tmp_path: Path) -> None:
    """Another document of the same name and size is not in the mirror yet, nor is one without a receipt."""
    written(tmp_path, "tr_a", "tr_b")
    write_files(tmp_path, "tr_c")
    replace_file(tmp_path / "tr_b.json.zst", b"{}")
    assert uncovered(reopened(tmp_path), tmp_path, "tr_a", "tr_b", "tr_c") == ["tr_b", "tr_c"]


def test_more_left_out_than_now_asked_for_is_not_covered(tmp_path: Path) -> None:
    """A kind that was excluded then and is not now has to be copied; the other way round nothing has."""
    write_files(tmp_path, "tr_a", experts=b"x")
    ledger = Ledger(tmp_path, PLACE, "w")
    ledger.append(receipt_of(tmp_path, "tr_a", excluded=("experts", "tokens")))
    assert uncovered(ledger, tmp_path, "tr_a", exclude=("tokens",)) == ["tr_a"]
    assert uncovered(ledger, tmp_path, "tr_a", exclude=("experts", "sampling_mask", "tokens")) == []


def test_many_documents_are_judged_in_one_go(tmp_path: Path) -> None:
    """The number of documents of one look is not bounded by what a statement takes."""
    state = state_of(Path(__file__))
    ledger = Ledger(tmp_path, PLACE, "w")
    write_files(tmp_path, "tr_7")
    ledger.append(receipt_of(tmp_path, "tr_7"))
    asked = {f"tr_{number}": state for number in range(3_000)} | {"tr_7": state_of(tmp_path / "tr_7.json.zst")}
    assert ledger.covered(asked, ()) == {"tr_7": 1}


def test_files_in_the_mirror_are_counted(tmp_path: Path) -> None:
    """The receipts say how many files each record has there."""
    write_files(tmp_path, "tr_a", tokens=b"1", experts=b"2")
    write_files(tmp_path, "tr_b")
    ledger = Ledger(tmp_path, PLACE, "w")
    ledger.append(receipt_of(tmp_path, "tr_a", "tokens", "experts"))
    ledger.append(receipt_of(tmp_path, "tr_b"))
    documents = {i: state_of(tmp_path / f"{i}.json.zst") for i in ("tr_a", "tr_b")}
    assert ledger.covered(documents, ()) == {"tr_a": 3, "tr_b": 1}


def test_the_newest_receipt_wins_whatever_the_order(tmp_path: Path) -> None:
    """Journals of several writers are read in any order."""
    write_files(tmp_path, "tr_a")
    for writer, at in (("a", 5.0), ("b", 9.0), ("c", 7.0)):
        ledger = Ledger(tmp_path, PLACE, writer)
        ledger.append(receipt_of(tmp_path, "tr_a", at=at, writer=writer))
        ledger.close()
    known = reopened(tmp_path).get("tr_a")
    assert known is not None
    assert known.writer == "b"


def test_what_is_withdrawn_counts_no_more(tmp_path: Path) -> None:
    """By whichever writer: it covers nothing, is not counted, and does not go to the mirror; a newer receipt counts."""
    receipt, _ = written(tmp_path, "tr_a", "tr_b", writer="other")
    ledger = Ledger(tmp_path, PLACE, "mine")
    ledger.refresh()
    withdrawal = replace(receipt, at=receipt.at + 1, writer="other", files=())
    other = Ledger(tmp_path, PLACE, "other")
    other.append(withdrawal)
    assert ledger.get("tr_a") == receipt
    for seen in (ledger, Ledger(tmp_path, PLACE, "next")):
        assert [decode_line(line).id for line, _ in seen.load()] == ["tr_b"]
        assert (seen.get("tr_a"), seen.last("tr_a"), seen.count()) == (None, withdrawal, 1)
        assert uncovered(seen, tmp_path, "tr_a", "tr_b") == ["tr_a"]
    other.append(replace(receipt, at=receipt.at + 2))
    ledger.refresh()
    assert uncovered(ledger, tmp_path, "tr_a", "tr_b") == []


def test_wherever_a_crash_tears_the_last_line_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every whole line counts, the torn one is skipped with a warning, and its record is copied again."""
    written(tmp_path, "tr_a", "tr_b")
    journal = journal_of(tmp_path)
    whole = journal.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(len(whole) + 1):
        journal.write_bytes(whole[:cut])
        caplog.clear()
        known = reopened(tmp_path)
        expected = [] if cut < first else ["tr_a"] if cut < len(whole) else ["tr_a", "tr_b"]
        assert [i for i in ("tr_a", "tr_b") if known.get(i)] == expected, f"cut at {cut}"
        assert ("torn line" in caplog.text) == (cut not in {0, first, len(whole)})
        known.close()


def test_hostile_lines_cost_only_themselves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Others can write beside the records: what is no receipt is skipped with a warning that names the file."""
    written(tmp_path, "tr_a", "tr_b")
    journal = journal_of(tmp_path)
    first, second = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"\xff\n" + first + first.replace(b"tr_a.json", b"../a.json") + second)
    assert reopened(tmp_path).count() == 2
    assert sum(str(journal) in record.getMessage() for record in caplog.records) == 2


def test_only_what_was_appended_is_read_again(tmp_path: Path) -> None:
    """Several servers share a directory: each learns what the others copied since it last looked."""
    written(tmp_path, "tr_a", writer="other")
    ledger = Ledger(tmp_path, PLACE, "mine")
    assert [decode_line(line).id for line, _ in ledger.load()] == ["tr_a"]
    assert ledger.load() == []
    other = Ledger(tmp_path, PLACE, "other")
    write_files(tmp_path, "tr_b")
    other.append(receipt_of(tmp_path, "tr_b", at=5.0))
    assert [decode_line(line).id for line, _ in ledger.load()] == ["tr_b"]
    assert uncovered(ledger, tmp_path, "tr_a", "tr_b") == []


def test_a_line_that_is_being_appended_is_read_when_it_is_whole(tmp_path: Path) -> None:
    """Half a line of a living writer is left for the next look, and lost to nobody."""
    written(tmp_path, "tr_a", "tr_b", writer="other")
    journal = journal_of(tmp_path, "other")
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-10])
    ledger = Ledger(tmp_path, PLACE, "mine")
    assert len(ledger.load()) == 1
    journal.write_bytes(whole)
    assert [decode_line(line).id for line, _ in ledger.load()] == ["tr_b"]


def test_one_directory_in_two_mirrors_keeps_two_books(tmp_path: Path) -> None:
    """What is in one mirror says nothing about another."""
    written(tmp_path, "tr_a")
    other = Ledger(tmp_path, "gs-elsewhere-ba9876543210", "w")
    assert other.load() == []
    assert uncovered(other, tmp_path, "tr_a") == ["tr_a"]


def test_lines_that_are_not_in_the_mirror_are_handed_on(tmp_path: Path) -> None:
    """A process that was killed before its last flush has its receipts brought over by the next one, once."""
    receipts = written(tmp_path, "tr_a", "tr_b", "tr_c", writer="killed")
    ledger = Ledger(tmp_path, PLACE, "next")
    unsent = ledger.load()
    assert [decode_line(line) for line, _ in unsent] == receipts
    assert [mark.journal for _, mark in unsent] == [journal_of(tmp_path, "killed")] * 3
    unsent[1][1].note_sent()  # the first two are in the mirror now, then this one is killed too
    again = Ledger(tmp_path, PLACE, "after that")
    rest = again.load()
    assert [decode_line(line) for line, _ in rest] == receipts[2:]
    rest[-1][1].note_sent()
    assert Ledger(tmp_path, PLACE, "in the end").load() == []
    assert uncovered(again, tmp_path, "tr_a", "tr_b", "tr_c") == []


def test_what_was_withdrawn_before_it_was_sent_is_not_handed_on(tmp_path: Path) -> None:
    """A writer that was killed while it replaced what it had receipted brings no false receipt into the mirror."""
    first, second = written(tmp_path, "tr_a", "tr_b", writer="killed")
    ledger = Ledger(tmp_path, PLACE, "killed")
    ledger.append(replace(first, at=5.0, files=()))
    ledger.close()
    handed_on = [decode_line(line) for line, _ in Ledger(tmp_path, PLACE, "next").load()]
    assert handed_on == [second]
    another = Ledger(tmp_path, PLACE, "another")  # whose withdrawal counts as much
    another.append(replace(second, at=6.0, writer="another", files=()))
    assert Ledger(tmp_path, PLACE, "after that").load() == []


def test_a_writer_knows_where_its_own_lines_end(tmp_path: Path) -> None:
    """The mark of a line is the end of it in the journal, whoever opens that later."""
    ledger = Ledger(tmp_path, PLACE, "w")
    write_files(tmp_path, "tr_a")
    ends = []
    for number in range(3):
        line, mark = ledger.append(receipt_of(tmp_path, "tr_a", at=float(number)))
        assert mark is not None
        ends.append((mark.end, len(line)))
        assert journal_of(tmp_path).stat().st_size == mark.end
    assert ends[2][0] == sum(size for _, size in ends)


@pytest.mark.parametrize("content", ["", "many", "-5", "99999999", "9" * 400, "\udcff"])
def test_a_broken_note_of_what_is_sent_costs_only_time(tmp_path: Path, content: str) -> None:
    """Receipts are sent again rather than never."""
    written(tmp_path, "tr_a", writer="killed")
    note = journal_of(tmp_path, "killed").with_suffix(".sent")
    note.write_bytes(content.encode(errors="surrogateescape"))
    ledger = Ledger(tmp_path, PLACE, "next")
    assert len(ledger.load()) == 1
    assert ledger.get("tr_a") is not None


def test_a_disk_that_takes_no_line_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing can be kept beside the records the mirror goes on, and this process knows its receipts."""
    (tmp_path / ".mirror").write_text("a file where the directory should be")
    write_files(tmp_path, "tr_a")
    ledger = Ledger(tmp_path, PLACE, "w")
    for number in range(3):
        line, mark = ledger.append(receipt_of(tmp_path, "tr_a", at=float(number)))
        assert mark is None
        assert decode_line(line).id == "tr_a"
    assert uncovered(ledger, tmp_path, "tr_a") == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "a restart will look at them again" in caplog.text


def test_a_full_disk_spoils_no_other_line(tmp_path: Path) -> None:
    """What does not fit leaves no half of a line behind; when there is room again lines are kept again."""
    write_files(tmp_path, "tr_a")
    write_files(tmp_path, "tr_b")
    write_files(tmp_path, "tr_c")
    ledger = Ledger(tmp_path, PLACE, "w")
    _, mark = ledger.append(receipt_of(tmp_path, "tr_a"))
    assert mark is not None
    with disk_of(mark.end + 40):
        assert ledger.append(receipt_of(tmp_path, "tr_b"))[1] is None
    _, mark = ledger.append(receipt_of(tmp_path, "tr_c"))
    assert mark is not None
    lines = journal_of(tmp_path).read_bytes().splitlines(keepends=True)
    assert [decode_line(line).id for line in lines] == ["tr_a", "tr_c"]
    assert mark.end == sum(map(len, lines))


def test_a_journal_that_was_taken_away_is_no_proof_any_more(tmp_path: Path) -> None:
    """What was read of it once is not guessed from something else that came into its place."""
    (first, _) = written(tmp_path, "tr_a", "tr_b")
    ledger = reopened(tmp_path)
    journal = journal_of(tmp_path)
    journal.write_bytes(encode_line(first) * 2)
    assert ledger.get("tr_a") == first
    assert ledger.get("tr_b") is None
    journal.unlink()
    assert ledger.get("tr_a") is None


def test_receipts_from_the_mirror_are_known_without_a_journal(tmp_path: Path) -> None:
    """Where none can be kept beside the records they come from elsewhere, and a newer one of our own replaces them."""
    write_files(tmp_path, "tr_a", tokens=b"1")
    ledger = Ledger(tmp_path, PLACE, "w")
    learned = receipt_of(tmp_path, "tr_a", "tokens", at=1.0)
    ledger.learn([learned])
    assert ledger.get("tr_a") == learned
    newer = receipt_of(tmp_path, "tr_a", at=2.0)
    ledger.append(newer)
    assert ledger.get("tr_a") == newer
    ledger.learn([learned])
    assert ledger.get("tr_a") == newer


def test_threads_may_share_it(tmp_path: Path) -> None:
    """Every line arrives whole, whoever asks meanwhile."""
    write_files(tmp_path, "tr_x")
    template = receipt_of(tmp_path, "tr_x")
    ledger = Ledger(tmp_path, PLACE, "w")

    def work(name: str) -> None:
        for number in range(100):
            record_id = f"tr_{name}{number}"
            file = template.files[0]
            renamed = Receipt(
                id=record_id,
                at=1.0,
                writer="w",
                host="h",
                path="p",
                files=(type(file)(name=f"{record_id}.json.zst", size=file.size, xxh3_128=file.xxh3_128),),
            )
            ledger.append(renamed)
            ledger.load()
            assert ledger.get(record_id) == renamed

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()
    assert reopened(tmp_path).count() == 400


def test_a_name_that_is_not_utf8_has_no_receipt(tmp_path: Path) -> None:
    """A file name of other bytes is looked up like any other, and simply not found."""
    ledger = Ledger(tmp_path, PLACE, "w")
    assert ledger.covered({"tr_\udcff": state_of(Path(__file__))}, ()) == {}
    assert ledger.get("tr_\udcff") is None


def test_journals_are_named_after_their_writers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each writer appends to a file of its own, which is the same line for line as what goes to the mirror."""
    caplog.set_level(logging.WARNING)
    (receipt,) = written(tmp_path, "tr_a", writer="node-1-77-abc")
    assert journal_of(tmp_path, "node-1-77-abc").read_bytes() == encode_line(receipt)
    assert caplog.records == []
