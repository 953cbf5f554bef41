"""A run that works, from a capture server's disk to W&B and back: no secret is in anything said, written or logged."""

from __future__ import annotations

import json
import signal
import urllib.request
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirror.samples import write_corpus
from mirror.testing import ADMIN, FakeGcs, SeaweedS3
from references.codec import encode
from references.errors import ReferencesError
from references.pull import pull
from references.spool import Spool, StepKey
from tests.mirror.command_line import Ran, Running, run_command, storage_env
from tests.mirror.places import GcsPlace, S3Place
from tests.mirror.store_kinds import shared_bucket
from tests.references.publishing import step_index, versions
from tests.references.wandb_standin.faults import EVERY_OPERATION, Refuse
from tests.references.whole_runs import SampleRun
from tests.secrets.canaries import files_below, told_by

if TYPE_CHECKING:
    from tests.references.wandb_standin.server import WandbServer

pytestmark = pytest.mark.integration

ENVIRONMENT = {"AWS_SECRET_ACCESS_KEY": "canary-env-secret-0123", "AWS_SESSION_TOKEN": "canary-env-session-0123"}
GCS_TOKEN = "ya29.canary-gcs-access-token"  # noqa: S105 - of nobody


def assert_none(secrets: list[str], *texts: str) -> None:
    """Fail with the secret and what stands around it."""
    for text in texts:
        for secret in secrets:
            at = text.find(secret)
            assert at < 0, f"{secret!r} is in: ...{text[max(0, at - 200) : at + 100]}..."


def said_by(ran: Ran) -> str:
    """Return all that a command said."""
    assert ran.code == 0, ran.err
    return ran.out + ran.err


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_a_run_in_s3_and_wandb(
    driver: str, seaweed: SeaweedS3, wandb_server: WandbServer, client_environment: dict[str, str], tmp_path: Path
) -> None:
    """Logs at their most talkative, pages, receipts, journals, spool, step.json, metadata, manifest, pulled files."""
    place = S3Place(seaweed, shared_bucket(seaweed, versioned=False), f"secrets/{uuid.uuid4().hex}", driver=driver)
    options = storage_env(place.options())
    environment = {**client_environment, **ENVIRONMENT, **options, "RECORD_MIRROR_DRIVER": driver}
    secrets = [ADMIN.secret_key, *ENVIRONMENT.values(), client_environment["WANDB_API_KEY"]]
    sample = SampleRun(place, tmp_path / "records", name=uuid.uuid4().hex[:12])
    index = sample.step(1, ["tr_1", "tr_2"])
    Spool(tmp_path / "spool").put(StepKey(sample.name, "train", 1), encode(index))
    ref = f"team/tests/skycap-records-train-{sample.name}"
    told = [
        said_by(run_command(*command, env=environment))
        for command in (
            ("sync", "-vv", sample.records, place.url),
            ("link", "-vv", f"team/tests/{sample.name}", place.url, "--spool", tmp_path / "spool"),
            ("verify", "-vv", ref),
            ("pull", "-vv", ref, tmp_path / "out"),
            ("status", "--json", sample.records),
        )
    ]
    (version,) = versions(wandb_server, sample.name)
    assert version.entries
    told += [version.metadata, version.manifest.decode()]
    told += [files_below(tmp_path), *(data.decode(errors="replace") for data in place.objects().values())]
    told += watched(place.url, tmp_path / "more", environment)
    assert_none(secrets, *told)


def test_a_run_in_gcs(fake_gcs: FakeGcs, tmp_path: Path) -> None:
    """The same for Google Cloud Storage with an access token."""
    place = GcsPlace(fake_gcs, shared_bucket(fake_gcs, versioned=False), f"secrets/{uuid.uuid4().hex}")
    options = storage_env({**place.options(), "token": GCS_TOKEN})
    environment = {**ENVIRONMENT, **options, "FETCH_RAW_TOKEN_EXPIRY": "false"}  # or gcsfs asks Google about it
    records = tmp_path / "records"
    write_corpus(records, profile="tiny", count=3, seed=1)
    told = [
        said_by(run_command(*command, env=environment))
        for command in (
            ("sync", "-vv", records, place.url),
            ("verify", "-vv", "--download", place.url),
            ("status", place.url),
        )
    ]
    told += [files_below(tmp_path), *(data.decode(errors="replace") for data in place.objects().values())]
    told += watched(place.url, tmp_path / "more", environment)
    assert_none([GCS_TOKEN, *ENVIRONMENT.values()], *told)


def test_wandb_that_repeats_the_key(
    wandb_server: WandbServer, client_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of W&B's client is told without the key, and does not hang on the error that is raised."""
    key = "canary0wandb0key0canary0wandb0key0canary"
    monkeypatch.setenv("WANDB_API_KEY", key)
    name = uuid.uuid4().hex[:12]
    Spool(tmp_path / "spool").put(StepKey(name, "train", 1), encode(step_index(1, run=name, mirrored=0)))
    wandb_server.faults.plan(EVERY_OPERATION, Refuse(message=f"no: {key} Authorization: Basic {key}"), times=None)
    try:
        with pytest.raises(ReferencesError) as refused:
            pull(f"team/tests/skycap-records-train-{name}", tmp_path / "out")
        environment = {**client_environment, "WANDB_API_KEY": key}
        ran = run_command("link", "-vv", f"team/tests/{name}", "--spool", tmp_path / "spool", env=environment)
    finally:
        wandb_server.recover()
    assert ran.code
    assert "no: ***" in str(refused.value)  # what it said is told, as far as it may be
    assert_none([key], told_by(refused.value), ran.out, ran.err, files_below(tmp_path))


def watched(url: str, records: Path, environment: dict[str, str]) -> list[str]:
    """Watch a directory until all of it is copied, and return the pages and the words."""
    ids = write_corpus(records, profile="tiny", count=3, seed=2)
    pages: list[str] = []
    with Running("watch", "-vv", "--listen", "127.0.0.1:0", records, url, env=environment) as running:
        health = running.wait_for("health and metrics: ").split("metrics: ")[1].split()[0]

        def is_done() -> bool:
            with urllib.request.urlopen(health, timeout=10) as answer:  # noqa: S310 - our own http URL
                pages[:] = [answer.read().decode()]
            return bool(json.loads(pages[0])["mirrored"] == len(ids))

        running.until(is_done)
        with urllib.request.urlopen(health.replace("/healthz", "/metrics"), timeout=10) as answer:  # noqa: S310 - likewise
            pages.append(answer.read().decode())
        running.say(signal.SIGTERM)
        return [*pages, said_by(running.wait())]
