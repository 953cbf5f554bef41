"""The commands about a run's steps, from the arguments to the streams and the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import wandb

from mirror.terminal.output import COUNTS
from references.artifact_name import artifact_name
from references.cli import commands
from references.codec import encode
from references.run_index import RecordLocation, StepIndex
from references.spool import Spool, StepKey
from tests.mirror.command_line import Line, Ran, run_command
from tests.mirror.local_records import tree
from tests.mirror.places import DirectoryPlace
from tests.references.publishing import step_index, versions
from tests.references.whole_runs import SampleRun, artifact_path, delete_object, log_step

if TYPE_CHECKING:
    from tests.references.wandb_standin.server import WandbServer

pytestmark = pytest.mark.integration


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    """Runs commands in this process; a traceback fails the test."""
    return Line(capsys, monkeypatch, commands)


@pytest.fixture
def sample(tmp_path: Path) -> SampleRun:
    """Two steps of three records each, mirrored; one of the second step's is on its node only."""
    sample = SampleRun(DirectoryPlace(tmp_path / "mirror"), tmp_path / "records", name=uuid.uuid4().hex[:12])
    sample.step(1, ["tr_1", "tr_2", "tr_3"])
    sample.step(2, ["tr_4", "tr_5"])
    sample.step(2, ["tr_6"], mirrored=False, trained=False)
    return sample


@pytest.fixture
def ref(wandb_run: wandb.Run, sample: SampleRun) -> str:
    """The same run's artifact in W&B."""
    name = artifact_name("train", sample.name)
    for index in sample.steps.values():
        log_step(wandb_run, index, sample.receipts(), name=name)
    return artifact_path(wandb_run, name)


def url(sample: SampleRun) -> str:
    return sample.place.url


# pull


def test_pull_brings_a_run_and_then_has_nothing_to_do(line: Line, sample: SampleRun, tmp_path: Path) -> None:
    """Complete both times: everything is in the mirror."""
    chosen = [word for number in range(1, 6) for word in ("--id", f"tr_{number}")]
    first = line("pull", url(sample), tmp_path / "out", *chosen)
    second = line("pull", url(sample), tmp_path / "out", "--json", *chosen)

    assert first.code == second.code == 0
    assert "pulled 5 records (10 files, " in first.out
    assert first.err == ""
    assert {key: value for key, value in second.summary.items() if key in ("copied", "unchanged", "failed")} == {
        "copied": 0,
        "unchanged": 10,
        "failed": 0,
    }
    assert tree(tmp_path / "out" / "train") == sample.pulled(ids=[f"tr_{number}" for number in range(1, 6)])


