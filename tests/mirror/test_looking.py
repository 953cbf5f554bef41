"""What a look finds is what is on disk and not covered by a receipt: no more, no less."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.looking import CHUNK, Chunk, look, matcher
from mirror.names import document_name
from mirror.receipts.ledger import Ledger
from mirror.samples import write_litter
from tests.mirror.local_records import receipt_of, replace_file, state_of, write_files

KNOWN, NEW = ("tokens", "experts"), ("brand_new", "other")


def all_of(chunks: list[Chunk]) -> set[str]:
    return {record.record_id for chunk in chunks for record in chunk.uncopied}


def look_at(records: Path, ledger: Ledger, *exclude: str) -> set[str]:
    return all_of(list(look(records, ledger, exclude)))


@dataclass(frozen=True)
class Kept:
    """What is on disk and in the books of one record."""

    document: bool
    sidecars: frozenset[str]  # on disk
    receipted: frozenset[str] | None  # the kinds that the receipt lists; None: no receipt
    left_out: frozenset[str]  # the kinds that were excluded then
    rewritten: bool  # since the receipt

    def is_covered(self, exclude: frozenset[str]) -> bool:
        """Whether everything is in the mirror that has to be, said without looking at the code."""
        if self.receipted is None or self.rewritten or not self.left_out <= exclude:
            return False
        return all(kind in self.receipted or kind in exclude for kind in self.sidecars if kind in NEW)


KINDS = st.frozensets(st.sampled_from([*KNOWN, *NEW]))
RECORDS = st.builds(
    Kept,
    document=st.booleans(),
    sidecars=KINDS,
    receipted=st.none() | KINDS,
    left_out=st.frozensets(st.sampled_from(KNOWN)),
    rewritten=st.booleans(),
)


@given(st.lists(RECORDS, max_size=5), KINDS)
def test_uncopied_is_what_is_on_disk_minus_receipts_that_cover_it(kept: list[Kept], exclude: frozenset[str]) -> None:
    """Every finished record without a receipt that covers it as it is now is found, and nothing else."""
    with tempfile.TemporaryDirectory() as scratch:
        records = Path(scratch)
        ledger = Ledger(records, "place", "w")
        for number, record in enumerate(kept):
            record_id = f"tr_{number}"
            write_files(records, record_id, **dict.fromkeys(record.sidecars | (record.receipted or frozenset()), b"x"))
            if record.receipted is not None:
                ledger.append(receipt_of(records, record_id, *record.receipted, excluded=tuple(record.left_out)))
            for kind in (record.receipted or frozenset()) - record.sidecars:
                (records / f"{record_id}.{kind}.zst").unlink()
            if record.rewritten:
                replace_file(records / document_name(record_id), b"{}")
            if not record.document:
                (records / document_name(record_id)).unlink()
        expected = {
            f"tr_{number}" for number, record in enumerate(kept) if record.document and not record.is_covered(exclude)
        }
        assert look_at(records, ledger, *exclude) == expected
        ledger.close()


def test_litter_is_never_found(tmp_path: Path) -> None:
    """Sidecars without a document, dot-files, subdirectories, links and pipes are no records."""
    write_litter(tmp_path)
    (tmp_path / "tr_link.json.zst").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "tr_pipe.json.zst")
    assert look_at(tmp_path, Ledger(tmp_path, "place", "w")) == set()


def test_a_look_says_how_much_is_in_the_mirror(tmp_path: Path) -> None:
    """Records, files of those that are covered, and the kinds of sidecars that were not known before."""
    write_files(tmp_path, "tr_a", tokens=b"1", brand_new=b"2")
    write_files(tmp_path, "tr_b", tokens=b"1")
    ledger = Ledger(tmp_path, "place", "w")
    ledger.append(receipt_of(tmp_path, "tr_a", "tokens", "brand_new"))
    (chunk,) = look(tmp_path, ledger, ())
    assert (chunk.documents, chunk.covered_files, chunk.kinds) == (2, 3, frozenset({"brand_new"}))
    (found,) = chunk.uncopied
    assert found.document == state_of(tmp_path / "tr_b.json.zst")
    assert found.since == state_of(tmp_path / "tr_b.json.zst").ctime_ns / 1e9


def test_a_kind_that_appears_late_is_found_without_its_document_in_the_same_chunk(tmp_path: Path) -> None:
    """A sidecar of a new kind makes its record uncopied, whatever part of a directory it was read with."""
    write_files(tmp_path, "tr_a", brand_new=b"2")
    ledger = Ledger(tmp_path, "place", "w")
    ledger.append(receipt_of(tmp_path, "tr_a"))
    for number in range(CHUNK):
        (tmp_path / f"tr_{number:05d}.tokens.zst").touch()
    assert look_at(tmp_path, ledger) == {"tr_a"}


def test_a_large_directory_comes_in_chunks(tmp_path: Path) -> None:
    """Nothing is held back until the end, and nothing is counted twice."""
    for number in range(CHUNK + 500):
        (tmp_path / f"tr_{number:05d}.json.zst").touch()
    chunks = list(look(tmp_path, Ledger(tmp_path, "place", "w"), ()))
    assert [chunk.documents for chunk in chunks] == [CHUNK, 500]
    assert len(all_of(chunks)) == CHUNK + 500


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """It is never taken for one in which all is copied."""
    with pytest.raises(FileNotFoundError):
        list(look(tmp_path / "absent", Ledger(tmp_path, "place", "w"), ()))


@pytest.mark.parametrize(
    ("include", "wanted"),
    [
        ((), ["tr_a1", "tr_b", "x[1]"]),
        (("tr_a*",), ["tr_a1"]),
        (("tr_?", "x*"), ["tr_b", "x[1]"]),
        (("x[[]1]",), ["x[1]"]),
        (("nothing",), []),
    ],
)
def test_a_look_may_be_for_some_records_only(tmp_path: Path, include: tuple[str, ...], wanted: list[str]) -> None:
    """Shell patterns choose by id; no pattern means all."""
    for record_id in ("tr_a1", "tr_b", "x[1]"):
        write_files(tmp_path, record_id)
    chunks = list(look(tmp_path, Ledger(tmp_path, "place", "w"), (), matcher(include)))
    assert sorted(all_of(chunks)) == wanted
