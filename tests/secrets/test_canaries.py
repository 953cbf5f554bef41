"""Every place that may hold a secret gets a canary; none is ever seen in anything that this package says or writes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mirror import MirrorConfig, MirrorError, RecordMirror, verify
from mirror.samples import write_corpus
from mirror.status import read_mirror
from mirror.terminal.commands import run
from mirror.testing import FaultProxy, Reply
from references.cli import commands
from references.errors import ReferencesError
from references.pull import pull
from tests.references.publishing import wait_until
from tests.secrets import canaries

DRIVERS = ("s3-obstore", "s3-fsspec", "s3-deep", "gcs", "gcs-account", "webhdfs")
REFUSALS = (
    *((403, "AccessDenied"), (403, "ExpiredToken"), (400, "AuthorizationHeaderMalformed"), (404, "NoSuchBucket")),
    *((503, "SlowDown"), (200, "OK")),
)


@dataclass
class Echo:
    """A store that refuses everything and repeats what it was asked with."""

    status: int = 403
    code: str = "AccessDenied"
    known: str = ""  # holds the secrets that a store with these options is given
    asked: list[str] = field(default_factory=list)

    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:  # noqa: ARG002 - unused
        self.asked.append(f"{path} {dict(headers)}")
        return canaries.echo(self.status, self.code, path, headers, self.known)


@dataclass(frozen=True)
class Victim:
    """A mirror at the echoing store, by one of the drivers."""

    echo: Echo
    url: str
    options: dict[str, Any]
    driver: str

    @property
    def config(self) -> MirrorConfig:
        """Settings that give up soon."""
        return MirrorConfig(
            attempts=2, backoff_s=0.01, timeout_s=5, workers=4, driver=self.driver, storage_options=self.options
        )


@pytest.fixture(params=DRIVERS)
def victim(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    """Each driver, with canaries in its options and in the environment."""
    for name, value in canaries.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    echo = Echo()
    kind, _, driver = request.param.partition("-")
    with FaultProxy("http://127.0.0.1:9", check_request=echo) as proxy:
        host = proxy.url.removeprefix("http://")
        url, options = {
            "s3": ("s3://bucket/run-7", canaries.s3_options(proxy.url)),
            "gcs": ("gs://bucket/run-7", canaries.gcs_options(proxy.url)),
            "webhdfs": (f"webhdfs://me:{canaries.URL_PASSWORD}@{host}/run-7", {}),
        }[kind]
        options = {
            "deep": canaries.deep_s3_options(proxy.url),
            "account": canaries.gcs_account_options(proxy.url),
        }.get(driver, options)
        echo.known = f"{url} {options}"
        yield Victim(echo, url, options, {"obstore": "obstore", "fsspec": "fsspec"}.get(driver, "auto"))


def assert_none_in(text: str) -> None:
    """Fail with the canary and the place, and not with a page of text."""
    for secret in canaries.found_in(text):
        at = text.index(secret) if secret in text else 0
        raise AssertionError(f"{secret!r} is in: ...{text[max(0, at - 300) : at + 100]}...")


@pytest.mark.parametrize(("status", "code"), REFUSALS)
def test_no_error_holds_a_secret(
    victim: Victim, status: int, code: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither its sentence, nor its traceback, nor the errors that it came from; nor the log at its most talkative."""
    victim.echo.status, victim.echo.code = status, code
    caplog.set_level(logging.DEBUG, logger="mirror")
    caplog.set_level(logging.DEBUG, logger="references")
    told: list[str] = []
    calls: list[Callable[[], object]] = [
        lambda: verify(victim.url, config=victim.config),
        lambda: read_mirror(victim.url, victim.config),
        lambda: pull(victim.url, tmp_path / "out", config=victim.config),
    ]
    for call in calls:
        try:
            told.append(repr(call()))
        except (MirrorError, ReferencesError) as error:
            told.append(canaries.told_by(error))
    assert told
    assert_none_in("\n".join([*told, caplog.text]))


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (500, "InternalError")])
def test_no_mirror_tells_a_secret(
    victim: Victim, status: int, code: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In its log, its stats, its repr, what is left of it, or anything that it writes beside the records."""
    victim.echo.status, victim.echo.code = status, code
    caplog.set_level(logging.DEBUG, logger="mirror")
    records = tmp_path / "records"
    ids = write_corpus(records, profile="tiny", count=3, seed=1)
    mirror = RecordMirror(
        victim.url, storage_options=victim.options, driver=victim.driver, attempts=2, backoff_s=0.01, rescan_s=0.2
    )
    mirror.start()
    mirror.scan(records)
    wait_until(lambda: bool(mirror.stats()["last_error"]))
    found = [mirror.locate(records, record_id) for record_id in ids]
    told = [
        repr(mirror),
        repr(mirror.stats()),
        json.dumps(mirror.stats()),
        repr(mirror.config),
        repr(found),
        mirror.url,
    ]
    told += [repr(mirror.left())]
    mirror.close(0.1)
    assert_none_in("\n".join([*told, caplog.text, canaries.files_below(records)]))


COMMANDS = (
    *(("sync", "RECORDS", "URL"), ("verify", "--download", "URL", "RECORDS"), ("repair", "URL", "RECORDS")),
    *(("prune", "RECORDS", "URL"), ("status", "URL"), ("ls", "URL"), ("pull", "URL", "OUT")),
)


@pytest.mark.parametrize("how", ["-vv", "--json"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_tells_a_secret(
    victim: Victim,
    command: tuple[str, ...],
    how: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """On either stream, in words or in JSON, or in what it writes."""
    records = tmp_path / "records"
    write_corpus(records, profile="tiny", count=2, seed=1)
    monkeypatch.setenv("RECORD_MIRROR_STORAGE_OPTIONS", json.dumps(victim.options))
    words = {"RECORDS": str(records), "URL": victim.url, "OUT": str(tmp_path / "out")}
    patience = {"sync": ["--give-up-after", "1s"]}.get(command[0], [])
    settings = ["--attempts", "2", "--backoff", "0.01", "--timeout", "5", "--driver", victim.driver]
    code = run(commands, [command[0], how, *patience, *settings, *(words.get(word, word) for word in command[1:])])
    said = capfd.readouterr()
    assert code != 2, said.err
    assert said.out + said.err
    assert_none_in("\n".join([said.out, said.err, canaries.files_below(tmp_path)]))
