"""Bringing W&B up to date from the spool and the mirror: ``references/link.py`` with the real client."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
import wandb

from mirror import RecordMirror
from mirror.samples import write_record
from references.claims import By, Claims
from references.codec import decode, encode
from references.errors import ConfigError, LinkError
from references.link import LinkSummary, link
from references.link_plan import Verdict
from references.run_index import Phase, StepIndex
from references.seams import PublishSettings
from references.spool import Spool, StepKey
from tests.references.publishing import MirrorReceipts, counts, helper_here, row, step_index, versions
from tests.references.wandb_standin.faults import Hang, LoseReply, Refuse, Status

if TYPE_CHECKING:
    from tests.references.wandb_standin.server import WandbServer
    from tests.references.wandb_standin.state import Version

pytestmark = pytest.mark.integration

SETTINGS = PublishSettings(timeout_s=20, attempts=3, backoff_s=0.05)


def spooled(spool: Path, *indexes: StepIndex) -> None:
    for index in indexes:
        Spool(spool).put(StepKey(index.run, index.phase, index.step), encode(index))


def local_step(step: int, run: str, *, phase: Phase = "train", note: str = "task") -> StepIndex:
    """Return a step whose records are on their nodes only."""
    return step_index(step, run=run, phase=phase, mirrored=0, note=note)


def run_link(
    name: str,
    spool: Path,
    url: Path | None = None,
    *,
    adopt: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> LinkSummary:
    return link(f"team/tests/{name}", url, spool=spool, settings=SETTINGS, adopt=adopt, force=force, dry_run=dry_run)


def verdicts(summary: LinkSummary) -> list[tuple[int, Verdict]]:
    return [(step.step, step.verdict) for step in summary.steps]


def aliases(server: WandbServer, name: str, phase: Phase = "train") -> dict[str, int]:
    """Return which step each alias of the run leads to."""
    found = versions(server, name, phase)
    return {alias: json.loads(version.metadata)["global_step"] for version in found for alias in version.aliases}


def references(version: Version) -> set[str]:
    return {str(entry["ref"]) for entry in version.entries.values() if "ref" in entry}


def test_what_waits_is_logged_once(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """Each step gets its version and leaves the spool; the second link finds nothing to do."""
    spooled(tmp_path, *(local_step(step, name) for step in (1, 2, 10)), local_step(2, name, phase="eval"))

    first = run_link(name, tmp_path)
    second = run_link(name, tmp_path)

    assert (first.count(Verdict.LOG), first.failed, first.latest_error) == (4, [], None)
    assert second.steps == []
    assert aliases(wandb_server, name) == {"train-step-1": 1, "train-step-2": 2, "train-step-10": 10, "latest": 10}
    assert aliases(wandb_server, name, "eval") == {"eval-step-2": 2, "latest": 2}
    assert Spool(tmp_path).count() == 0


def test_a_dry_run_changes_nothing(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """It says what would be logged, begins no run, and leaves the spool."""
    spooled(tmp_path, local_step(1, name))

    summary = run_link(name, tmp_path, dry_run=True)

    assert (summary.is_dry_run, verdicts(summary)) == (True, [(1, Verdict.LOG)])
    assert Spool(tmp_path).count() == 1
    assert versions(wandb_server, name) == []
    assert wandb_server.requests("UpsertBucket") == []


def test_a_run_that_goes_on_is_not_touched(
    wandb_server: WandbServer, own_run: wandb.Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment of the training says, a run of the link's own logs, and the page shows the version."""
    for variable, value in {"WANDB_RUN_ID": name, "WANDB_RESUME": "allow", "WANDB_MODE": "offline"}.items():
        monkeypatch.setenv(variable, value)
    spooled(tmp_path, local_step(1, name))
    own_run.log({"reward": 1.0})
    before = len([one for one in wandb_server.requests("UpsertBucket") if one.variables.get("name") == name])

    run_link(name, tmp_path)
    own_run.log({"reward": 2.0})

    assert aliases(wandb_server, name) == {"train-step-1": 1, "latest": 1}
    begun = [one.variables.get("name") for one in wandb_server.requests("UpsertBucket")]
    assert begun.count(name) == before
    logged, declared = (one.variables.get("input", one.variables) for one in wandb_server.requests("CreateArtifact"))
    assert logged["runName"].startswith("link-")
    assert declared["runName"] == name
    assert not [one for one in wandb_server.requests("PutRunFile") if name in one.path]  # what ends a run


