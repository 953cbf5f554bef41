"""The newest receipt of every record, by record and by file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import StoreError
from mirror.receipts.manifest import Manifest
from mirror.receipts.receipt import FileReceipt, Receipt


def receipt(record_id: str, at: float, *kinds: str) -> Receipt:
    names = [f"{record_id}.{kind}.zst" for kind in (*kinds, "json")]
    files = tuple(FileReceipt(name=name, size=int(at), xxh3_128="0" * 32) for name in names)
    return Receipt(id=record_id, at=at, writer="w", host="h", path=f"/r/{names[-1]}", files=files)


def fill(manifest: Manifest, some: Iterable[Receipt]) -> None:
    async def arriving() -> AsyncIterator[Receipt]:
        for one in some:
            yield one

    asyncio.run(manifest.read(arriving()))


receipts = st.builds(
    receipt,
    st.sampled_from(["a", "b", "a.b", "a-b", "ü"]),
    st.integers(1, 5).map(float),
    st.sampled_from(["tokens", "x"]),
)


@given(st.lists(receipts, unique_by=lambda one: (one.id, one.at)), st.randoms())
def test_the_newest_receipt_wins_in_any_order(written: list[Receipt], random: object) -> None:
    """Receipts of many writers arrive in no order: the result is the same."""
    shuffled = list(written)
    random.shuffle(shuffled)  # type: ignore[attr-defined] # Hypothesis hands out a random.Random
    newest = {one.id: one for one in sorted(written, key=lambda one: one.at)}
    manifest = Manifest()
    fill(manifest, shuffled)
    assert {one: manifest.get(one) for one in newest} == newest
    expected = sorted((file.name for one in newest.values() for file in one.files), key=str.encode)
    assert [file.name for file in manifest.files()] == expected
    assert len(manifest) == len(newest)
    manifest.close()


NAMES = ["", "a.json.zst", "a.b.json.zst", "a-b.x.zst", "a.", "b", "zz"]


@given(st.lists(receipts), st.sampled_from(NAMES), st.sampled_from([*NAMES, None]))
def test_a_range_of_files_is_what_lies_in_it(written: list[Receipt], after: str, until: str | None) -> None:
    """Also where one id goes on behind another with a dot, so that the names of their files alternate."""
    manifest = Manifest()
    fill(manifest, written)
    every = [file.name for file in manifest.files()]
    assert every == sorted(set(every), key=str.encode)
    found = [file.name for file in manifest.files(after, until)]
    assert found == [name for name in every if name > after and (until is None or name <= until)]
    assert [manifest.file(name) for name in every] == list(manifest.files())
    assert {file.record_id for file in manifest.files()} == {one.id for one in written}
    manifest.close()


@given(st.sets(st.text("ab-ü", min_size=1, max_size=4)), st.integers(1, 5), st.integers(0, 5))
def test_bounds_part_the_files_into_ranges_of_one_size(ids: set[str], files: int, first: int) -> None:
    """What is listed by ranges is listed in whole pages."""
    manifest = Manifest()
    fill(manifest, [receipt(one, 1, "tokens", "x") for one in ids])
    names = [file.name for file in manifest.files()]
    assert manifest.count_files() == len(names) == 3 * len(ids)
    assert manifest.every(files, first=first) == names[(first or files) - 1 :: files]
    manifest.close()


@given(st.lists(receipts), st.integers(1, 5))
def test_bounds_ascend_whatever_the_ids(written: list[Receipt], files: int) -> None:
    """Ranges must not overlap, or a file is looked at twice."""
    manifest = Manifest()
    fill(manifest, written)
    bounds = manifest.every(files)
    assert bounds == sorted(set(bounds), key=str.encode)
    manifest.close()


def test_a_rewritten_record_loses_the_files_it_no_longer_has() -> None:
    """A newer receipt replaces the older one whole."""
    manifest = Manifest()
    fill(manifest, [receipt("a", 1, "tokens"), receipt("b", 1)])
    fill(manifest, [receipt("a", 2)])
    assert [file.name for file in manifest.files()] == ["a.json.zst", "b.json.zst"]
    assert manifest.file("a.tokens.zst") is None
    assert manifest.get("a") == receipt("a", 2)
    manifest.close()


def test_more_receipts_than_one_statement_takes() -> None:
    """Batches do not show."""
    many = [receipt(f"r{number:05d}", 1) for number in range(1_700)]
    manifest = Manifest()
    fill(manifest, many)
    fill(manifest, [replace(many[3], at=3)])
    assert len(manifest) == 1_700
    found = manifest.get("r00003")
    assert found is not None
    assert found.at == 3
    manifest.close()


def test_what_has_arrived_is_kept_when_the_rest_does_not() -> None:
    """A store that fails in the middle has been read up to there, since nobody reads that part again."""

    async def breaks() -> AsyncIterator[Receipt]:
        for name in ("a", "b"):
            yield receipt(name, 1)
        raise StoreError("get", "_receipts/w/00000001.jsonl", "broken")

    manifest = Manifest()
    with pytest.raises(StoreError):
        asyncio.run(manifest.read(breaks()))
    assert [manifest.get(one) for one in ("a", "b")] == [receipt("a", 1), receipt("b", 1)]
    manifest.close()