@pytest.mark.parametrize("options", [(), ("--only-trained",)], ids=["everything", "only what trained"])
def test_what_no_mirror_has_makes_a_pull_partial(
    line: Line, sample: SampleRun, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """By one rule, whatever is chosen: the rest comes, and it is said how many did not, which, and where they are."""
    sample.step(3, ["tr_7"], mirrored=False, trained=True)
    lacking = ["tr_7"] if options else ["tr_6", "tr_7"]
    for copied in (5, 0):
        ran = line("pull", url(sample), tmp_path / "out", "--json", *options)
        assert (ran.code, ran.summary["copied_records"], ran.summary["failed"]) == (3, copied, 0)
        assert [one["id"] for one in ran.of_type("local_only")] == lacking
        assert ran.summary["local_only"] == len(lacking)
        count = "1 record" if options else "2 records"
        assert f"only on the disk of the server that wrote it: {count} ({', '.join(lacking)}); sync it there" in ran.err
    said = line("pull", url(sample), tmp_path / "elsewhere", *options)
    assert f"local only  tr_7  10.0.0.5:{tmp_path}/records/tr_7.json.zst\n" in said.out
    nothing = line("pull", url(sample), tmp_path / "out", "--id", "tr_7", *options)
    assert (nothing.code, len(nothing.err.splitlines())) == (1, 1)


def test_pull_takes_what_is_chosen(line: Line, sample: SampleRun, tmp_path: Path) -> None:
    """By step, id, kind, reward and what trained; a dry run writes nothing."""
    out = tmp_path / "out"
    assert line("pull", url(sample), out, "--steps", "2-", "--dry-run", "--json").summary["copied"] == 4
    assert not out.exists()
    line(
        "pull", url(sample), out, "--steps", "1", "--id", "tr_1", "--id", "tr_2", "--kind", "none", "--min-reward", "1"
    )

    assert {path for path in tree(out) if path.endswith(".zst")} == {"train/tr_2.json.zst"}


def test_pull_says_what_was_chosen_by_a_name_that_nothing_has(line: Line, sample: SampleRun, tmp_path: Path) -> None:
    """A kind of nearly a record's is a slip; an id that no step lists did not come, for nobody knows of it."""
    said = line("pull", url(sample), tmp_path / "out", "--steps", "1", "--kind", "token")
    assert (said.code, said.err) == (0, "no record has 'token', which --kind names; there is 'tokens'\n")
    nothing = line("pull", url(sample), tmp_path / "out", "--id", "nosuch")
    assert (nothing.code, nothing.err) == (
        1,
        "error: nosuch did not come: no record of it is listed in 2 steps; correct --id, --steps or --phase\n",
    )
    assert "; 0 unchanged, 1 did not come, " in nothing.out
    some = line("pull", url(sample), tmp_path / "out", "--json", "--id", "nosuch", "--id", "tr_1", "--steps", "1")
    assert (some.code, some.summary["failed"], some.summary["unchanged"]) == (3, 1, 1)
    assert [error["id"] for error in some.of_type("error")] == ["nosuch"]


def test_pull_names_what_does_not_come(line: Line, sample: SampleRun, tmp_path: Path) -> None:
    """The rest comes; the code says partial."""
    delete_object(sample.place, "tr_2.tokens.zst")

    ran = line("pull", url(sample), tmp_path / "out", "--json")

    assert (ran.code, ran.summary["failed"], ran.summary["copied_records"]) == (3, 1, 4)
    [error] = [found for found in ran.of_type("error") if "id" in found]
    assert (error["id"], error["why"]) == ("tr_2", "missing")
    assert "error: tr_2 of train step 1 did not come" in ran.err


def test_what_a_step_says_stays_on_its_line(line: Line, sample: SampleRun, tmp_path: Path) -> None:
    """Ids and places come from anybody: they begin no line of their own, and are no option of scp's."""
    forged = sample.row("tr\nerror: all is lost", RecordLocation(host="node", path="/data/tr\nlocal only  x"))
    sample.index(StepIndex(run=sample.name, phase="train", step=3, rows=(forged,)))
    option = sample.row("tr_option", RecordLocation(host="-oProxyCommand=x", path="/data/tr_option.json.zst"))
    sample.index(StepIndex(run=sample.name, phase="train", step=4, rows=(option,)))
    ran = line("pull", url(sample), tmp_path / "out")

    assert ran.code == 3
    assert len(ran.err.splitlines()) == 1
    assert len([text for text in ran.out.splitlines() if text.startswith("local only")]) == 3
    assert not [text for text in ran.out.splitlines() if text.startswith("error")]
    assert "local only  tr_option  nobody said where" in ran.out


def test_pull_by_artifact_reads_a_local_mirror_only_when_allowed(line: Line, ref: str, tmp_path: Path) -> None:
    """An artifact must not decide which files of this machine are read."""
    refused = line("pull", f"{ref}:train-step-1", tmp_path / "out")
    allowed = line("pull", f"{ref}:train-step-1", tmp_path / "out", "--allow-protocol", "file")

    assert (refused.code, allowed.code) == (1, 0)
    assert "is not read unless you allow its protocol" in refused.err
    assert "pulled 3 records" in allowed.out


def test_nothing_is_pulled_into_a_mirror(line: Line, sample: SampleRun, tmp_path: Path) -> None:
    """Be it the one that is pulled from, by whatever name, or another; it stays as it is."""
    mirror, other, link = tmp_path / "mirror", tmp_path / "other", tmp_path / "link"
    assert line("sync", tmp_path / "records", other).code == 0
    link.symlink_to(mirror)
    before = tree(tmp_path)
    for out in (mirror, link, other):
        ran = line("pull", url(sample), out)
        assert (ran.code, ran.out, ran.err) == (
            2,
            "",
            f"error: {out} is a mirror: name another directory to pull to\n",
        )
    assert line("pull", mirror / "typo", mirror / "typo").code == 2
    assert tree(tmp_path) == before


def test_pull_says_when_the_place_cannot_be_written(line: Line, sample: SampleRun, tmp_path: Path) -> None:
    """In one sentence."""
    (tmp_path / "file").write_text("in the way")

    ran = line("pull", url(sample), tmp_path / "file")

    assert ran.code == 1
    assert len(ran.err.strip().splitlines()) == 1

    too_long = tmp_path / ("x" * 300)
    ran = line("pull", url(sample), too_long)

    reason = f"File name too long ({too_long})"
    assert (ran.code, ran.err) == (
        1,
        f"error: {too_long} cannot be written: {reason}; a later pull goes on from here\n",
    )


# ls


def test_ls_lists_the_steps(line: Line, sample: SampleRun) -> None:
    """Rows, what trained, what is in the mirror, rewards."""
    sample.index(step_index(5, run=sample.name, mirrored=1))

    ran = line("ls", url(sample), "--json")

    steps = {step["step"]: step for step in ran.of_type("step")}
    assert ran.code == 0
    assert steps[1]["reward"] == {"mean": 1.0, "min": 0.0, "max": 2.0}
    names = ("rows", "trained", "superseded", "mirrored", "missing", "local_only")
    assert [[step[name] for name in names] for step in steps.values()] == [
        [3, 3, 0, 3, 0, 0],
        [3, 2, 0, 2, 0, 1],
        [2, 0, 0, 0, 1, 1],
    ]
    assert [(gap["first"], gap["last"]) for gap in ran.of_type("gap")] == [(3, 4)]


def test_ls_is_readable(line: Line, sample: SampleRun) -> None:
    """One line a step."""
    ran = line("ls", url(sample), "--steps", "1")

    assert ran.out.splitlines() == [
        "train step 1: 3 rows, 3 trained, 0 superseded, 3 mirrored, 0 missing, 0 local only, reward 1 (0 to 2)",
        f"{sample.place.url}: 1 step, 3 rows",
    ]


def test_ls_says_that_no_step_matches(line: Line, sample: SampleRun) -> None:
    """That is no failure, and not the same as a run without steps."""
    ran = line("ls", url(sample), "--steps", "7")

    assert (ran.code, ran.out) == (0, f"{sample.place.url}: none of its steps matches; correct --steps or --phase\n")


def test_ls_of_a_run_in_wandb_shows_what_was_run_again(
    line: Line, wandb_run: wandb.Run, sample: SampleRun, ref: str
) -> None:
    """A run that went back to step 1 has it twice, and has left step 2 behind."""
    log_step(wandb_run, sample.step(1, ["tr_7"]), sample.receipts(), name=artifact_name("train", sample.name))

    ran = line("ls", ref, "--allow-protocol", "file")

    assert "step 1: 4 rows" in ran.out
    assert "; run 2 times" in ran.out
    assert "; left behind: the run went back before it" in ran.out


def test_ls_of_nothing_could_not_check(line: Line, tmp_path: Path) -> None:
    """A mirror without step indexes, or a place where nothing is: it is named, for it may be a slip."""
    (tmp_path / "empty").mkdir()

    said = line("ls", tmp_path / "empty")
    assert (said.code, said.err.startswith(f"error: no step index is in file://{tmp_path}/empty: ")) == (5, True)
    said = line("pull", tmp_path / "typo", tmp_path / "out")
    assert (said.code, said.err.startswith(f"error: no step index is in file://{tmp_path}/typo: ")) == (1, True)


# verify


def test_verify_of_a_mirror_looks_at_its_steps_too(line: Line, sample: SampleRun) -> None:
    """A record that a step names, and that is nowhere, is lost; one on its node only is not."""
    assert line("verify", url(sample)).code == 0
    sample.index(step_index(3, run=sample.name, mirrored=1))

    ran = line("verify", url(sample), "--json")

    assert ran.code == 4
    assert [(one["kind"], one["id"]) for one in ran.of_type("finding")] == [("lost", "tr_3_0")]
    assert "(train step 3)" in ran.of_type("finding")[0]["detail"]


def test_verify_of_a_mirror_is_the_mirrors_own_without_steps(line: Line, sample: SampleRun, tmp_path: Path) -> None:
    """Receipts, listing and record directories, as far as asked for, whether or not anybody indexed a step."""
    for step in (1, 2):
        delete_object(sample.place, f"index/train/step-{step}.json")
    delete_object(sample.place, "tr_1.json.zst")

    ran = line("verify", url(sample), tmp_path / "records", "--download", "--json")

    assert [(one["kind"], one["name"]) for one in ran.of_type("finding")] == [
        ("missing", "tr_1.json.zst"),
        *(("missing", f"tr_6.{kind}.zst") for kind in ("json", "tokens")),
    ]
    assert (ran.code, ran.summary["intact"]) == (4, 9)
    assert set(COUNTS) <= set(ran.summary)


def test_verify_of_a_run_in_wandb_follows_every_reference(line: Line, ref: str, tmp_path: Path) -> None:
    """What changed in the mirror is found; what else is in the mirror is none of the run's."""
    whole = line("verify", ref, "--allow-protocol", "file", "--json")
    (tmp_path / "mirror" / "tr_2.tokens.zst").write_bytes(b"other")
    (tmp_path / "mirror" / "tr_stray.json.zst").write_bytes(b"stray")
    damaged = line("verify", ref, "--allow-protocol", "file", "--json")

    assert (whole.code, whole.summary["references"], whole.summary["not_referenced"]) == (0, 10, 0)
    assert damaged.code == 4
    assert [(one["kind"], one["name"]) for one in damaged.of_type("finding")] == [("wrong_size", "tr_2.tokens.zst")]


@pytest.mark.parametrize("name", ["ls", "verify"])
def test_a_run_that_wandb_does_not_know_could_not_be_checked(line: Line, wandb_server: WandbServer, name: str) -> None:
    """One sentence, and the code for it."""
    assert wandb_server.port

    ran = line(name, f"team/tests/skycap-records-train-{uuid.uuid4().hex}", "--json")

    assert ran.code == 5
    assert ran.summary["exit_code"] == 5
    assert "W&B does not give team/tests/" in ran.of_type("error")[0]["message"]


# link


def test_link_logs_what_waits(line: Line, wandb_server: WandbServer, tmp_path: Path) -> None:
    """First what it would do, then what it did, then nothing."""
    name = uuid.uuid4().hex[:12]
    for step in (1, 2):
        index = step_index(step, run=name, mirrored=0)
        Spool(tmp_path).put(StepKey(name, "train", step), encode(index))
    command = ("link", f"team/tests/{name}", "--spool", tmp_path)

    planned, done, again = line(*command, "--dry-run"), line(*command), line(*command, "--json")

    assert (planned.code, done.code, again.code) == (0, 0, 0)
    assert planned.out.splitlines()[0] == "would log: train step 1"
    assert done.out.splitlines()[:2] == ["logged: train step 1", "logged: train step 2"]
    assert (again.summary["copied"], again.of_type("step")) == (0, [])
    assert len(versions(wandb_server, name)) == 2


def test_link_is_partial_while_records_are_on_their_way(
    line: Line, wandb_server: WandbServer, sample: SampleRun, tmp_path: Path
) -> None:
    """The step is in W&B, and its line says what lacks."""
    index = step_index(3, run=sample.name, mirrored=0)
    sample.index(
        type(index)(
            run=sample.name,
            phase="train",
            step=3,
            rows=(sample.row("tr_9", sample.promised("tr_9")),),
        )
    )

    ran = line("link", f"team/tests/{sample.name}", url(sample), "--spool", tmp_path, "--json")

    assert (ran.code, ran.summary["logged"], ran.summary["late"]) == (3, 3, 1)
    assert [step["pending"] for step in ran.of_type("step")] == [0, 0, 1]
    assert len(versions(wandb_server, sample.name)) == 3


def test_link_fails_in_one_sentence_without_wandb(line: Line, wandb_server: WandbServer, tmp_path: Path) -> None:
    """Nothing is lost."""
    Spool(tmp_path).put(StepKey("r", "train", 1), encode(step_index(1, run="r", mirrored=0)))
    wandb_server.down()

    ran = line("link", "team/tests/r", "--spool", tmp_path, "--json")

    assert ran.code == 1
    assert "W&B does not say what it has of team/tests/r" in ran.of_type("error")[0]["message"]
    assert Spool(tmp_path).count() == 1


def test_mistakes_are_usage_errors(line: Line, tmp_path: Path) -> None:
    """With what to write instead."""
    assert line("link", "run").code == 2
    assert line("pull", tmp_path, tmp_path / "out", "--steps", "x").code == 2
    assert "did you mean 'train'" in line("ls", tmp_path, "--phase", "trian").err
    assert line("pull", "tests/skycap-records-train-r", tmp_path / "out").code == 2


# demo


def test_demo_shows_the_whole_job(tmp_path: Path) -> None:
    """In a process of its own, with W&B's client offline; what it makes can be kept."""
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "references.cli", "demo", "--keep", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={name: value for name, value in os.environ.items() if not name.startswith("WANDB")},
    )

    assert done.stderr == ""
    assert "step 2: 8 attempts, 7 trained, 1 superseded, 21 references" in done.stdout
    assert done.stdout.endswith("the demonstration did what it promises\n")
    assert (tmp_path / "demo" / "pulled" / "train" / "index" / "step-1.json").exists()
    for path in (tmp_path / "demo" / "records").glob("*.json.zst"):  # a newcomer sees what a record is made of
        record_id = path.name.removesuffix(".json.zst")
        assert (path.parent / f"{record_id}.tokens.zst").exists()
        assert (path.parent / f"{record_id}.sampling_mask.zst").exists()
    assert list((tmp_path / "demo" / "wandb").glob("offline-run-*"))


