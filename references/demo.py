"""The main job in a minute, on this machine alone: records, mirror, repair, two steps in W&B (offline), and back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mirror.background import RecordLocation, RecordMirror, locate
from mirror.demo import DemoError
from mirror.demo import run_demo as run_mirror_demo
from mirror.names import DOCUMENT_SUFFIX
from mirror.samples import write_corpus
from mirror.verify import Verification
from references.callback import SkycapRecordIndex
from references.codec import decode
from references.config import RecordsConfig, WandbConfig, make_record_index
from references.landing import land, mirrored_ids
from references.mirror_access import MirrorAccess
from references.mirror_source import index_key
from references.pull import pull
from references.record_log import RecordLog

if TYPE_CHECKING:
    import wandb

ATTEMPTS = 8  # of each step; the last one is a retry of the one before


def run_demo(directory: Path, say: Callable[[str], object]) -> Verification:
    """Show the main job below ``directory``, which must be empty or absent; returns how the mirror is after a repair.

    Raises:
        ConfigError: the directory is neither.
        DemoError: a step did not do what it should.
    """
    verification = run_mirror_demo(directory, say)
    records, mirror, node = directory / "records", directory / "mirror", directory / "another-node"
    ids = sorted(path.name.removesuffix(DOCUMENT_SUFFIX) for path in records.glob(f"[!.]*{DOCUMENT_SUFFIX}"))
    places = [RecordMirror(mirror).locate(records, record_id) for record_id in ids[: 2 * ATTEMPTS]]
    [local_id] = write_corpus(node, profile="tokens", count=1, seed=8)
    places[-3] = locate(node, local_id)

    log = RecordLog()
    config = RecordsConfig(
        record_dir=str(records), record_mirror=str(mirror), wandb=WandbConfig(spool=str(directory / "spool"))
    )
    index = make_record_index(config, log)
    with _offline_run(directory, say) as run:
        for step, attempts in enumerate((places[:ATTEMPTS], places[ATTEMPTS:]), 1):
            _train(index, log, step, attempts, run)
        index.train_end()
    indexed = index.stats()["without_run" if run is None else "offline"]
    _expect(indexed == 2, f"{indexed} steps were indexed instead of 2: {index.stats()}")  # noqa: PLR2004 - the steps above
    say("trained 2 steps, each with a retry; the record of one attempt is on its own node only")
    for step in (1, 2):
        say(_describe(mirror, step, "the mirror" if run is None else "an offline run of W&B and the mirror"))

    pulled = directory / "pulled"
    first = pull(mirror, pulled)
    _expect(not first.not_pulled and len(first.local_only) == 1, f"not everything was pulled back: {first}")
    came = sorted((pulled / "train").glob("*.zst"))
    _expect(len(came) == first.copied_files, f"other files were pulled back than {first.copied_files}: {came}")
    for path in came:
        _expect(path.read_bytes() == (records / path.name).read_bytes(), f"{path.name} has other bytes than it had")
    say(f"pulled back {first.copied_records} records, every byte as it was: {pulled}")
    say(f"and said where the other one is: {first.local_only[0].where}")
    second = pull(mirror, pulled)
    _expect(not second.copied_files and not second.not_pulled, f"a second pull did something: {second}")
    say("pulled again: nothing to do")
    return verification


@contextlib.contextmanager
def _offline_run(directory: Path, say: Callable[[str], object]) -> Iterator[wandb.Run | None]:
    """Begin and end a run that W&B's client keeps to itself; None where the client is not installed."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    try:
        import wandb  # noqa: PLC0415 - optional
    except ImportError:
        say("W&B's client is not installed (pip install 'record-mirror[wandb]'): its part is left out")
        yield None
        return
    settings = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True)
    run = wandb.init(project="record-mirror-demo", mode="offline", dir=str(directory), settings=settings)
    try:
        yield run
    finally:
        run.finish()


def _train(
    index: SkycapRecordIndex, log: RecordLog, step: int, attempts: Sequence[RecordLocation], run: wandb.Run | None
) -> None:
    """Do what a generator and its trainer do in a step: finish attempts, train on the final ones."""
    index.step_start()
    task = f"task-{step}"
    samples = len(attempts) - 1
    for number, record in enumerate(attempts):
        is_retry = number == samples
        log.add_attempt(
            "train",
            id=Path(record["path"]).name.removesuffix(DOCUMENT_SUFFIX),
            instance_id=task,
            repetition_id=number - is_retry,
            attempt=int(is_retry),
            status="failed" if number == samples - 1 else "finished",
            annotations={"reward": number / samples},
            record=record,
        )
    batch = [(task, repetition_id) for repetition_id in range(samples)]
    index.step_end(step, trajectory_ids=batch, loss_masks=[[1, 1]] * samples, run=run)


def _describe(mirror: Path, step: int, where: str) -> str:
    """Say what the index of a step has, after a look whether it is what it should be."""
    index = decode((mirror / index_key("train", step)).read_bytes())
    receipts = MirrorAccess(mirror).find(mirrored_ids(index))
    landing = land(index, receipts)
    trained = sum(row.trained is True for row in index.rows)
    superseded = sum(row.superseded for row in index.rows)
    _expect((len(index.rows), trained, superseded) == (ATTEMPTS, ATTEMPTS - 1, 1), f"step {step} is wrong: {index}")
    _expect(not landing.pending, f"records of step {step} have not landed: {sorted(landing.pending)}")
    text = f"step {step}: {len(index.rows)} attempts, {trained} trained, {superseded} superseded, "
    return text + f"{len(landing.references)} references; its step.json is in {where}"


def _expect(held: bool, otherwise: str) -> None:  # noqa: FBT001 - an assertion that runs under -O too
    if not held:
        raise DemoError(otherwise)