def test_it_does_what_a_crash_left_undone(
    wandb_server: WandbServer, own_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """A step that is in W&B and still in the spool is only crossed off; ``latest`` stays on the newest step."""
    with helper_here(tmp_path / "first") as made:
        for step in (1, 3):
            made.publish(local_step(step, name), run=own_run)
        assert made.close(30)
    spooled(tmp_path / "spool", *(local_step(step, name) for step in (1, 2, 3)))

    summary = run_link(name, tmp_path / "spool")

    assert verdicts(summary) == [(1, Verdict.THERE), (2, Verdict.LOG), (3, Verdict.THERE)]
    assert aliases(wandb_server, name) == {"train-step-1": 1, "train-step-2": 2, "train-step-3": 3, "latest": 3}
    assert len(versions(wandb_server, name)) == 3
    assert Spool(tmp_path / "spool").count() == 0


def test_the_later_content_of_a_step_wins(
    wandb_server: WandbServer, own_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Another machine has logged a step again since this one spooled it; and the other way round."""
    old, new = tmp_path / "old", tmp_path / "new"
    spooled(old, local_step(1, name, note="before"))
    os.utime(old / f"run-{name}" / "train" / "step-1.json", (time.time() - 3600, time.time() - 3600))
    with helper_here(tmp_path / "other") as made:
        made.publish(local_step(1, name, note="between"), run=own_run)
        assert made.close(30)
    spooled(new, local_step(1, name, note="after"))
    os.utime(new / f"run-{name}" / "train" / "step-1.json", (time.time() + 3600, time.time() + 3600))

    assert verdicts(run_link(name, old)) == [(1, Verdict.OLDER)]
    assert verdicts(run_link(name, new)) == [(1, Verdict.LOG)]

    blobs = [decode(wandb_server.state.blob(version, "step.json")) for version in versions(wandb_server, name)]
    assert [blob.rows[0].instance_id for blob in blobs] == ["between", "after"]
    assert sorted(versions(wandb_server, name)[1].aliases) == ["latest", "train-step-1"]
    assert Spool(old).count() == Spool(new).count() == 0


def mirrored_run(directory: Path, name: str, steps: int, *, landed: int | None = None) -> Path:
    """Make a mirror with one record a step, its receipts for the first ``landed``, and each step's index."""
    mirror_dir, record_dir = directory / "mirror", directory / "records"
    with RecordMirror(mirror_dir, fsync=False) as mirror:
        for step in range(1, steps + 1):
            write_record(record_dir, f"tr_{step}", profile="tiny", rng=Random(step))  # noqa: S311 - sample data
            if landed is None or step <= landed:
                mirror.submit(record_dir, f"tr_{step}")
        assert mirror.flush(30)
    for step in range(1, steps + 1):
        index = mirrored_step(directory, name, step)
        path = mirror_dir / "index" / "train" / f"step-{step}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(index))
    return mirror_dir


def mirrored_step(directory: Path, name: str, step: int) -> StepIndex:
    rows = (row(f"tr_{step}", "task", f"file://{directory}/mirror/tr_{step}.json.zst"),)
    return StepIndex(run=name, phase="train", step=step, rows=rows)


def test_the_mirror_alone_brings_every_step(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """Without any spool, after W&B was absent for the whole run: versions with references, from the mirror's index."""
    url = mirrored_run(tmp_path, name, 3)

    first = run_link(name, tmp_path / "spool", url)
    second = run_link(name, tmp_path / "spool", url)

    assert verdicts(first) == [(step, Verdict.LOG) for step in (1, 2, 3)]
    assert verdicts(second) == [(step, Verdict.THERE) for step in (1, 2, 3)]
    for step, version in enumerate(versions(wandb_server, name), 1):
        assert references(version) == {f"file://{url}/tr_{step}.{kind}.zst" for kind in ("json", "tokens")}


def test_the_spools_rows_name_the_mirror(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """Without a URL the references come from the mirror that a step's rows name, which gets the index as well."""
    url = mirrored_run(tmp_path, name, 1)
    (url / "index" / "train" / "step-1.json").unlink()
    spooled(tmp_path / "spool", mirrored_step(tmp_path, name, 1))

    assert verdicts(run_link(name, tmp_path / "spool")) == [(1, Verdict.LOG)]

    [version] = versions(wandb_server, name)
    assert len(references(version)) == 2
    assert (url / "index" / "train" / "step-1.json").read_bytes() == encode(mirrored_step(tmp_path, name, 1))


def test_late_records_complete_a_step(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """A step whose records had not landed is logged, stays in the spool, and gets its references by the next link."""
    url = mirrored_run(tmp_path, name, 1, landed=0)
    spooled(tmp_path / "spool", mirrored_step(tmp_path, name, 1))

    first = run_link(name, tmp_path / "spool")
    idle = run_link(name, tmp_path / "spool")
    with RecordMirror(url, fsync=False) as mirror:
        mirror.submit(tmp_path / "records", "tr_1")
        assert mirror.flush(30)
    last = run_link(name, tmp_path / "spool")

    assert [(step.verdict, step.num_pending) for summary in (first, idle, last) for step in summary.steps] == [
        (Verdict.LOG, 1),
        (Verdict.THERE, 1),
        (Verdict.COMPLETE, 0),
    ]
    assert [len(references(version)) for version in versions(wandb_server, name)] == [0, 2]
    assert Spool(tmp_path / "spool").count() == 0


def test_an_index_that_the_mirror_lacks_is_given_to_it(own_run: wandb.Run, name: str, tmp_path: Path) -> None:
    """W&B has the step, and the spool has kept it for the mirror, which now takes it."""
    url = mirrored_run(tmp_path, name, 1)
    with helper_here(tmp_path / "first", receipts=None) as made:
        made.publish(local_step(1, name), run=own_run)
        assert made.close(30)
    spooled(tmp_path / "spool", local_step(1, name))

    summary = run_link(name, tmp_path / "spool", url)

    assert verdicts(summary) == [(1, Verdict.THERE)]
    assert (url / "index" / "train" / "step-1.json").read_bytes() == encode(local_step(1, name))
    assert Spool(tmp_path / "spool").count() == 0


def test_steps_without_a_run_are_adopted_when_asked(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """Steps that no run was known for, and those of other runs, are left and named; ``adopt`` takes the former."""
    spooled(tmp_path, local_step(1, ""), local_step(2, name), local_step(3, "another"))

    careful = run_link(name, tmp_path)
    adopting = run_link(name, tmp_path, adopt=True)

    assert careful.passed_over.other_runs == {"", "another"}
    assert (verdicts(careful), verdicts(adopting)) == ([(2, Verdict.LOG)], [(1, Verdict.LOG)])
    assert {json.loads(version.metadata)["run_id"] for version in versions(wandb_server, name)} == {name}
    assert [key.run for key in Spool(tmp_path).steps()] == ["another"]


def test_what_is_no_step_hides_no_other(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """A broken file in the spool, or in the mirror, is named and left."""
    url = mirrored_run(tmp_path, name, 2)
    (url / "index" / "train" / "step-1.json").write_bytes(b"{")
    spooled(tmp_path / "spool", local_step(3, name))
    (tmp_path / "spool" / f"run-{name}" / "train" / "step-4.json").write_bytes(b"{}")

    summary = run_link(name, tmp_path / "spool", url)

    assert sorted(step for step, _ in verdicts(summary)) == [2, 3]
    assert [sentence.partition(":")[0] for sentence in summary.passed_over.unreadable] == [
        "train step 4 in the spool",
        "train step 1 in the mirror",
    ]
    assert len(versions(wandb_server, name)) == 2


@pytest.mark.parametrize("fault", [Status(code=500), Refuse(), LoseReply()], ids=str)
def test_a_passing_failure_makes_no_second_version(
    wandb_server: WandbServer, name: str, tmp_path: Path, fault: Status | Refuse | LoseReply
) -> None:
    """A try that failed, or whose reply was lost, is repeated after a look at what is there."""
    wandb_server.faults.plan("CommitArtifact", fault, times=2)
    spooled(tmp_path, local_step(1, name))

    summary = run_link(name, tmp_path)

    assert (summary.count(Verdict.LOG), summary.failed) == (1, [])
    assert len(versions(wandb_server, name)) == 1


def test_a_step_that_is_not_committed_in_time_is_named(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """Nothing more is handed to W&B for that artifact; all stays in the spool, and the next link settles it."""
    wandb_server.faults.plan("CommitArtifact", Hang(), times=1)
    spooled(tmp_path, *(local_step(step, name, phase="eval") for step in (1, 2)), local_step(1, name))

    summary = link(f"team/tests/{name}", spool=tmp_path, settings=PublishSettings(timeout_s=1, attempts=1))
    wandb_server.heal()
    run_link(name, tmp_path)

    hung, untried = summary.failed[:2]  # older clients hold up what comes after as well
    assert (hung.phase, hung.step, untried.phase, untried.step) == ("eval", 1, "eval", 2)
    assert ("link again" in str(hung.error), "not tried" in str(untried.error)) == (True, True)
    assert Spool(tmp_path).count() == 0
    assert (len(versions(wandb_server, name)), len(versions(wandb_server, name, "eval"))) == (1, 2)


def test_wandb_away_is_one_sentence(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """Nothing is lost, and no key is in the sentence."""
    wandb_server.down()
    spooled(tmp_path, local_step(1, name))

    with pytest.raises(LinkError, match=f"W&B does not say what it has of team/tests/{name}"):
        run_link(name, tmp_path)

    assert Spool(tmp_path).count() == 1


@pytest.mark.parametrize("text", ["", "run", "project/run", "a/b/c/d/e", "team/p/skycap-records-train-r", "a/b/c:d"])
def test_what_is_no_run_is_refused(text: str) -> None:
    """With what to write instead."""
    with pytest.raises(ConfigError, match="entity/project/run-id"):
        link(text)


def test_a_spool_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    """A name with a slip in it does not look as if nothing waited."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(ConfigError, match="no spool"):
            link("team/tests/run", spool=place)


def test_a_run_id_may_have_spaces(tmp_path: Path) -> None:
    """W&B takes them."""
    assert link("team/tests/my run", spool=tmp_path).steps == []


def test_a_run_can_be_named_by_its_page(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """As copied from a browser."""
    spooled(tmp_path, local_step(1, name))

    link(f"https://wandb.example/team/tests/runs/{name}", spool=tmp_path, settings=SETTINGS)

    assert len(versions(wandb_server, name)) == 1


def test_fewer_references_never_replace_more(
    wandb_server: WandbServer, own_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """A step whose mirror is out of reach now, and that W&B has with its references, stays as it is."""
    with helper_here(tmp_path / "first", receipts=MirrorReceipts()) as made:
        made.publish(step_index(1, run=name), run=own_run)
        assert made.close(30)
        assert counts(made, "logged") == (1,)
    spooled(tmp_path / "spool", step_index(1, run=name))

    summary = run_link(name, tmp_path / "spool", tmp_path / "elsewhere")

    assert verdicts(summary) == [(1, Verdict.THERE)]
    assert len(versions(wandb_server, name)) == 1


@pytest.fixture
def training(own_run: wandb.Run, name: str, tmp_path: Path) -> Claims:
    """A training that goes on and may be logging step 1; step 2 it has let go of."""
    assert own_run.id == name
    spooled(tmp_path, local_step(1, name), local_step(2, name))
    claims = Claims(Spool(tmp_path), By.TRAINING)
    claims.hold(StepKey(name, "train", 1), 600)
    return claims


def test_what_the_training_may_be_logging_is_left_to_it(
    wandb_server: WandbServer, training: Claims, name: str, tmp_path: Path
) -> None:
    """One sentence says so; what it has let go of is logged, and the other as soon as it lets go of that."""
    for dry_run in (True, False):
        summary = run_link(name, tmp_path, dry_run=dry_run)
        assert verdicts(summary) == [(1, Verdict.LOG), (2, Verdict.LOG)]
        [left] = summary.failed
        assert left.step == 1
        assert f"the training in process {os.getpid()} on " in str(left.error)
        assert "--force" in str(left.error)
    assert aliases(wandb_server, name) == {"train-step-2": 2, "latest": 2}

    training.release(StepKey(name, "train", 1))
    assert run_link(name, tmp_path).failed == []
    assert aliases(wandb_server, name) == {"train-step-1": 1, "train-step-2": 2, "latest": 2}
    assert Spool(tmp_path).count() == 0


@pytest.mark.usefixtures("training")
def test_a_link_can_be_forced(wandb_server: WandbServer, name: str, tmp_path: Path) -> None:
    """Whoever knows better logs it all the same."""
    assert run_link(name, tmp_path, force=True).failed == []
    assert aliases(wandb_server, name) == {"train-step-1": 1, "train-step-2": 2, "latest": 2}


@pytest.mark.usefixtures("training")
def test_a_run_that_is_over_logs_nothing_any_more(
    wandb_server: WandbServer, own_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Once W&B knows the run's end, what its client had is there or never will be."""
    own_run.finish()

    assert run_link(name, tmp_path).failed == []
    assert aliases(wandb_server, name) == {"train-step-1": 1, "train-step-2": 2, "latest": 2}


def test_one_link_at_a_time_logs_a_step(name: str, tmp_path: Path) -> None:
    """What another link is logging is left to it; when that is gone, it is logged."""
    spooled(tmp_path, local_step(1, name))
    other = subprocess.Popen(["/bin/sleep", "600"])
    try:
        Claims(Spool(tmp_path), By.LINK, process=other.pid).hold(StepKey(name, "train", 1), 600)
        [left] = run_link(name, tmp_path).failed
    finally:
        other.kill()
        other.wait()

    assert f"the link in process {other.pid}" in str(left.error)
    assert verdicts(run_link(name, tmp_path)) == [(1, Verdict.LOG)]
