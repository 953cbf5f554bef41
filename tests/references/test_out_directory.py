"""How a record takes its place: sidecars, then the document; never a document beside another generation's sidecars."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from mirror.receipts.receipt import FileReceipt, Receipt
from references.out_directory import PhaseDirectory, open_out
from tests.mirror.local_records import tree

KINDS = ("tokens", "sampling_mask", "experts", "novel")


def receipt(**contents: bytes) -> Receipt:
    """Return the receipt of a record with these files, by kind; ``json`` is the document."""
    files = tuple(
        FileReceipt(name=f"tr.{kind}.zst", size=len(data), xxh3_128=xxhash.xxh3_128_hexdigest(data))
        for kind, data in contents.items()
    )
    return Receipt(id="tr", at=1.0, writer="w", host="h", path="/p", files=files)


def put(place: PhaseDirectory, **contents: bytes) -> None:
    """Bring a record's files, as far as they are not here."""
    wanted = receipt(**contents)
    parts = {}
    for file in place.lacking(wanted.files):
        parts[file.name] = place.scratch.reserve()
        place.scratch.write(parts[file.name], contents[file.name.split(".")[1]], begin=True)
    place.commit(wanted, parts)


def names(out: Path) -> set[str]:
    """Return which of the record's files are here."""
    return {path.name for path in (out / "train").glob("tr.*") if path.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[PhaseDirectory]:
    with open_out(tmp_path, write=True) as out:
        opened = PhaseDirectory(out, "train", write=True)
        yield opened
        opened.close()


def test_the_document_comes_last(place: PhaseDirectory, tmp_path: Path) -> None:
    """Where a sidecar cannot be moved there is no document."""
    (tmp_path / "train" / "tr.tokens.zst").mkdir()
    with pytest.raises(IsADirectoryError):
        put(place, json=b"document", experts=b"experts", tokens=b"tokens")
    assert "tr.json.zst" not in names(tmp_path)


def test_a_former_document_goes_before_its_sidecars_do(place: PhaseDirectory, tmp_path: Path) -> None:
    """Cut off in the middle, no document stands beside sidecars of another generation."""
    put(place, tokens=b"tokens", json=b"document")
    (tmp_path / "train" / "tr.sampling_mask.zst").mkdir()
    with pytest.raises(IsADirectoryError):
        put(place, tokens=b"newer", sampling_mask=b"mask", json=b"newer document")
    assert "tr.json.zst" not in names(tmp_path)


def test_sidecars_of_a_former_generation_go_with_its_document(place: PhaseDirectory, tmp_path: Path) -> None:
    """Those that are the same in the new one may stay."""
    put(place, tokens=b"tokens", experts=b"experts", json=b"document")
    newer = receipt(tokens=b"newer", experts=b"experts", json=b"newer document")
    part = place.scratch.reserve()
    place.scratch.write(part, b"newer document", begin=True)
    place.commit(newer, {"tr.json.zst": part})
    assert names(tmp_path) == {"tr.experts.zst", "tr.json.zst"}


@given(st.lists(st.dictionaries(st.sampled_from(KINDS), st.binary(max_size=3)), min_size=1, max_size=4))
def test_whatever_was_here_the_last_generation_is_whole(
    tmp_path_factory: pytest.TempPathFactory, generations: list[dict[str, bytes]]
) -> None:
    """Each generation in turn: all its files are here with their bytes, and nothing is lacking a second time."""
    root = tmp_path_factory.mktemp("out")
    with open_out(root, write=True) as out:
        place = PhaseDirectory(out, "train", write=True)
        for number, sidecars in enumerate(generations):
            contents = {**sidecars, "json": bytes([number])}
            put(place, **contents)
            assert place.lacking(receipt(**contents).files) == []
            here = {name: data for name, data in tree(root / "train").items() if name.startswith("tr.")}
            wanted = {f"tr.{kind}.zst": data for kind, data in contents.items()}
            assert {name: here[name] for name in wanted} == wanted
            assert all(name.startswith("tr.novel") for name in here.keys() - wanted.keys())
        place.close()


def test_without_writing_nothing_is_made(tmp_path: Path) -> None:
    """And everything is lacking where there is nothing."""
    with open_out(tmp_path / "out", write=False) as out:
        assert out is None
        place = PhaseDirectory(out, "train", write=False)
        assert len(place.lacking(receipt(tokens=b"t", json=b"d").files)) == 2
        place.close()
    assert not (tmp_path / "out").exists()
