"""The daemon beside a server: it copies what appears, answers how it is, and ends cleanly."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mirror.config import MirrorConfig
from mirror.names import document_name
from mirror.samples import write_corpus, write_litter
from mirror.terminal.stopping import Stopping
from mirror.testing import Fault, FaultProxy, Hang, SeaweedS3, requests_to
from mirror.watch import Watch
from tests.mirror.command_line import Running, run_command, storage_env
from tests.mirror.local_records import write_files
from tests.mirror.mirrors_in_memory import eventually
from tests.mirror.moments import Moments
from tests.mirror.places import S3Place

LISTEN = ("--listen", "127.0.0.1:0")


def health(running: Running) -> Callable[[], tuple[int, dict[str, Any]]]:
    """Wait for the daemon to say where it answers, and return what asks it."""
    url = running.wait_for("health and metrics: ").split("metrics: ")[1].split()[0]

    def ask() -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own http URL
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return ask


def test_it_copies_what_is_there_and_what_appears(tmp_path: Path) -> None:
    """Several directories, one of which comes later; SIGTERM ends it with everything in the mirror."""
    one, two, mirror = tmp_path / "one", tmp_path / "two", tmp_path / "mirror"
    first = write_corpus(one, profile="tiny", count=5, seed=1)
    write_litter(one)
    with Running("watch", "--json", *LISTEN, one, two, mirror) as running:
        ask = health(running)
        running.until(lambda: ask()[1]["mirrored"] >= 5)
        second = write_corpus(two, profile="tiny", count=5, seed=2)
        third = write_corpus(one, profile="tiny", count=5, seed=3)
        running.until(lambda: all((mirror / document_name(one)).exists() for one in [*first, *second, *third]))
        status, found = ask()
        assert (status, found["healthy"], found["breaker"]) == (200, True, "closed")
        running.say(signal.SIGTERM)
        said = running.wait()
    assert (said.code, said.summary["copied"], said.summary["late"]) == (0, 30, 0)
    assert [line["type"] for line in said.lines] == ["summary"]
    assert run_command("verify", "--download", mirror, one, two).code == 0


class StoppingOnce(Stopping):
    """A wish to stop that comes once something holds."""

    def __init__(self, holds: Callable[[], object]) -> None:
        super().__init__()
        self._holds = holds

    def wait(self, _timeout_s: float | None = None) -> bool:
        eventually(self._holds)
        return True


def test_a_watch_that_lost_a_record_is_not_complete(tmp_path: Path, moments: Moments) -> None:
    """Nothing is left to copy, and yet not all is there."""
    records = tmp_path / "records"
    write_files(records, "tr_a")
    moments.before("open", document_name("tr_a"), (records / document_name("tr_a")).unlink)
    daemon = Watch([records], tmp_path / "mirror", MirrorConfig())
    assert not daemon.run(StoppingOnce(lambda: daemon.stats()["lost"]))
    assert daemon.left() == []


def test_a_record_finished_just_before_the_end_is_copied(tmp_path: Path) -> None:
    """The last look does not wait for an event."""
    records = tmp_path / "records"
    write_files(records, "tr_a")
    with Running("watch", "--json", *LISTEN, records, tmp_path / "mirror") as running:
        ask = health(running)
        running.until(lambda: ask()[1]["mirrored"] == 1)
        write_files(records, "tr_b")
        running.say(signal.SIGTERM)
        said = running.wait()
    assert said.code == 0
    assert (tmp_path / "mirror" / document_name("tr_b")).exists()


@pytest.mark.parametrize(("options", "nice"), [((), 10), (("--nice", "0"), 0), (("--nice", "3"), 3)])
def test_it_leaves_the_cpu_to_the_server(tmp_path: Path, options: tuple[str, ...], nice: int) -> None:
    """Beside a server that wants the CPU it steps back, as far as it is told."""
    records, mirror = tmp_path / "records", tmp_path / "mirror"
    write_files(records, "tr_a")
    with Running("watch", *LISTEN, *options, records, mirror) as running:
        running.until((mirror / document_name("tr_a")).exists)
        niceness = os.getpriority(os.PRIO_PROCESS, running.pid)
        running.say(signal.SIGTERM)
        assert running.wait().code == 0
    assert niceness == min(19, os.getpriority(os.PRIO_PROCESS, 0) + nice)


@pytest.mark.integration
def test_a_store_that_is_away_is_unhealthy_until_it_is_back(
    seaweed: SeaweedS3, s3_bucket: str, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """Records wait while it is away, /healthz says so, and everything is copied when it answers again."""
    place = S3Place(seaweed, s3_bucket)
    s3_proxy.down()
    ids = write_corpus(tmp_path / "records", profile="tiny", count=10, seed=1)
    args = ("watch", *LISTEN, "--backoff", "0.05", tmp_path / "records", place.url)
    with Running(*args, env=storage_env(place.options(via=s3_proxy.url))) as running:
        ask = health(running)
        running.until(lambda: ask()[0] == 503)
        assert ask()[1]["problems"][0].startswith("the store does not answer: ")
        s3_proxy.up()
        running.until(lambda: ask()[0] == 200 and ask()[1]["mirrored"] >= 10)
        running.say(signal.SIGTERM)
        assert running.wait().code == 0
    assert {document_name(one) for one in ids} <= set(place.objects())


@pytest.mark.integration
def test_what_is_left_at_the_end_is_named(
    seaweed: SeaweedS3, s3_bucket: str, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """A copy that hangs through the shutdown timeout makes the end partial; an old record makes it unhealthy."""
    place = S3Place(seaweed, s3_bucket)
    for record_id in ("tr_a", "tr_b"):
        write_files(tmp_path / "records", record_id)
    s3_proxy.script(Fault(action=Hang(), match=requests_to("PUT", document_name("tr_b")), times=100))
    limits = ("--shutdown-timeout", "1", "--max-lag", "0.5")
    args = ("watch", "--json", *LISTEN, *limits, tmp_path / "records", place.url)
    with Running(*args, env=storage_env(place.options(via=s3_proxy.url))) as running:
        ask = health(running)
        running.until(lambda: ask()[1]["mirrored"] == 1 and ask()[0] == 503)
        assert "more than 0.5 s" in ask()[1]["problems"][0]
        running.say(signal.SIGTERM)
        said = running.wait()
    assert (said.code, said.summary["copied"], said.summary["late"]) == (3, 1, 1)
    assert [line["id"] for line in said.of_type("late")] == ["tr_b"]
    assert "late, for the next run: tr_b" in said.err


@pytest.mark.integration
def test_a_store_that_refuses_everything_is_not_waited_for(seaweed: SeaweedS3, tmp_path: Path) -> None:
    """However long the shutdown timeout is; nothing was copied, so it failed."""
    write_files(tmp_path / "records", "tr_a")
    url = "s3://no-such-bucket-here/run"
    args = ("watch", "--json", *LISTEN, "--shutdown-timeout", "1h", tmp_path / "records", url)
    with Running(*args, env=storage_env(seaweed.storage_options())) as running:
        ask = health(running)
        running.until(lambda: ask()[1]["breaker"] == "refused" and ask()[1]["submitted"])
        running.say(signal.SIGTERM)
        said = running.wait()
    assert (said.code, said.summary["copied"], said.summary["late"]) == (1, 0, 1)
    assert said.of_type("error")[0]["message"].startswith(f"{url} refuses everything: ")


@pytest.mark.integration
def test_a_second_sigint_ends_at_once(seaweed: SeaweedS3, s3_bucket: str, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    """However long the shutdown timeout is."""
    place = S3Place(seaweed, s3_bucket)
    write_files(tmp_path / "records", "tr_a")
    s3_proxy.script(Fault(action=Hang(), match=requests_to("PUT", document_name("tr_a")), times=100))
    args = ("watch", "--json", *LISTEN, "--shutdown-timeout", "1h", tmp_path / "records", place.url)
    with Running(*args, env=storage_env(place.options(via=s3_proxy.url))) as running:
        ask = health(running)
        running.until(lambda: ask()[1]["pending"] == 1)
        running.say(signal.SIGINT)
        while not running.has_ended(0.5):
            running.say(signal.SIGINT)
        said = running.wait()
    assert (said.code, said.summary["late"]) == (130, 1)
    assert "Traceback" not in said.err


def test_two_daemons_on_one_port(tmp_path: Path) -> None:
    """The second one says so and does not start."""
    (tmp_path / "records").mkdir()
    with Running("watch", *LISTEN, tmp_path / "records", tmp_path / "mirror") as running:
        port = running.wait_for("health and metrics: ").split(":")[-1].split("/")[0]
        second = run_command("watch", "--listen", f"127.0.0.1:{port}", tmp_path / "records", tmp_path / "mirror")
        assert second.code == 2
        assert f"cannot listen on 127.0.0.1:{port}" in second.err
        running.say(signal.SIGTERM)
        assert running.wait().code == 0


def test_listening_is_optional(tmp_path: Path) -> None:
    """With --listen off nothing is served."""
    (tmp_path / "records").mkdir()
    with Running("watch", "--listen", "off", tmp_path / "records", tmp_path / "mirror") as running:
        running.wait_for("watching 1 directory for file://")
        running.say(signal.SIGTERM)
        said = running.wait()
    assert said.code == 0
    assert "health" not in said.err
