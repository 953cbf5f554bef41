"""Several mirrors on one directory, one prefix, or both: without coordination, and without one speaking for another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mirror import RecordMirror
from mirror.samples import write_corpus
from mirror.testing import FaultProxy
from tests.mirror.places import (
    DirectoryPlace,
    Place,
    S3Place,
    mirror_to,
    mirrored_files,
    puts,
    receipts_in,
    record_files,
)

pytestmark = pytest.mark.integration

FLUSH_S = 60.0  # far more than any flush here takes


def assert_books_balance(mirror: RecordMirror) -> None:
    stats = mirror.stats()
    assert stats["submitted"] == sum(int(str(stats[name])) for name in ("mirrored", "failed", "late", "pending"))


def test_two_mirrors_share_a_directory_and_a_place(place: Place, records: Path) -> None:
    """Servers that share both need no coordination: each keeps its own books and segments, and all is there once."""
    ids = sorted(name.removesuffix(".json.zst") for name in record_files(records) if name.endswith(".json.zst"))
    with mirror_to(place) as one, mirror_to(place) as other:
        for index, record_id in enumerate(ids):
            (one if index % 2 else other).submit(records, record_id)
        assert one.flush(FLUSH_S)
        assert other.flush(FLUSH_S)
        one.scan(records)
        other.scan(records)
        assert one.flush(FLUSH_S)
        assert other.flush(FLUSH_S)
        assert_books_balance(one)
        assert_books_balance(other)
    assert mirrored_files(place) == record_files(records)
    assert {receipt.id for receipt in receipts_in(place)} == set(ids)


def test_mirrors_that_find_the_same_share_the_work(s3_place: S3Place, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    """What an earlier process left is not copied by every server that finds it, nor counted by each."""
    records = tmp_path / "records"
    ids = write_corpus(records, profile="tiny", count=200, seed=1)
    s3_proxy.latency_s = 0.01
    mirrors = [mirror_to(s3_place, via=s3_proxy.url, workers=4) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda mirror: mirror.scan(records), mirrors))
    assert all(mirror.flush(FLUSH_S) for mirror in mirrors)
    for mirror in mirrors:
        assert_books_balance(mirror)
    mirrored = sum(mirror.stats()["mirrored"] for mirror in mirrors)
    assert all(mirror.close(FLUSH_S) for mirror in mirrors)
    assert mirrored_files(s3_place) == record_files(records)
    assert len(ids) <= mirrored <= 2 * len(ids)  # by chance two may copy the same at the same time
    assert puts(s3_proxy).total() <= 2 * mirrored  # of some the second found what the first had sent meanwhile


def test_what_one_place_has_says_nothing_about_another(
    place: Place, s3_place: S3Place, records: Path, tmp_path: Path
) -> None:
    """One directory mirrored to two places is copied to both, whatever the other has, also at the same time."""
    other = DirectoryPlace(tmp_path / "other")
    with mirror_to(place) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        with mirror_to(other) as second, mirror_to(s3_place) as third:
            second.scan(records)
            third.scan(records)
            assert second.flush(FLUSH_S)
            assert third.flush(FLUSH_S)
    for each in (place, other, s3_place):
        assert mirrored_files(each) == record_files(records)


def test_one_url_at_two_endpoints_is_two_places(s3_place: S3Place, records: Path) -> None:
    """The same bucket and prefix behind another endpoint is another place: everything is sent there too."""
    with FaultProxy(s3_place.server.url) as one, FaultProxy(s3_place.server.url) as other:
        for proxy in (one, other):
            with mirror_to(s3_place, via=proxy.url) as mirror:
                mirror.scan(records)
                assert mirror.flush(FLUSH_S)
        assert puts(one).keys() == puts(other).keys() == record_files(records).keys()
