"""The receipts that the publisher looks records up in: ``references/receipt_book.py``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.receipts.receipt import FileReceipt, Receipt, newest
from references.receipt_book import ReceiptBook


def receipt(name: str, at: float) -> Receipt:
    file = FileReceipt(name=f"{name}.json.zst", size=int(at), xxh3_128="0" * 32, etag=f"{at}")
    return Receipt(id=name, at=at, writer="w", host="10.0.0.5", path=f"/data/{name}.json.zst", files=(file,))


async def stream(receipts: Iterable[Receipt]) -> AsyncIterator[Receipt]:
    for one in receipts:
        yield one


@given(st.lists(st.lists(st.builds(receipt, st.sampled_from("abcd"), st.integers(0, 5)), max_size=6), max_size=4))
def test_the_newest_receipt_of_an_id_wins(reads: list[list[Receipt]]) -> None:
    """However they are spread over the reads, and in whatever order they come."""
    book = ReceiptBook()
    for read in reads:
        asyncio.run(book.read(stream(read)))

    assert book.find("abcd") == newest(one for read in reads for one in read)


def test_thousands_are_found_at_once() -> None:
    """More than a statement takes, in any order; what nobody has a receipt of is left out."""
    book = ReceiptBook()
    asyncio.run(book.read(stream(receipt(f"tr_{n}", 1.0) for n in range(2_500))))

    wanted = [f"tr_{n}" for n in range(3_000, -1, -2)]
    assert sorted(book.find(wanted)) == sorted(f"tr_{n}" for n in range(0, 2_500, 2))
    assert book.find([]) == {}


def test_what_arrived_before_a_failure_is_kept() -> None:
    """A store that fails halfway costs what it has not given."""
    book = ReceiptBook()

    async def breaking() -> AsyncIterator[Receipt]:
        yield receipt("a", 1.0)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(book.read(breaking()))

    assert sorted(book.find(["a", "b"])) == ["a"]
