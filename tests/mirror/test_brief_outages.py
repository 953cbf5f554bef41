"""A check of a mirror meets a store that is away for a moment, or for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror import MirrorConfig, StoreError, Verification, VerifyLevel, verify
from mirror.samples import write_corpus
from mirror.testing import Answer, Fault, FaultProxy, SeaweedS3, requests_to, s3_error
from tests.mirror.places import S3Place, mirror_to

SLOW_DOWN = Answer(s3_error(503, "SlowDown"))
RECORDS = 30
WORKERS = 8


class Mirrored:
    """A mirror on the S3 server, and a check of it through the proxy."""

    def __init__(self, place: S3Place, records: Path, proxy: FaultProxy) -> None:
        write_corpus(records, profile="tiny", count=RECORDS, seed=1)
        with mirror_to(place) as mirror:
            mirror.scan(records)
            assert mirror.flush(60)
        self._url = place.url
        self._config = MirrorConfig(
            workers=WORKERS, attempts=3, backoff_s=0.05, storage_options=place.options(via=proxy.url)
        )

    def verify(self) -> Verification:
        return verify(self._url, config=self._config, level=VerifyLevel(read_back=1.0), grace_s=0)


@pytest.fixture
def mirrored(seaweed: SeaweedS3, s3_bucket: str, s3_proxy: FaultProxy, tmp_path: Path) -> Mirrored:
    return Mirrored(S3Place(seaweed, s3_bucket), tmp_path / "records", s3_proxy)


@pytest.mark.integration
def test_every_call_under_way_is_refused_and_the_check_goes_on(mirrored: Mirrored, s3_proxy: FaultProxy) -> None:
    """More refusals in a row than there are requests under way delay a check, and nothing stays unchecked."""
    s3_proxy.script(Fault(action=SLOW_DOWN, match=requests_to("GET", ".zst"), times=WORKERS + 1))
    found = mirrored.verify()
    assert (found.intact, found.findings) == (2 * RECORDS, [])
    assert s3_proxy.remaining_faults == 0


@pytest.mark.integration
def test_a_refused_receipt_is_read_again(mirrored: Mirrored, s3_proxy: FaultProxy) -> None:
    """One refusal of a segment of receipts does not end a check."""
    s3_proxy.script(Fault(action=SLOW_DOWN, match=requests_to("GET", ".jsonl")))
    assert mirrored.verify().intact == 2 * RECORDS
    assert s3_proxy.remaining_faults == 0


@pytest.mark.integration
def test_a_store_that_is_down_ends_the_check(mirrored: Mirrored, s3_proxy: FaultProxy) -> None:
    """Nothing is known then, and that is said after a few tries."""
    s3_proxy.down()
    with pytest.raises(StoreError):
        mirrored.verify()
