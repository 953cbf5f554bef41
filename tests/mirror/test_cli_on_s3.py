"""The commands against a real S3 server: the whole job, a store that fails, and being told to stop."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mirror.names import document_name
from mirror.samples import write_corpus
from mirror.testing import ADMIN, Answer, Fault, FaultProxy, Hang, SeaweedS3, every_request, requests_to, s3_error
from tests.mirror.command_line import Running, run_command, storage_env
from tests.mirror.local_records import write_files
from tests.mirror.places import S3Place

NOBODY = {  # an environment without credentials
    "AWS_ACCESS_KEY_ID": "",
    "AWS_SECRET_ACCESS_KEY": "",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}
pytestmark = pytest.mark.integration


@pytest.fixture
def place(seaweed: SeaweedS3, s3_bucket: str) -> S3Place:
    return S3Place(seaweed, s3_bucket)


@pytest.fixture
def env(place: S3Place, s3_proxy: FaultProxy) -> dict[str, str]:
    """How the commands reach the server: through the proxy."""
    return storage_env(place.options(via=s3_proxy.url))


@pytest.fixture
def records(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "records", profile="tiny", count=30, seed=1)
    return tmp_path / "records"


def test_the_whole_job(place: S3Place, seaweed: SeaweedS3, records: Path) -> None:
    """Copied, verified, damaged, found, repaired, verified, with flags alone; and nothing is sent twice."""
    store = (
        *("--endpoint-url", seaweed.url, "--storage-option", f"key={ADMIN.access_key}"),
        *("--storage-option", f"secret={ADMIN.secret_key}", "--storage-option", "client_kwargs.region_name=us-east-1"),
    )
    copied = run_command("sync", "--json", *store, records, place.url)
    assert (copied.code, copied.summary["copied"]) == (0, 60)
    assert ADMIN.secret_key not in copied.out + copied.err
    assert run_command("verify", "--download", *store, place.url, records).code == 0
    names = sorted(path.name for path in records.glob("*.zst"))
    client = seaweed.client()
    client.delete_object(Bucket=place.bucket, Key=f"{place.prefix}/{names[0]}")
    client.put_object(Bucket=place.bucket, Key=f"{place.prefix}/{names[9]}", Body=b"other bytes")
    found = run_command("verify", "--json", *store, place.url, records)
    assert found.code == 4
    assert {finding["name"]: finding["kind"] for finding in found.of_type("finding")} == {
        names[0]: "missing",
        names[9]: "wrong_size",
    }
    assert run_command("repair", "--json", *store, place.url, records).summary["copied"] == 2
    assert run_command("verify", "--download", *store, place.url, records).code == 0
    status = run_command("status", "--json", *store, place.url)
    assert (status.summary["records"], status.summary["files"]) == (30, 60)


def test_a_second_run_makes_no_write(place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path) -> None:
    """What a receipt beside the records covers is neither sent nor asked for."""
    assert run_command("sync", records, place.url, env=env).code == 0
    before = s3_proxy.counts
    second = run_command("sync", records, place.url, env=env)
    assert second.out.startswith("nothing to do: by their receipts all 60 files are in ")
    assert s3_proxy.counts == before


def test_a_store_that_refuses_everything_ends_the_run(seaweed: SeaweedS3, records: Path) -> None:
    """A bucket that does not exist is said once, and nothing waits for it."""
    env = storage_env(seaweed.storage_options())
    said = run_command("sync", "--json", records, "s3://no-such-bucket-here/run", env=env)
    assert (said.code, said.summary["copied"], said.summary["late"], said.summary["ended"]) == (1, 0, 60, "refused")
    message = said.of_type("error")[0]["message"]
    assert message.startswith("s3://no-such-bucket-here/run refuses everything: ")
    assert {found["id"] for found in said.of_type("late")} == {
        path.name.split(".")[0] for path in records.iterdir()
    } - {""}


def test_what_is_wrong_with_the_store_is_one_sentence(seaweed: SeaweedS3, place: S3Place, records: Path) -> None:
    """With what to do next, at once; then the counts. Neither a log line nor a library's frame says it again."""
    wrong_secret = storage_env({**seaweed.storage_options(), "secret": "wrong"})
    nobody = {**storage_env({"endpoint_url": seaweed.url}), **NOBODY}
    cases = [
        ("s3://no-such-bucket-here/run", storage_env(seaweed.storage_options()), "create the bucket, or correct"),
        (place.url, wrong_secret, "check the access key and its secret"),
        (place.url, nobody, "set AWS_PROFILE, or AWS_ACCESS_KEY_ID"),
        (place.url, {**nobody, "AWS_PROFILE": "nobody"}, "correct AWS_PROFILE"),
    ]
    for url, env, advice in cases:
        said = run_command("sync", records, url, env=env)
        assert (said.code, len(said.err.splitlines()), len(said.out.splitlines())) == (1, 1, 1), said.err
        assert said.err.startswith(f"error: {url} refuses everything: ")
        assert advice in said.err
        for command in ("verify", "status"):
            said = run_command(command, url, env=env)
            assert (said.code, said.out, len(said.err.splitlines())) == (5, "", 1), said.err
            assert said.err.startswith(f"error: {url}: ")
            assert advice in said.err
            assert "_receipts" not in said.err


