"""One run of the campaign: a faulty phase as the scenario has it, everything restarted once in health, and the laws."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirror.samples import PROFILES
from references.spool import Spool
from tests.campaign import laws, step_laws
from tests.campaign.capture import CaptureJob
from tests.campaign.disks import Disk
from tests.campaign.ground import BUCKETS, Ground
from tests.campaign.notes import Notes
from tests.campaign.poller import Poller
from tests.campaign.processes import Process
from tests.campaign.scenario import ActorPlan, Ending, Life, Scenario, Spell
from tests.campaign.trainer import TrainerJob
from tests.campaign.weather import Counter, Spells, blow, trouble_wandb
from tests.mirror.places import DirectoryPlace, Place, S3Place

END_S = 30.0  # for a process that was asked to end; only a hang takes so long
HEALTHY_S = 150.0
SIGNALS = {
    Ending.CLOSE: signal.SIGTERM,
    Ending.LEAVE: signal.SIGTERM,
    Ending.TERM: signal.SIGTERM,
    Ending.INT: signal.SIGINT,
    Ending.KILL: signal.SIGKILL,
}
HEALTHY = {"timeout_s": 20.0, "attempts": 5}


@dataclass(slots=True)
class Report:
    """What came of a run."""

    seed: int
    directory: Path
    breaches: list[str] = field(default_factory=list)
    processes: int = 0
    kills: int = 0
    requests: int = 0
    looks: int = 0
    records: int = 0
    elapsed_s: float = 0.0


@dataclass(slots=True)
class _Actor:
    """A process of the scenario over its lives."""

    name: str
    plan: ActorPlan
    notes: Notes
    covered: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    lives: int = 0
    noted: int = 0  # bytes, before its present life


def run(scenario: Scenario, ground: Ground) -> Report:
    """Live through a scenario and check the laws; what the run left is in the report's directory."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        one = _Run(scenario, ground, stack)
        one.faulty_phase()
        one.healthy_phase()
        one.check()
        one.keep_evidence()
    one.report.elapsed_s = time.monotonic() - began
    return one.report


