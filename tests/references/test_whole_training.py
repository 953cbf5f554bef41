"""The main job from end to end: records written, mirrored, indexed while training goes on, and brought back."""

from __future__ import annotations

import json
import os
import random
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import wandb

from mirror import MirrorConfig
from mirror.store import WHOLE_BYTES
from mirror.testing import ADMIN, FaultProxy
from references import Verdict, decode, link, list_steps, pull
from references.seams import PublishSettings
from references.spool import Spool
from tests.mirror.local_records import tree
from tests.mirror.places import DirectoryPlace, Place, S3Place
from tests.references.publishing import helpers, publisher_threads, versions
from tests.references.wandb_standin.faults import Delay, Hang, LoseReply, Status
from tests.references.whole_training import Cluster, make_callback, plan, train

if TYPE_CHECKING:
    from tests.references.wandb_standin.server import WandbServer

pytestmark = pytest.mark.integration

STEPS = (1, 2, 3)
ENDPOINTS = ("AWS_S3_ENDPOINT_URL", "AWS_ENDPOINT_URL")  # W&B's, and botocore's


@pytest.fixture(params=["s3", "s3_versioned", "directory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where the run's mirror is."""
    if request.param == "directory":
        return DirectoryPlace(tmp_path / "mirror")
    seaweed = request.getfixturevalue("seaweed")
    bucket = seaweed.make_bucket(f"whole-{uuid.uuid4().hex[:8]}", versioned=request.param == "s3_versioned")
    return S3Place(seaweed, bucket)


def referenced(version: Any) -> set[str]:  # noqa: ANN401 - the stand-in's version
    return {path.removeprefix("records/") for path in version.entries if path != "step.json"}


def test_what_trained_is_what_is_downloaded_and_pulled(
    place: Place,
    wandb_server: WandbServer,
    own_run: wandb.Run,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three steps of 64 samples, with retries and records on one node only, in single and multipart objects.

    W&B's own download returns every referenced file with the right bytes; logging made no request to the store but
    for receipts and the step index; a pull gives the same files.
    """
    large = {"tr_s2t0_0_0": random.Random(7).randbytes(WHOLE_BYTES + 1)}  # noqa: S311 - sample data
    cluster = Cluster(tmp_path, place, large)
    store_url = place.server.url if isinstance(place, S3Place) else "http://127.0.0.1:9"
    with FaultProxy(store_url) as proxy:
        for variable in ENDPOINTS:
            monkeypatch.setenv(variable, proxy.url)
        callback = make_callback(cluster, tmp_path, via=proxy.url)
        train(cluster, callback, own_run, plan(range(1, 4)))
        asked = list(proxy.requests)
    cluster.close()
    assert callback.stats()["logged"] == len(STEPS)
    assert callback.stats()["spooled"] == 0
    assert all("_receipts" in one.path or "/index/train/step-" in one.path for one in asked)

    for variable in ENDPOINTS:
        monkeypatch.setenv(variable, store_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ADMIN.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ADMIN.secret_key)
    downloaded: dict[str, bytes] = {}
    for step in STEPS:
        artifact = wandb.Api().artifact(f"team/tests/skycap-records-train-{name}:train-step-{step}")
        root = Path(artifact.download(root=str(tmp_path / f"step-{step}")))
        artifact.verify(str(root))
        downloaded |= {path.name: path.read_bytes() for path in (root / "records").iterdir()}
        index = decode((root / "step.json").read_bytes())
        trained = [row for row in index.rows if row.trained]
        assert (len(trained), sum(row.superseded for row in index.rows)) == (64, len(index.rows) - 64)
        assert any(row.record is not None and row.record.mirror is None for row in index.rows)

    assert downloaded == cluster.files()
    assert set().union(*map(referenced, versions(wandb_server, name))) == set(downloaded)
    out = tmp_path / "out"
    summary = pull(place.url, out, config=MirrorConfig(storage_options=place.options()))
    assert (summary.not_pulled, summary.bad_steps) == ([], [])
    assert {path: data for path, data in tree(out / "train").items() if path.endswith(".zst")} == downloaded
    assert len(summary.local_only) == sum(1 for _ in cluster.unmirrored.glob("*.json.zst"))


WEATHER: dict[str, Callable[[WandbServer], None]] = {
    "hanging": lambda server: server.faults.plan("*", Hang(), times=None),
    "down": lambda server: server.down(),
    "refusing": lambda server: server.faults.plan("CreateArtifact", Status(code=403), times=None),
    "failing": lambda server: server.faults.plan("*", Status(code=500), times=None),
    "slow": lambda server: server.faults.plan("*", Delay(seconds=0.2), times=None),
    "losing_the_commit_reply": lambda server: server.faults.plan("CommitArtifact", LoseReply(), times=None),
    "absent": lambda _server: None,
}


@pytest.mark.parametrize("weather", WEATHER)
def test_whatever_wandb_does_training_goes_on_and_link_makes_up_for_it(
    weather: str, wandb_server: WandbServer, own_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """For the whole run: no exception, no thread left, and in the end exactly one version per step, with references."""
    cluster = Cluster(tmp_path, DirectoryPlace(tmp_path / "mirror"), is_prompt=True)
    WEATHER[weather](wandb_server)
    callback = make_callback(cluster, tmp_path, timeout=2, attempts=2, backoff=0.05, shutdown_timeout=3)

    train(cluster, callback, None if weather == "absent" else own_run, plan(range(1, 4), samples=8))

    assert (publisher_threads(), helpers()) == ([], [])
    wandb_server.recover()
    own_run.finish()
    cluster.close()
    link(
        f"team/tests/{name}",
        spool=tmp_path / "spool",
        settings=PublishSettings(timeout_s=30, backoff_s=0.05),
        adopt=weather == "absent",
        force=True,  # the run is over, though a W&B that was away may not have heard of it
    )

    found = versions(wandb_server, name)
    assert sorted(json.loads(version.metadata)["global_step"] for version in found) == list(STEPS)
    assert {alias for version in found for alias in version.aliases} == {"latest", *(f"train-step-{n}" for n in STEPS)}
    assert set().union(*map(referenced, found)) == set(cluster.files())
    assert Spool(tmp_path / "spool").count() == 0


def test_an_offline_run_is_linked_after_its_staging_directory_is_gone(
    wandb_server: WandbServer, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is warned of or counted as failed, and every step is published all the same."""
    scratch = tmp_path / "wandb"
    scratch.mkdir()
    run = wandb.init(project="tests", id=name, mode="offline", reinit="create_new", dir=str(scratch))
    cluster = Cluster(tmp_path, DirectoryPlace(tmp_path / "mirror"))
    callback = make_callback(cluster, tmp_path)
    train(cluster, callback, run, plan(range(1, 4), samples=8))
    cluster.close()
    run.finish()
    shutil.rmtree(scratch)
    shutil.rmtree(Path(os.environ["WANDB_DATA_DIR"]) / "artifacts" / "staging", ignore_errors=True)

    stats = callback.stats()
    assert (stats["offline"], stats["failed"], stats["timed_out"], stats["dropped"]) == (3, 0, 0, 0)
    assert not [one for one in caplog.records if one.levelname != "INFO" and one.name.startswith("references")]
    assert versions(wandb_server, name) == []
    summary = link(f"team/tests/{name}", spool=tmp_path / "spool")

    assert [(step.step, step.verdict, step.error) for step in summary.steps] == [(n, Verdict.LOG, None) for n in STEPS]
    assert set().union(*map(referenced, versions(wandb_server, name))) == set(cluster.files())


def test_a_run_that_goes_back(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """Resumed at step 3 after step 5: the steps run again take their aliases, all else stays where it was."""
    place = DirectoryPlace(tmp_path / "mirror")
    records = tmp_path / "records"
    for resumed, steps in (("", range(1, 6)), ("again_", range(3, 5))):
        run = wandb.init(project="tests", id=name, reinit="create_new", resume="allow")
        cluster = Cluster(tmp_path, place, resumed=resumed)
        callback = make_callback(cluster, tmp_path)
        train(cluster, callback, run, plan(steps, samples=8), first_step=steps[0])
        cluster.close()
        assert callback.stats()["logged"] == len(steps)
        run.finish()

    found = {alias: version.index for version in versions(wandb_server, name) for alias in version.aliases}
    assert found == {
        **{f"train-step-{step}": number for step, number in {1: 0, 2: 1, 3: 5, 4: 6, 5: 4}.items()},
        "latest": 4,
    }
    ref = f"team/tests/skycap-records-train-{name}"
    facts = list_steps(ref, allow_protocols=["file"])
    assert [(step.known.step, step.known.contents, step.known.is_left_behind) for step in facts.steps] == [
        (1, 1, False),
        (2, 1, False),
        (3, 2, False),
        (4, 2, False),
        (5, 1, True),
    ]
    for source, out in ((ref, tmp_path / "by-artifact"), (place.url, tmp_path / "by-url")):
        assert pull(source, out, allow_protocols=["file"]).is_complete
        documents = {path.name for path in (out / "train").glob("*.json.zst")}
        assert {name for name in documents if "s3t" in name or "s4t" in name} == {
            path.name for path in records.glob("tr_again_*.json.zst")
        }