def test_a_server_that_takes_no_upload_is_given_up(
    place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path
) -> None:
    """Not record by record: the store is asked, and nothing counts as failed."""
    s3_proxy.script(Fault(action=Answer(s3_error(405, "MethodNotAllowed")), match=requests_to("PUT", ""), times=1_000))
    said = run_command("sync", "--json", records, place.url, env=env)
    assert (said.code, said.summary["failed"], said.summary["late"], said.summary["ended"]) == (1, 0, 60, "refused")
    assert len(said.err.splitlines()) == 1


def test_a_store_that_is_away_is_given_up(
    place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path
) -> None:
    """After --give-up-after the run ends and names what is late; the next run copies it."""
    s3_proxy.down()
    args = ("sync", "--json", "--give-up-after", "1", "--backoff", "0.05", records, place.url)
    said = run_command(*args, env=env)
    assert (said.code, said.summary["late"], said.summary["ended"]) == (1, 60, "away")
    assert "late, for the next run: tr_" in said.err
    assert said.of_type("error")[0]["message"].startswith(f"{place.url} does not answer: ")
    s3_proxy.up()
    assert run_command(*args, env=env).summary["copied"] == 60


def test_checks_that_cannot_run_say_so(place: S3Place, s3_proxy: FaultProxy, env: dict[str, str]) -> None:
    """A store that is away is no damage: code 5."""
    s3_proxy.down()
    for command in ("verify", "status"):
        said = run_command(command, "--json", "--attempts", "1", place.url, env=env)
        assert said.code == 5
        assert [found["type"] for found in said.lines] == ["error", "summary"]


def test_one_file_that_hangs_makes_the_run_partial(
    place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path
) -> None:
    """When --max-duration is over, what is under way gets the shutdown timeout, and the rest is late."""
    name = next(iter(sorted(path.name for path in records.glob("*.json.zst"))))
    s3_proxy.script(Fault(action=Hang(), match=requests_to("PUT", name), times=100))
    limits = ("--max-duration", "4", "--shutdown-timeout", "0.5")
    said = run_command("sync", "--json", *limits, records, place.url, env=env)
    assert (said.code, said.summary["ended"]) == (3, "out_of_time")
    assert (said.summary["copied"], said.summary["late"]) == (58, 2)
    assert [found["id"] for found in said.of_type("late")] == [name.split(".")[0]]


def test_sigterm_drains_and_names_what_is_left(
    place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], tmp_path: Path
) -> None:
    """What is under way gets the shutdown timeout; then the run ends, and the next one copies the rest."""
    for record_id in ("tr_a", "tr_b"):
        write_files(tmp_path / "records", record_id)
    s3_proxy.script(Fault(action=Hang(), match=requests_to("PUT", document_name("tr_b")), times=100))
    args = ("sync", "--json", "--shutdown-timeout", "1", tmp_path / "records", place.url)
    with Running(*args, env=env) as running:
        running.until(lambda: document_name("tr_a") in place.objects())
        running.say(signal.SIGTERM)
        said = running.wait()
    assert (said.code, said.summary["ended"], said.summary["copied"], said.summary["late"]) == (3, "terminated", 1, 1)
    assert "late, for the next run: tr_b" in said.err
    s3_proxy.clear()
    assert run_command(*args, env=env).summary["copied"] == 1


def test_sigint_drains_and_ends_in_its_own_code(
    place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path
) -> None:
    """Interrupted is told apart from partial."""
    s3_proxy.script(Fault(action=Hang(), match=every_request, times=10_000))
    with Running("sync", "--json", "--shutdown-timeout", "0.5", records, place.url, env=env) as running:
        running.until(lambda: s3_proxy.counts["PUT"] > 0)
        running.say(signal.SIGINT)
        said = running.wait()
    assert (said.code, said.summary["ended"], said.summary["late"]) == (130, "interrupted", 60)
    assert "Traceback" not in said.err


def test_a_second_sigint_ends_at_once(place: S3Place, s3_proxy: FaultProxy, env: dict[str, str], records: Path) -> None:
    """However long the shutdown timeout is."""
    s3_proxy.script(Fault(action=Hang(), match=every_request, times=10_000))
    with Running("sync", "--json", "--shutdown-timeout", "1h", records, place.url, env=env) as running:
        running.until(lambda: s3_proxy.counts["PUT"] > 0)
        running.say(signal.SIGINT)
        while not running.has_ended(0.5):
            running.say(signal.SIGINT)
        said = running.wait()
    assert said.code == 130
    assert said.summary["ended"] == "interrupted"
    assert "Traceback" not in said.err


def test_why_records_are_late_is_told(tmp_path: Path) -> None:
    """Also where one attempt was all that a request had, and only errors are wanted."""
    write_files(tmp_path / "records", "tr_a")
    limits = ("--attempts", "1", "--endpoint-url", "http://127.0.0.1:9", "-q")
    said = run_command("sync", *limits, tmp_path / "records", "s3://bucket/run", env={"AWS_SECRET_ACCESS_KEY": "x"})
    assert (said.code, "the last error: " in said.err, "127.0.0.1:9" in said.err) == (1, True, True), said.err
