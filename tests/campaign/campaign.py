"""One run of the campaign: a faulty phase as the scenario has it, everything restarted once in health, and the laws."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mirror.samples import PROFILES
from tests.campaign import laws
from tests.campaign.actors import Actors
from tests.campaign.ground import Ground
from tests.campaign.judging import judge
from tests.campaign.poller import Poller
from tests.campaign.scenario import Scenario
from tests.campaign.stage import Stage
from tests.campaign.weather import Spells, blow, trouble_wandb
from tests.mirror.places import DirectoryPlace

HEALED_S = 0.5  # that processes go on after the weather has ended, where it ends before they do


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of a run."""

    seed: int
    directory: Path
    breaches: list[str] = field(default_factory=list)
    processes: int = 0
    kills: int = 0
    requests: int = 0  # of the faulty phase
    looks: int = 0
    records: int = 0
    overtaken: int = 0  # files
    elapsed_s: float = 0.0


def run(scenario: Scenario, ground: Ground) -> Report:
    """Live through a scenario and check the laws; what the run left is in the report's directory."""
    began = time.monotonic()
    stage = Stage(scenario, ground)
    try:
        actors = Actors(stage)
        pollers = list(_pollers(stage))
        for each in pollers:
            each.start()
        try:
            requests = _faulty_phase(stage, actors)
            covered = [laws.Covered(directory) for directory in stage.record_dirs]
            healthy = blow(stage.proxy, ())
            laws.age_what_kills_left(stage.place)
            _healthy_phase(actors)
        finally:
            for each in pollers:
                each.end()
        records = judge(stage, actors, (one for files in covered for one in files.sent_again(healthy.names_put)))
    finally:
        stage.release()
    return Report(
        seed=scenario.seed,
        directory=stage.directory,
        breaches=stage.breaches,
        processes=len(actors.processes),
        kills=actors.kills,
        requests=requests,
        looks=sum(each.looks for each in pollers),
        records=records,
        overtaken=len(stage.overtaken),
        elapsed_s=time.monotonic() - began,
    )


def forget(report: Report) -> None:
    """Remove what a run left behind."""
    shutil.rmtree(report.directory, ignore_errors=True)


def _faulty_phase(stage: Stage, actors: Actors) -> int:
    """Return how many requests it had."""
    scenario = stage.scenario
    counter = blow(stage.proxy, scenario.gusts)
    spells = Spells(scenario.spells, stage.turn)
    for kind in scenario.wandb_faults:
        trouble_wandb(stage.ground.wandb, kind)
    keepers = [threading.Thread(target=actors.keep, args=(actor, counter)) for actor in actors.all]
    for keeper in keepers:
        keeper.start()
    deadline = time.monotonic() + scenario.lasts_s
    for keeper in keepers:
        keeper.join(max(0.0, deadline - time.monotonic()))
    if scenario.heals_alive:
        spells.end()
        stage.proxy.clear()
        time.sleep(HEALED_S)
    if scenario.has_wandb:
        stage.ground.wandb.recover()  # its client does not end before
    actors.over.set()
    for keeper in keepers:
        keeper.join()
    spells.end()
    return counter.count


def _healthy_phase(actors: Actors) -> None:
    """First who writes, then who watches that, then who indexes it; who frees the disks beside them, and at last."""
    with actors.pruning():
        actors.to_their_end(actors.of("writer"))
        actors.to_their_end(actors.of("server"))
        actors.to_their_end(actors.of("watch"))
        for trainer in actors.of("trainer"):
            actors.to_their_end([trainer])
            if actors.stage.wandb_run is not None:
                actors.link(trainer)
    actors.to_their_end(actors.of("pruner"))


def _pollers(stage: Stage) -> Iterator[Poller]:
    """Yield who looks at the mirror and, where somebody prunes, who looks at the disks."""
    scenario = stage.scenario
    exclude = scenario.options["exclude"]
    yield Poller(
        stage.place, _sidecars(scenario, exclude), lambda what: stage.breach("a document has its sidecars", what)
    )
    for directory in {stage.record_dir(actor.directory) for actor in scenario.actors if actor.role == "pruner"}:
        yield Poller(
            DirectoryPlace(directory),
            _sidecars(scenario, ()),
            lambda what: stage.breach("a document on disk has its sidecars", what),
        )


def _sidecars(scenario: Scenario, exclude: Collection[str]) -> dict[str, set[str]]:
    plans = [plan for actor in scenario.actors for plan in actor.records]
    kinds = {
        plan.id: ["tokens", "experts"]
        if plan.profile == "large"
        else [kind for kind, _ in PROFILES[plan.profile].sidecar_bytes]
        for plan in plans
    }
    return laws.wanted_sidecars(kinds, exclude)
