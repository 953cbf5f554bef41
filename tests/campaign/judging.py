"""The laws, applied to a run that is over."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import xxhash

from mirror import MirrorConfig, VerifyLevel, verify
from mirror.names import parse_name
from references.spool import Spool
from tests.campaign import laws, step_laws
from tests.campaign.actors import Actor, Actors
from tests.campaign.capture import write_generation
from tests.campaign.stage import Stage
from tests.mirror.places import record_files

VERIFIED_EVERY = 5  # seeds
LEAVE_S = 30.0  # for what ends by itself once its parent is gone


def judge(stage: Stage, actors: Actors, sent_needlessly: Iterator[str]) -> int:
    """Note every breach on the stage; return how many records the run made."""
    exclude = stage.scenario.options["exclude"]
    objects = stage.place.objects()
    on_disk = laws.wanted_files(stage.record_dirs, ())
    written = _written(stage, actors)
    wanted = laws.without({**written, **on_disk}, exclude)
    stage.overtaken = _overtaken(stage, actors, objects, wanted)
    objects |= {name: wanted[name] for name in stage.overtaken}
    logs = sorted(stage.directory.glob("*.log"))
    found: list[tuple[str, Iterator[str]]] = [
        ("every finished record arrives", laws.everything_arrived(wanted, objects)),
        ("receipts are true", laws.receipts_are_true(stage.place, objects, wanted, exclude, stage.overtaken)),
        ("receipts are true", laws.receipts_beside_are_true(stage.record_dirs, objects)),
        *_of_pruning(stage, actors, written, on_disk),
        ("nothing is sent without need", sent_needlessly),
        ("verify raises no false alarm", _alarms(stage, objects, wanted)),
        *((law, breaches) for actor in actors.of("trainer") for law, breaches in _of_steps(stage, actor, objects)),
        ("no litter", laws.no_litter(stage.place, stage.scratch, hard_ends=_hard_ends(stage, actors))),
        ("logs are clean", laws.logs_are_clean(logs)),
        ("no process is left", _left_processes(stage, actors)),
    ]
    for law, breaches in found:
        for breach in breaches:
            stage.breach(law, breach)
    for actor in actors.all:
        for fact in actor.notes.read("violation"):
            stage.breach(fact["law"], f"{actor.name}: {fact['detail']}")
    return sum((parsed := parse_name(name)) is not None and parsed.kind is None for name in wanted)


def _written(stage: Stage, actors: Actors) -> dict[str, bytes]:
    """Return the files of the records of those disks that somebody prunes, as they were written last."""
    pruned = {actor.plan.directory for actor in actors.of("pruner")}
    scratch = stage.directory / "rewritten"
    last = {
        fact["id"]: fact for actor in actors.all if actor.plan.directory in pruned for fact in actor.notes.read("wrote")
    }
    for fact in last.values():
        write_generation(scratch, fact["id"], fact["profile"], fact["status"], fact["generation"])
    files = record_files(scratch) if last else {}
    shutil.rmtree(scratch, ignore_errors=True)
    return files


def _of_pruning(
    stage: Stage, actors: Actors, written: Mapping[str, bytes], on_disk: Mapping[str, bytes]
) -> Iterator[tuple[str, Iterator[str]]]:
    pruners = actors.of("pruner")
    discards = any(pruner.plan.discards for pruner in pruners)
    only_here = () if discards else stage.scenario.options["exclude"]
    yield "what exists nowhere else stays", laws.nothing_unique_was_pruned(written, on_disk, only_here)
    if pruners and all(pruner.code == 0 for pruner in pruners):
        safe = laws.all_that_is_safe_was_pruned(written, on_disk, only_here, stage.record_dirs)
        yield "what is safe is pruned in the end", safe
    yield "no litter", laws.nothing_hidden_is_left(stage.record_dirs, kills=actors.kills)


def _overtaken(
    stage: Stage, actors: Actors, objects: Mapping[str, bytes], wanted: Mapping[str, bytes]
) -> frozenset[str]:
    """Return the files that hold an older generation because its write arrived after that of a newer one.

    What is held back on its way, by a slow line or a gateway, arrives even if its sender was killed long ago; no writer
    of plain objects can prevent that. Verify finds it, and repair mends it.
    """
    is_slow = any(spell.kind == "latency" for spell in stage.scenario.spells)
    if not is_slow and not any(gust.kind == "throttle" for gust in stage.scenario.gusts):
        return frozenset()
    hashes: dict[str, set[str]] = {}
    for fact in (fact for actor in actors.all for fact in actor.notes.read("wrote")):
        for name, digest in fact["files"].items():
            hashes.setdefault(name, set()).add(digest)
    return frozenset(
        name
        for name, data in wanted.items()
        if name in objects
        and objects[name] != data
        and xxhash.xxh3_128_hexdigest(objects[name]) in hashes.get(name, ())
    )


def _alarms(stage: Stage, objects: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> Iterator[str]:
    """Have every fifth run verified by the product too, each file read back.

    The right bytes by another version than the receipt's are no false alarm: two mirrors had sent them at once, and the
    one that came last was killed before it wrote its receipt.
    """
    if stage.scenario.seed % VERIFIED_EVERY == 0:
        config = MirrorConfig.from_mapping({"storage_options": stage.direct_options})
        level = VerifyLevel(read_back=1.0)
        for finding in verify(stage.place.url, stage.record_dirs, config=config, level=level).findings:
            is_sent_twice = objects.get(finding.name) == wanted.get(finding.name) and "replaced" in finding.detail
            if finding.name not in stage.overtaken and not is_sent_twice:
                yield f"{finding.kind} {finding.name}: {finding.detail}"


def _hard_ends(stage: Stage, actors: Actors) -> int:
    """Return how many lives may have left something: a kill cleans up nothing, a store that is away lets nobody."""
    is_fair = not (stage.scenario.gusts or stage.scenario.spells)
    return actors.hard_ends if is_fair else sum(len(actor.plan.lives) for actor in actors.all)


def _of_steps(stage: Stage, trainer: Actor, objects: Mapping[str, bytes]) -> Iterator[tuple[str, Iterator[str]]]:
    ended, spool = step_laws.ended_steps(trainer.notes), Spool(stage.spool)
    if len(ended) != trainer.plan.steps:
        yield "a healthy trainer ends every step", iter([str(sorted(ended))])
    if stage.wandb_run is None:
        yield "every step is kept", step_laws.steps_are_spooled(ended, spool)
        return
    receipts = laws.receipts_of(objects)
    in_wandb = step_laws.steps_are_in_wandb(trainer.notes, stage.ground.wandb, stage.wandb_run, receipts, spool)
    yield "every step is in W&B once", in_wandb
    yield "every step is in the mirror", step_laws.steps_are_in_the_mirror(ended, objects)


def _left_processes(stage: Stage, actors: Actors) -> Iterator[str]:
    sessions = {process.pid for process in actors.processes}
    mark = f"TMPDIR={stage.scratch}".encode()
    deadline = time.monotonic() + LEAVE_S
    while (left := _of_sessions(sessions, mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid, name in left.items():
        yield f"{name} ({pid}) is left"
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _of_sessions(sessions: set[int], mark: bytes) -> dict[int, str]:
    """Return the processes of these sessions, zombies included, and those they started elsewhere, with their names."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                text = (entry / "stat").read_text(errors="replace")
                name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
                if int(fields[3]) in sessions or mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = f"{name} {fields[0]}"
    return found
