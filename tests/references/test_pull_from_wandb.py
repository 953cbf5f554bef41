"""A run pulled by its artifact in W&B, through the real client."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import wandb

from mirror import MirrorConfig
from mirror.testing import SeaweedS3
from references.artifact_name import ARTIFACT_TYPE, artifact_name
from references.codec import encode
from references.errors import SourceError
from references.pull import pull
from references.pull_plan import PullSummary, Why
from references.run_index import RecordLocation, StepIndex
from references.selection import Selection
from tests.mirror.local_records import tree
from tests.mirror.places import DirectoryPlace, S3Place
from tests.references.whole_runs import SampleRun, artifact_path, log_step

if TYPE_CHECKING:
    from tests.references.wandb_standin.server import WandbServer

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PULL = """
import sys
from references.pull import pull
assert pull(sys.argv[1], sys.argv[2], allow_protocols=["file"]).is_complete
"""


@pytest.fixture
def local_run(tmp_path: Path) -> SampleRun:
    """A run whose mirror is a directory, with a name that no other test logs to."""
    return SampleRun(DirectoryPlace(tmp_path / "mirror"), tmp_path / "records", name=uuid.uuid4().hex[:12])


def log(run: wandb.Run, sample: SampleRun, index: StepIndex, **options: Any) -> str:  # noqa: ANN401 - of log_step
    """Log a step of a run to its artifact."""
    return log_step(run, index, sample.receipts(), name=artifact_name(index.phase, sample.name), **options)


def ref(run: wandb.Run, sample: SampleRun, alias: str = "") -> str:
    """Return how a user names a run's artifact."""
    return artifact_path(run, artifact_name("train", sample.name)) + (f":{alias}" if alias else "")


def pulled(source: str, out: Path, **options: Any) -> PullSummary:  # noqa: ANN401 - options of a pull
    """Pull, with a mirror in a directory allowed."""
    return pull(source, out, **{"allow_protocols": ["file"], **options})


def test_a_run_is_pulled_by_its_artifact(
    wandb_run: wandb.Run, seaweed: SeaweedS3, s3_bucket: str, tmp_path: Path
) -> None:
    """Each step's newest index from W&B, the records from the mirror with the caller's own credentials."""
    sample = SampleRun(S3Place(seaweed, s3_bucket), tmp_path / "records", name=uuid.uuid4().hex[:12])
    for step in (1, 2):
        log(wandb_run, sample, sample.step(step, [f"tr_{step}a", f"tr_{step}b"]))
    config = MirrorConfig(storage_options=sample.place.options())
    summary = pull(ref(wandb_run, sample), tmp_path / "out", config=config)
    assert (summary.steps, summary.copied_records, summary.is_complete) == (2, 4, True)
    assert tree(tmp_path / "out" / "train") == sample.pulled()
    assert pull(ref(wandb_run, sample), tmp_path / "out", config=config).unchanged_records == 4