class _Run:
    def __init__(self, scenario: Scenario, ground: Ground, stack: contextlib.ExitStack) -> None:
        self._scenario = scenario
        self._ground = ground
        name = f"{scenario.seed}-{uuid.uuid4().hex[:6]}"
        self.report = Report(scenario.seed, ground.scratch / name)
        self._directory = self.report.directory
        (self._directory / "tmp").mkdir(parents=True)
        self._records = Disk(self._directory / "records")
        stack.callback(self._records.release)
        if scenario.store == "directory":
            self._mirror_disk = Disk(self._directory / "mirror")
            stack.callback(self._mirror_disk.release)
            self._place: Place = DirectoryPlace(self._directory / "mirror" / "run-7")
        else:
            self._place = S3Place(ground.seaweed, BUCKETS[scenario.store], f"campaign/{name}")
        self._options = {**scenario.options}
        if scenario.store != "directory":
            self._options["storage_options"] = ground.options(scenario.store)
        self._credentials = self._directory / "credentials"
        ground.write_credentials(self._credentials, rotated=False)
        ground.expiry.expired = None
        self._environment = {
            "TMPDIR": str(self._directory / "tmp"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self._credentials),
            "RECORD_MIRROR_STORAGE_OPTIONS": json.dumps(self._options.get("storage_options", {})),
        }
        self._actors = [
            _Actor(f"{number}-{plan.role}", plan, Notes(self._directory / f"{number}-{plan.role}.notes"))
            for number, plan in enumerate(scenario.actors)
        ]
        self._spool = self._directory / "spool"
        self._run = f"run-{name}" if scenario.has_wandb else None
        if scenario.has_wandb:
            ground.wandb.recover()
            self._environment |= ground.wandb_environment(self._directory / "wandb")
        self._processes: list[Process] = []
        self._hard_ends = 0
        self._over = threading.Event()
        self._poller = Poller(
            self._place, self._sidecars(), lambda what: self._breach("a document has its sidecars", what)
        )

    # The faulty phase

    def faulty_phase(self) -> None:
        scenario = self._scenario
        proxy = self._ground.proxy(scenario.store)
        counter = blow(proxy, scenario.gusts)
        spells = Spells(scenario.spells, self._turn)
        for kind in scenario.wandb_faults:
            trouble_wandb(self._ground.wandb, kind)
        self._poller.start()
        keepers = [
            threading.Thread(target=self._guarded, args=(self._keep, actor, counter), name=f"keeper-{actor.name}")
            for actor in self._actors
        ]
        for keeper in keepers:
            keeper.start()
        deadline = time.monotonic() + scenario.lasts_s
        for keeper in keepers:
            keeper.join(max(0.0, deadline - time.monotonic()))
        if scenario.heals_alive:
            spells.end()
            proxy.clear()
            self._over.wait(0.5)
        if scenario.has_wandb:
            self._ground.wandb.recover()  # its client does not end before
        self._over.set()
        for keeper in keepers:
            keeper.join()
        spells.end()
        self.report.requests = counter.count
        self._healthy_requests = blow(proxy, ())

    def _keep(self, actor: _Actor, counter: Counter) -> None:
        """Start an actor again after each of its lives."""
        for life in actor.plan.lives:
            if self._over.is_set():
                return
            process = self._start(actor, life)
            self._live(actor, process, life, counter)

    def _live(self, actor: _Actor, process: Process, life: Life, counter: Counter) -> None:
        asked = counter.count
        while not (self._over.is_set() or process.is_over or self._has_begun(actor, counter.count - asked, life)):
            time.sleep(0.005)
        self._over.wait(life.after_s)
        if life.ending in {Ending.CLOSE, Ending.LEAVE}:
            while not (self._over.wait(0.02) or process.is_over):
                pass
        if life.stopped_s and not process.is_over:
            process.signal(signal.SIGSTOP)
            self._over.wait(life.stopped_s)
            process.signal(signal.SIGCONT)
        process.signal(SIGNALS[life.ending])
        self._wait(actor, process, life.close_timeout_s + END_S)

    def _has_begun(self, actor: _Actor, requests: int, life: Life) -> bool:
        """Whether the time until a life's end begins to count: at a certain request, or at a first sign of life."""
        if life.after_requests is not None and self._scenario.store != "directory":
            return requests >= life.after_requests
        log = self._log(actor)
        return actor.notes.size > actor.noted or (log.exists() and log.stat().st_size > 0)

    def _turn(self, spell: Spell, begins: bool) -> None:  # noqa: FBT001 - begins or ends
        proxy = self._ground.proxy(self._scenario.store)
        match spell.kind:
            case "down":
                proxy.down() if begins else proxy.up()
            case "latency":
                proxy.latency_s = spell.value if begins else 0.0
            case "records_full":
                self._records.fill() if begins else self._records.free()
            case "mirror_full":
                self._mirror_disk.fill() if begins else self._mirror_disk.free()
            case "mirror_frozen":
                self._mirror_disk.freeze() if begins else self._mirror_disk.thaw()
            case "expired" if begins:
                self._ground.expire()
            case "expired":
                self._ground.write_credentials(self._credentials, rotated=True)

    # Health

    def healthy_phase(self) -> None:
        for actor in self._actors:
            actor.covered = laws.covered_files(self._records.path / actor.plan.directory)
        by_role = {role: [a for a in self._actors if a.plan.role == role] for role in ("writer", "server", "watch")}
        self._to_their_end(by_role["writer"])
        self._to_their_end(by_role["server"])
        self._to_their_end(by_role["watch"], signal.SIGTERM)
        for trainer in self._trainers():
            self._to_their_end([trainer])
            if self._run is not None:
                trainer.lives += 1
                process = self._run_trainer("link_all", trainer, None)
                self._processes.append(process)
                if self._wait(trainer, process, HEALTHY_S) != 0:
                    self._breach("what waits in the spool can be linked", "see the log")
        self._poller.end()
        self.report.looks = self._poller.looks

    def _to_their_end(self, actors: list[_Actor], asked_by: signal.Signals | None = None) -> None:
        processes = [(actor, self._start(actor, None)) for actor in actors]
        for actor, process in processes:
            if asked_by is not None:
                self._watches(actor)
                process.signal(asked_by)
            code = self._wait(actor, process, HEALTHY_S)
            if code != 0:
                self._breach("a healthy process ends well", f"{actor.name} ended with {code}")

    def _watches(self, actor: _Actor) -> None:
        """Wait until a command says that it watches: before, a signal is nobody's."""
        log = self._log(actor)
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            if log.exists() and "watching" in log.read_text(errors="replace"):
                return
            time.sleep(0.02)

    # Processes

    def _start(self, actor: _Actor, life: Life | None) -> Process:
        actor.lives += 1
        actor.noted = actor.notes.size
        self.report.processes += 1
        plan = actor.plan
        directory = str(self._records.path / plan.directory)
        options = {**self._options, **({"shutdown_timeout_s": life.close_timeout_s} if life else HEALTHY)}
        start = self._ground.zygote.start
        where: dict[str, Any] = {"log": self._log(actor), "environment": self._environment}
        if plan.role == "trainer":
            process = self._run_trainer("run", actor, life)
        elif plan.role == "watch":
            options.pop("storage_options", None)
            process = start(
                "tests.campaign.capture:watch", _watch_arguments(directory, self._place.url, options), **where
            )
        else:
            job = CaptureJob(
                url=self._place.url if plan.role == "server" else None,
                options=options,
                record_dir=directory,
                notes=str(actor.notes),
                records=plan.records,
                life=life,
            )
            process = start("tests.campaign.capture:run", job, **where)
        self._processes.append(process)
        return process

    def _trainers(self) -> list[_Actor]:
        return [actor for actor in self._actors if actor.plan.role == "trainer"]

    def _run_trainer(self, function: str, actor: _Actor, life: Life | None) -> Process:
        job = TrainerJob(
            url=self._place.url,
            options=self._options,
            record_dir=str(self._records.path / actor.plan.directory),
            notes=str(actor.notes),
            answers=tuple(str(one.notes) for one in self._actors if one.plan.role == "server"),
            spool=str(self._spool),
            run=self._run,
            steps=actor.plan.steps,
            life=life,
        )
        target = f"tests.campaign.trainer:{function}"
        return self._ground.zygote.start(target, job, log=self._log(actor), environment=self._environment)

    def _wait(self, actor: _Actor, process: Process, timeout_s: float) -> int | None:
        code = process.wait(timeout_s)
        if code is None:
            self._breach("a process ends when it is asked to", f"{actor.name}, life {actor.lives}, see its log")
            process.signal(signal.SIGUSR1)
            time.sleep(0.5)
            process.signal(signal.SIGKILL)
            code = process.wait(END_S)
        if code == -signal.SIGKILL:
            self.report.kills += 1
        if code != 0:
            self._hard_ends += 1
        return code

    def _log(self, actor: _Actor) -> Path:
        return self._directory / f"{actor.name}-{actor.lives}.log"

    def _guarded(self, function: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - the function's own
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001 - the campaign's own mistakes must not pass for a clean run
            self._breach("the campaign itself works", repr(error))

    # The laws

    def check(self) -> None:
        exclude = self._scenario.options["exclude"]
        directories = sorted({self._records.path / actor.plan.directory for actor in self._actors})
        objects = self._place.objects()
        wanted = laws.wanted_files(directories, exclude)
        self.report.records = sum(name.endswith(".json.zst") for name in wanted)
        self._hold("every finished record arrives", laws.everything_arrived(wanted, objects))
        self._hold("receipts are true", laws.receipts_are_true(self._place, objects, wanted, exclude))
        self._hold("receipts are true", laws.receipts_beside_are_true(directories, objects))
        self._hold("nothing is sent without need", self._sent_needlessly())
        self._hold("no litter", self._litter(directories))
        self._hold("logs are clean", laws.logs_are_clean(sorted(self._directory.glob("*.log"))))
        for trainer in self._trainers():
            self._check_steps(trainer, objects)
        self._hold("no process is left", self._left_processes())
        for actor in self._actors:
            for fact in actor.notes.read("violation"):
                self._breach(fact["law"], f"{actor.name}: {fact['detail']}")

    def keep_evidence(self) -> None:
        """Keep what is on a disk that is about to go, if any law did not hold."""
        if self.report.breaches:
            with contextlib.suppress(OSError):
                shutil.copytree(self._records.path, self._directory / "evidence")

    def _check_steps(self, trainer: _Actor, objects: dict[str, bytes]) -> None:
        ended, spool = step_laws.ended_steps(trainer.notes), Spool(self._spool)
        if len(ended) != trainer.plan.steps:
            self._breach("a healthy trainer ends every step", str(sorted(ended)))
        if self._run is None:
            self._hold("every step is kept", step_laws.steps_are_spooled(ended, spool))
            return
        receipts = laws.receipts_of(objects)
        found = step_laws.steps_are_in_wandb(ended, self._ground.wandb, self._run, receipts, spool)
        self._hold("every step is in W&B once", found)
        self._hold("every step is in the mirror", step_laws.steps_are_in_the_mirror(ended, objects))

    def _sent_needlessly(self) -> Iterator[str]:
        for actor in self._actors:
            directory = self._records.path / actor.plan.directory
            untouched = {name for name, state in actor.covered.items() if laws.state_now(directory / name) == state}
            yield from laws.was_sent_needlessly(untouched, self._healthy_requests.names_put)

    def _litter(self, directories: list[Path]) -> Iterator[str]:
        return laws.no_litter(self._place, directories, self._directory / "tmp", hard_ends=self._hard_ends)

    def _left_processes(self) -> Iterator[str]:
        sessions = {process.pid for process in self._processes}
        mark = f"TMPDIR={self._environment['TMPDIR']}".encode()
        deadline = time.monotonic() + END_S
        while (left := _of_sessions(sessions, mark)) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid, name in left.items():
            yield f"{name} ({pid}) is left"
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _sidecars(self) -> dict[str, set[str]]:
        plans = [plan for actor in self._scenario.actors for plan in actor.records]
        kinds = {plan.id: [kind for kind, _ in PROFILES[plan.profile].sidecar_bytes] for plan in plans}
        return laws.wanted_sidecars(kinds, self._scenario.options["exclude"])

    def _hold(self, law: str, breaches: Iterator[str]) -> None:
        for breach in breaches:
            self._breach(law, breach)

    def _breach(self, law: str, what: str) -> None:
        self.report.breaches.append(f"{law}: {what}")


def forget(report: Report) -> None:
    """Remove what a run left behind."""
    shutil.rmtree(report.directory, ignore_errors=True)


def _watch_arguments(directory: str, url: str, options: dict[str, Any]) -> list[str]:
    flags = {
        "workers": "--workers",
        "attempts": "--attempts",
        "timeout_s": "--timeout",
        "backoff_s": "--backoff",
        "rescan_s": "--rescan",
        "queue_size": "--queue-size",
        "max_bytes_in_flight": "--max-bytes-in-flight",
        "shutdown_timeout_s": "--shutdown-timeout",
        "host": "--host",
    }
    arguments = ["watch", directory, url]
    for name, flag in flags.items():
        arguments += [flag, str(options[name])]
    for kind in options["exclude"]:
        arguments += ["--exclude", kind]
    return [*arguments, "--fsync" if options["fsync"] else "--no-fsync"]


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