def test_demo_makes_its_own_directory(line: Line, tmp_path: Path) -> None:
    """What is there already is left alone: one sentence, code 2."""
    (tmp_path / "file").touch()
    for taken in (tmp_path, tmp_path / "file"):
        said = line("demo", "--keep", taken)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"error: {taken} is not an empty directory: ")


def test_demo_says_it_for_programs_or_not_at_all() -> None:
    """JSON lines with a summary that counts; nothing at all when quiet."""
    said = run_command("demo", "--json")
    assert (said.code, said.summary["records"], said.summary["unchanged"]) == (0, 40, 120)
    assert {found["type"] for found in said.lines} == {"step", "summary"}
    assert run_command("demo", "-q") == Ran(0, "", "")


WITHOUT_WANDB = (
    "import sys; sys.modules['wandb'] = None; from references.cli import main; sys.argv[1:] = ['demo']; main()"
)


def test_demo_works_without_wandbs_client() -> None:
    """It says what to install, and shows the rest."""
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", WITHOUT_WANDB],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert "pip install 'record-mirror[wandb]'" in done.stdout
    assert "its step.json is in the mirror" in done.stdout


def test_help_is_quick_and_names_every_command() -> None:
    """Without W&B's client, a store or an event loop."""
    code = (
        "import sys; from mirror.terminal.commands import run; from references.cli import commands; "
        "run(commands, ['--help']); "
        "print(sorted({'wandb', 'asyncio', 'fsspec', 'rich', 'msgspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - ours

    lines = done.stdout.splitlines()
    assert lines[-1] == "[]"
    listed = [text.split()[0] for text in lines[lines.index("Commands:") + 1 : -6]]
    assert {"demo", "link", "ls", "pull", "repair", "status", "sync", "verify", "watch"} <= set(listed)