def test_of_a_version_only_step_json_is_downloaded(
    wandb_server: WandbServer,
    wandb_run: wandb.Run,
    client_environment: dict[str, str],
    local_run: SampleRun,
    tmp_path: Path,
) -> None:
    """By a client that has nothing in its cache: one file of W&B's own, and nothing is logged or changed."""
    log(wandb_run, local_run, local_run.step(1, ["tr_a", "tr_b"]))
    asked_before = len(wandb_server.requests())
    out = tmp_path / "out"
    command = [sys.executable, "-c", PULL, ref(wandb_run, local_run), str(out)]
    done = subprocess.run(  # noqa: S603 - our own command
        command, cwd=ROOT, env=client_environment, timeout=120, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    asked = wandb_server.requests()[asked_before:]
    assert done.stdout == ""
    assert tree(out / "train") == local_run.pulled()
    assert len([request for request in asked if request.operation in {"GetFile", "GetBlob"}]) == 1
    assert not {request.operation for request in asked} & {"CreateArtifact", "UpdateArtifact", "PutManifest", "PutFile"}


def test_with_a_mirrors_url_wandb_is_not_asked(
    wandb_server: WandbServer, wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path
) -> None:
    """It is not even imported for it; here: no request reaches it."""
    log(wandb_run, local_run, local_run.step(1, ["tr_a"]))
    wandb_server.down()
    assert pull(local_run.place.url, tmp_path / "out").is_complete


def test_an_alias_or_a_version_gives_that_version(wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path) -> None:
    """And no other step."""
    for step in (1, 2, 3):
        log(wandb_run, local_run, local_run.step(step, [f"tr_{step}"]))
    for alias, step in (("train-step-2", 2), ("latest", 3), ("v0", 1)):
        out = tmp_path / alias
        assert pulled(ref(wandb_run, local_run, alias), out).copied_records == 1
        assert f"tr_{step}.json.zst" in tree(out / "train")


def test_the_newest_version_of_a_step_wins(wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path) -> None:
    """After a resume at step 1 its later version counts; W&B lists newest first, and its order is of no account."""
    first = local_run.step(1, ["tr_old"])
    log(wandb_run, local_run, first)
    log(wandb_run, local_run, local_run.step(2, ["tr_2"]))
    del local_run.steps["train", 1]
    log(wandb_run, local_run, local_run.step(1, ["tr_new"]))
    pulled(ref(wandb_run, local_run), tmp_path / "out")
    assert tree(tmp_path / "out" / "train") == local_run.pulled()
    pulled(ref(wandb_run, local_run, "v0"), tmp_path / "old")
    assert (tmp_path / "old" / "train" / "index" / "step-1.json").read_bytes() == encode(first)


def test_only_the_wanted_steps_are_downloaded(
    wandb_server: WandbServer, wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path
) -> None:
    """The listing says which version is which step."""
    for step in (1, 2, 3):
        log(wandb_run, local_run, local_run.step(step, [f"tr_{step}"]))
    before = len(wandb_server.requests("GetManifest"))
    pulled(ref(wandb_run, local_run), tmp_path / "out", selection=Selection(steps=[2]))
    assert len(wandb_server.requests("GetManifest")) == before + 1
    assert sorted(tree(tmp_path / "out" / "train" / "index")) == ["step-2.json"]


def test_a_mirror_on_this_machine_needs_leave(wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path) -> None:
    """An artifact must not decide which files of the reader's machine are read."""
    log(wandb_run, local_run, local_run.step(1, ["tr_a"]))
    summary = pull(ref(wandb_run, local_run), tmp_path / "out")
    assert [record.why for record in summary.not_pulled] == [Why.REFUSED]
    assert "allow its protocol (file)" in summary.not_pulled[0].detail
    assert pulled(ref(wandb_run, local_run), tmp_path / "out").is_complete


@pytest.mark.parametrize(
    "mirror",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "local:///etc/passwd",
        "etc/passwd",
        "memory://x/tr_a.json.zst",
        "http://169.254.169.254/latest/tr_a.json.zst",
        "sftp://10.0.0.1/tr_a.json.zst",
        "simplecache::s3://bucket/tr_a.json.zst",
        "zip://x.zip::s3://bucket/tr_a.json.zst",
        "s3:///tr_a.json.zst",
        "s3://key:secret@bucket/tr_a.json.zst",
        "nonsense://bucket/tr_a.json.zst",
        "",
        "tr_a",
    ],
)
def test_a_row_that_names_an_untrusted_mirror_is_refused(
    wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path, mirror: str
) -> None:
    """It is named, nothing is opened for it, and other records come."""
    index = local_run.step(1, ["tr_a"])
    evil = local_run.row("tr_evil", RecordLocation(path="/x", mirror=mirror))
    index = StepIndex(run=index.run, phase="train", step=1, rows=(*index.rows, evil))
    log(wandb_run, local_run, index)
    allowed = [] if mirror.startswith(("file", "local", "/", "etc")) else ["file"]
    summary = pull(ref(wandb_run, local_run), tmp_path / "out", allow_protocols=allowed)
    assert ("tr_evil", Why.REFUSED) in [(record.record_id, record.why) for record in summary.not_pulled]
    assert summary.copied_records == len(allowed)
    assert "secret" not in str(summary)


def test_a_mirror_that_cannot_be_read_hides_no_other(
    wandb_run: wandb.Run, local_run: SampleRun, seaweed: SeaweedS3, tmp_path: Path
) -> None:
    """Records of a bucket that is not there are unreadable; those of another mirror come."""
    index = local_run.step(1, ["tr_a"])
    gone = [local_run.row(f"tr_{n}", RecordLocation(path="/x", mirror=f"s3://gone/tr_{n}.json.zst")) for n in range(3)]
    log(wandb_run, local_run, StepIndex(run=index.run, phase="train", step=1, rows=(*gone, *index.rows)))
    config = MirrorConfig(storage_options=seaweed.storage_options(), attempts=1)
    summary = pulled(ref(wandb_run, local_run), tmp_path / "out", config=config)
    assert [record.why for record in summary.not_pulled] == [Why.UNREADABLE] * 3
    assert summary.copied_records == 1


