"""The mirror as the publisher sees it: ``references/mirror_access.py`` on real stores."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from pathlib import Path
from random import Random

import pytest

from mirror import MirrorConfig, RecordMirror, StoreError
from mirror.errors import DeadlineError
from mirror.location import parse_location
from mirror.samples import write_record
from mirror.store import WHOLE_BYTES
from mirror.testing import Answer, Fault, FaultProxy, Hang, requests_to, s3_error
from mirror.testing.servers import SeaweedS3
from references.mirror_access import MirrorAccess
from tests.mirror.places import DirectoryPlace, Place, S3Place, mirror_to
from tests.references.publishing import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where the mirror of a test is."""
    if request.param == "directory":
        return DirectoryPlace(tmp_path / "mirror")
    return S3Place(request.getfixturevalue("seaweed"), request.getfixturevalue("s3_bucket"))


@pytest.fixture
def s3_place(seaweed: SeaweedS3, s3_bucket: str) -> S3Place:
    """A mirror in a bucket."""
    return S3Place(seaweed, s3_bucket)


def access(place: Place, *, via: str | None = None, timeout_s: float = 20.0) -> MirrorAccess:
    config = MirrorConfig(storage_options=place.options(via=via), attempts=2, backoff_s=0.05, fsync=False)
    return MirrorAccess(place.url, config, timeout_s=timeout_s)


def copy(mirror: RecordMirror, directory: Path, *names: str) -> None:
    """Write records and bring them, with their receipts, into the mirror."""
    for name in names:
        write_record(directory, name, profile="tiny", rng=Random(name))  # noqa: S311 - sample data
        assert mirror.submit(directory, name)
    assert mirror.flush(30), mirror.stats()


def test_receipts_of_several_servers_are_found(place: Place, tmp_path: Path) -> None:
    """Whoever wrote them; a record without a receipt is left out."""
    for server in ("one", "two"):
        with mirror_to(place) as mirror:
            copy(mirror, tmp_path / server, f"tr_{server}")

    found = access(place).find(["tr_one", "tr_two", "tr_three"])

    assert sorted(found) == ["tr_one", "tr_two"]
    assert {file.name for receipt in found.values() for file in receipt.files} == {
        path.name for server in ("one", "two") for path in (tmp_path / server).glob("*.zst")
    }


def test_each_look_reads_only_what_is_new(s3_place: S3Place, tmp_path: Path) -> None:
    """One listing each time, and the segments that are new or have grown; not one request about a record's files."""
    with FaultProxy(s3_place.server.url) as proxy, mirror_to(s3_place) as mirror, mirror_to(s3_place) as other:
        looking = access(s3_place, via=proxy.url)
        copy(mirror, tmp_path / "one", "tr_1")
        copy(other, tmp_path / "two", "tr_2")
        seen = []
        for name in (None, "tr_3", None):
            if name is not None:
                copy(mirror, tmp_path / "one", name)
            proxy.clear()
            found = looking.find(["tr_1", "tr_2", "tr_3"])
            seen.append((len(found), dict(proxy.counts)))
            assert all("/_receipts/" in one.path or "prefix=" in one.path for one in proxy.requests)

    assert [(count, requests.get("GET")) for count, requests in seen] == [(2, 3), (3, 2), (3, 1)]
    assert all(set(requests) == {"GET"} for _, requests in seen)


def test_the_newest_receipt_wins(place: Place, tmp_path: Path) -> None:
    """A record that was written again is referred to as it is now."""
    looking = access(place)
    with mirror_to(place) as mirror:
        copy(mirror, tmp_path / "records", "tr_1")
        before = looking.find(["tr_1"])["tr_1"]
        (tmp_path / "records" / "tr_1.json.zst").write_bytes(b"another content")
        assert mirror.submit(tmp_path / "records", "tr_1")
        assert mirror.flush(30)

    after = looking.find(["tr_1"])["tr_1"]

    assert after.at >= before.at
    assert [file.size for file in after.files][-1] == len(b"another content")


def test_a_mirror_that_nobody_made_yet_has_no_receipts(place: Place) -> None:
    """Nor is that an error: the servers have not finished a record yet."""
    assert access(place).find(["tr_1"]) == {}


