"""``record-mirror prune`` against a real S3 server: what a wire and a signal can do to it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mirror.samples import write_corpus
from mirror.testing import Answer, Fault, FaultProxy, FlipReplyBit, Hang, SeaweedS3, requests_to, s3_error
from tests.mirror.command_line import Running, run_command, storage_env
from tests.mirror.places import S3Place

pytestmark = pytest.mark.integration

NOW = ("--json", "--yes", "--older-than", "0", "--attempts", "2", "--backoff", "0.01")


@pytest.fixture
def place(seaweed: SeaweedS3, s3_bucket: str) -> S3Place:
    return S3Place(seaweed, s3_bucket)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "records", profile="tiny", count=30, seed=1)
    return tmp_path / "records"


@pytest.fixture
def env(place: S3Place, s3_proxy: FaultProxy, records: Path) -> dict[str, str]:
    """How the commands reach the server, which has the records: through the proxy."""
    env = storage_env(place.options(via=s3_proxy.url))
    assert run_command("sync", records, place.url, env=env).code == 0
    s3_proxy.clear()
    return env


def files_in(records: Path) -> set[str]:
    """Return the names of the files on disk."""
    return {path.name for path in records.glob("*.zst")}


def whole(records: Path) -> set[str]:
    """Return the ids of what is on disk, each of which must be a whole record."""
    names = files_in(records)
    ids = {name.partition(".")[0] for name in names}
    assert names == {f"{record_id}.{kind}.zst" for record_id in ids for kind in ("json", "tokens")}
    return ids


def test_an_interrupt_ends_it_between_two_records(
    place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path
) -> None:
    """What was deleted is told; the record that hangs is whole, and goes next time."""
    last = min(records.glob("*.json.zst"))
    s3_proxy.script(Fault(action=Hang(), match=requests_to("GET", last.name), times=100))
    with Running("prune", *NOW, records, place.url, env=env) as running:
        running.until(lambda: len(files_in(records)) == 2)
        running.say(signal.SIGINT)
        said = running.wait()
    assert (said.code, said.summary["pruned_records"]) == (130, 29)
    assert whole(records) == {last.name.partition(".")[0]}
    s3_proxy.clear()
    assert run_command("prune", *NOW, records, place.url, env=env).summary["pruned_records"] == 1


def test_an_interrupt_is_heard_while_the_store_hangs(
    place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path
) -> None:
    """Once is enough, also while the receipts are read."""
    s3_proxy.script(Fault(action=Hang(), match=requests_to("GET", "_receipts"), times=100))
    with Running("prune", *NOW, records, place.url, env=env) as running:
        running.until(lambda: s3_proxy.counts["GET"] > 0)
        running.say(signal.SIGINT)
        said = running.wait()
    assert (said.code, said.summary["records"]) == (130, 0)
    assert "Traceback" not in said.err
    assert len(whole(records)) == 30


def test_an_interrupt_is_heard_while_a_place_without_receipts_is_listed(
    place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path
) -> None:
    """Whether there is a mirror at all may take as long to learn as anything else."""

    def lists_files(method: str, path: str) -> bool:
        return method == "GET" and "list-type" in path and "_receipts" not in path

    s3_proxy.script(Fault(action=Hang(), match=lists_files, times=100))
    with Running("prune", *NOW, records, f"{place.url}/elsewhere", env=env) as running:
        running.until(lambda: any(lists_files(seen.method, seen.path) for seen in s3_proxy.requests))
        running.say(signal.SIGINT)
        said = running.wait()
    assert (said.code, said.summary["records"]) == (130, 0)


def test_a_store_that_fails_on_some_keeps_those(
    place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path
) -> None:
    """What could not be checked stays whole and is no damage; the next run goes on."""
    error = Answer(s3_error(500, "InternalError"))
    failing = {path.name for path in records.glob("*[0-7].json.zst")}
    assert 0 < len(failing) < 30
    for name in failing:
        s3_proxy.script(Fault(match=requests_to("GET", name), action=error, times=100))
    said = run_command("prune", *NOW, "--workers", "1", records, place.url, env=env)
    kept = whole(records)
    assert said.code == 5
    assert {f"{record_id}.json.zst" for record_id in kept} >= failing
    assert (said.summary["kept"], said.summary["findings"]) == ({"unchecked": len(kept)}, 0)
    s3_proxy.clear()
    assert run_command("prune", *NOW, records, place.url, env=env).summary["pruned_records"] == len(kept)


def test_a_store_that_is_away_deletes_nothing(
    place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path
) -> None:
    """Could not check is no proof."""
    s3_proxy.down()
    said = run_command("prune", *NOW, records, place.url, env=env)
    assert (said.code, said.summary["exit_code"], len(said.err.splitlines())) == (5, 5, 1)
    assert len(whole(records)) == 30


def test_a_byte_that_flips_on_the_way_back_keeps_its_record(
    place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path
) -> None:
    """The record is not proved to be there."""
    name = min(records.glob("*.json.zst")).name
    s3_proxy.script(Fault(match=requests_to("GET", name), action=FlipReplyBit(), times=100))
    said = run_command("prune", *NOW, records, place.url, env=env)
    assert (said.code, said.summary["pruned_records"]) == (4, 29)
    assert whole(records) == {name.partition(".")[0]}