def test_an_artifact_may_not_name_any_number_of_mirrors(
    wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path
) -> None:
    """Each would be opened and listed."""
    rows = [
        local_run.row(f"tr_{n}", RecordLocation(path="/x", mirror=f"{tmp_path}/m{n}/tr_{n}.json.zst"))
        for n in range(40)
    ]
    log(wandb_run, local_run, StepIndex(run=local_run.name, phase="train", step=1, rows=tuple(rows)))
    whys = [record.why for record in pulled(ref(wandb_run, local_run), tmp_path / "out").not_pulled]
    assert (whys.count(Why.MISSING), whys.count(Why.REFUSED)) == (32, 8)


def test_a_step_json_that_is_a_reference_is_not_followed(
    wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path
) -> None:
    """It could make the reader's own client read any file of theirs."""
    secret = tmp_path / "secret"
    secret.write_bytes(encode(StepIndex(run="r", phase="train", step=1, rows=())))
    artifact = wandb.Artifact(artifact_name("train", local_run.name), ARTIFACT_TYPE, metadata={"global_step": 1})
    artifact.add_reference(secret.as_uri(), name="step.json")
    wandb_run.log_artifact(artifact).wait(timeout=30)
    summary = pulled(ref(wandb_run, local_run), tmp_path / "out")
    assert ["not followed" in bad.reason for bad in summary.bad_steps] == [True]
    assert tree(tmp_path / "out") == {}


@pytest.mark.parametrize(
    "step_file",
    [b"nonsense", encode(StepIndex(run="r", phase="eval", step=1, rows=())), b'{"format_version": 2}'],
    ids=["nonsense", "another phase", "unknown version"],
)
def test_a_bad_step_json_is_named(wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path, step_file: bytes) -> None:
    """The other steps come."""
    log(wandb_run, local_run, local_run.step(1, ["tr_a"]), step_file=step_file)
    log(wandb_run, local_run, local_run.step(2, ["tr_b"]))
    summary = pulled(ref(wandb_run, local_run), tmp_path / "out")
    assert [(bad.known.step, bad.known.origin) for bad in summary.bad_steps] == [(1, "v0")]
    assert summary.copied_records == 1


def test_versions_without_a_step_are_passed_over(wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path) -> None:
    """Whatever else is logged under the name is none of the run's steps."""
    log(wandb_run, local_run, local_run.step(1, ["tr_a"]))
    log(wandb_run, local_run, local_run.step(2, ["tr_b"]), metadata={"global_step": "two"})
    log(wandb_run, local_run, local_run.step(3, ["tr_c"]), metadata={"global_step": -1})
    summary = pulled(ref(wandb_run, local_run), tmp_path / "out")
    assert (summary.steps, summary.bad_steps) == (1, [])


@pytest.mark.parametrize("alias", ["", "latest"])
def test_an_artifact_that_is_not_there_is_an_error(
    wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path, alias: str
) -> None:
    """One sentence names it and what to look at."""
    with pytest.raises(SourceError, match="check its name"):
        pulled(ref(wandb_run, local_run, alias), tmp_path / "out")


def test_records_of_more_than_one_page_of_versions_come(
    wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path
) -> None:
    """W&B lists fifty versions at a time."""
    index = local_run.step(0, ["tr_a"])
    for step in range(52):
        log(wandb_run, local_run, StepIndex(run=index.run, phase="train", step=step, rows=index.rows))
    assert pulled(ref(wandb_run, local_run), tmp_path / "out").steps == 52


def test_a_record_on_its_node_only_that_was_copied_since_comes(
    wandb_run: wandb.Run, local_run: SampleRun, tmp_path: Path
) -> None:
    """The mirror that other rows name has a receipt of it now."""
    index = local_run.step(1, ["tr_a"], mirrored=False)
    log(wandb_run, local_run, index)
    local_run.step(2, ["tr_b"])
    log(wandb_run, local_run, local_run.steps["train", 2])
    local_run.step(3, ["tr_a"], seed=1)
    summary = pulled(ref(wandb_run, local_run), tmp_path / "out")
    assert (summary.copied_records, summary.local_only) == (2, [])
