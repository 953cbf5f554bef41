"""The newest receipt of every record that was read, in little memory, to be looked up by the ten thousand.

They are kept some hundred to a piece: a table of single receipts takes several times as long to fill.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

import msgspec

from mirror.private_index import PrivateIndex
from mirror.receipts.receipt import Receipt, newest

MAX_AT_HAND = 50_000
_TOGETHER = 500  # receipts to a piece
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Receipt, ...])


class ReceiptBook:
    """Filled again and again; the newest receipt of an id wins, whatever the order."""

    def __init__(self) -> None:
        """Begin empty."""
        self._index = PrivateIndex(
            "CREATE TABLE piece (number INTEGER PRIMARY KEY, receipts BLOB)",
            "CREATE TABLE receipt (id TEXT PRIMARY KEY, at REAL, piece INTEGER) WITHOUT ROWID",
        )
        self._pieces = 0
        self._at_hand: dict[str, Receipt] = {}  # what the last read brought, which is what is asked for next

    async def read(self, receipts: AsyncIterator[Receipt]) -> None:
        """Take receipts in any order as they arrive; what has arrived is kept, whatever comes of the rest."""
        arrived: list[Receipt] = []
        self._at_hand = {}
        try:
            async for receipt in receipts:
                arrived.append(receipt)
                if len(arrived) == _TOGETHER:
                    self._add(arrived)
                    arrived = []
        finally:
            self._add(arrived)

    def find(self, record_ids: Collection[str]) -> dict[str, Receipt]:
        """Return the newest receipt of each of these records that has one."""
        found = {record_id: self._at_hand[record_id] for record_id in record_ids if record_id in self._at_hand}
        places: dict[int, set[str]] = {}
        elsewhere = [record_id for record_id in record_ids if record_id not in found]
        for record_id, piece in self._index.select_in("SELECT id, piece FROM receipt WHERE id IN", elsewhere):
            places.setdefault(piece, set()).add(record_id)
        for piece, ids in places.items():
            ((data,),) = self._index.execute("SELECT receipts FROM piece WHERE number = ?", (piece,))
            found |= {receipt.id: receipt for receipt in _decoder.decode(data) if receipt.id in ids}
        return found

    def _add(self, arrived: Sequence[Receipt]) -> None:
        best = newest(arrived)
        known: dict[str, float] = dict(self._index.select_in("SELECT id, at FROM receipt WHERE id IN", best))
        newer = [receipt for receipt in best.values() if receipt.at > known.get(receipt.id, float("-inf"))]
        if not newer:
            return
        if len(self._at_hand) < MAX_AT_HAND:
            self._at_hand |= {receipt.id: receipt for receipt in newer}
        else:  # as at the first look at a run that is old
            for receipt in newer:
                self._at_hand.pop(receipt.id, None)
        self._pieces += 1
        self._index.execute("INSERT INTO piece VALUES (?, ?)", (self._pieces, _encoder.encode(newer)))
        self._index.execute_many(
            "INSERT OR REPLACE INTO receipt VALUES (?, ?, ?)", [(one.id, one.at, self._pieces) for one in newer]
        )