def test_only_the_same_mirror_is_covered(tmp_path: Path) -> None:
    """However its URL is written; a place below or beside it is another one."""
    looking = MirrorAccess("s3://bucket/run-7/")

    assert looking.covers(parse_location("s3a://bucket/run-7"))
    assert not any(
        looking.covers(parse_location(other))
        for other in ("s3://bucket/run-70", "s3://bucket/run-7/sub", "gs://bucket/run-7", str(tmp_path))
    )


def test_an_index_takes_the_place_of_an_older_one(place: Place) -> None:
    """Each phase has its own, below the records."""
    writing = access(place)
    writing.write("train", 3, b"old")
    writing.write("train", 3, b"new")
    writing.write("eval", 0, b"eval")

    assert place.objects() == {"index/train/step-3.json": b"new", "index/eval/step-0.json": b"eval"}


def test_a_huge_index_goes_in_parts(tmp_path: Path) -> None:
    """What does not fit into one request arrives whole."""
    place = DirectoryPlace(tmp_path / "mirror")

    access(place).write("train", 1, bytes(WHOLE_BYTES + 1))

    assert (tmp_path / "mirror" / "index" / "train" / "step-1.json").stat().st_size == WHOLE_BYTES + 1


def test_a_store_that_hangs_costs_no_more_than_the_time_limit(s3_place: S3Place) -> None:
    """Both calls fail with a sentence, and leave no thread behind."""
    before = set(threading.enumerate())
    with FaultProxy(s3_place.server.url) as proxy:
        proxy.script(Fault(action=Hang(), times=1000))
        slow = access(s3_place, via=proxy.url, timeout_s=0.5)
        with pytest.raises(DeadlineError, match=r"read _receipts/: the mirror took longer than 0.5 s"):
            slow.find(["tr_1"])
        with pytest.raises(DeadlineError, match=r"put index/train/step-1.json: the mirror took longer than 0.5 s"):
            slow.write("train", 1, b"{}")

    assert wait_until(lambda: set(threading.enumerate()) <= before)


def test_a_failed_look_is_made_up_for_by_the_next(s3_place: S3Place, tmp_path: Path) -> None:
    """Receipts that could not be read are read as soon as the store lets us."""
    with FaultProxy(s3_place.server.url) as proxy, mirror_to(s3_place) as mirror:
        copy(mirror, tmp_path, "tr_1")
        looking = access(s3_place, via=proxy.url)
        denied = Answer(s3_error(403, "AccessDenied"))
        proxy.script(Fault(action=denied, match=requests_to("GET", ".jsonl")))
        with pytest.raises(StoreError):
            looking.find(["tr_1"])

        assert list(looking.find(["tr_1"])) == ["tr_1"]


FORK = """
import os, sys
from references.mirror_access import MirrorAccess
looking = MirrorAccess(sys.argv[1])
assert list(looking.find(["tr_1", "tr_2"])) == ["tr_1", "tr_2"]
child = os.fork()
if child == 0:
    found = list(looking.find(["tr_1", "tr_2"]))
    looking.write("train", 1, b"{}")
    os._exit(0 if found == ["tr_1", "tr_2"] else 1)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status), "parent", list(looking.find(["tr_1"])))
"""


def test_a_forked_child_reads_for_itself(tmp_path: Path) -> None:
    """What the parent has read is neither used nor harmed by its child."""
    place = DirectoryPlace(tmp_path / "mirror")
    with mirror_to(place) as mirror:
        copy(mirror, tmp_path / "records", "tr_1", "tr_2")

    done = subprocess.run(  # noqa: S603 - our own interpreter and script
        [sys.executable, "-c", FORK, place.url], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "child 0 parent ['tr_1']"


def test_threads_may_look_at_once(place: Place, tmp_path: Path) -> None:
    """They take turns, and all find everything."""
    names = [f"tr_{uuid.uuid4().hex[:8]}" for _ in range(8)]
    with mirror_to(place) as mirror:
        copy(mirror, tmp_path / "records", *names)
    looking = access(place)
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(len(looking.find(names)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counts == [8, 8, 8, 8]
