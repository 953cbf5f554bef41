"""The processes of a run over their lives: started, let live, ended as the scenario says, and started once more."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mirror.terminal.exits import Exit
from tests.campaign import laws
from tests.campaign.capture import CaptureJob
from tests.campaign.notes import Notes
from tests.campaign.processes import Process
from tests.campaign.scenario import ActorPlan, Ending, Life, Role
from tests.campaign.stage import Stage
from tests.campaign.trainer import TrainerJob
from tests.campaign.weather import Counter

END_S = 30.0  # for a process that was asked to end; only a hang takes so long
HEALTHY_S = 150.0
LATE_S = 2.0  # some prunes
AGAIN_S = 10.0  # until somebody at a keyboard interrupts once more
SIGNALS = {
    Ending.CLOSE: signal.SIGTERM,
    Ending.LEAVE: signal.SIGTERM,
    Ending.TERM: signal.SIGTERM,
    Ending.INT: signal.SIGINT,
    Ending.KILL: signal.SIGKILL,
}
HEALTHY: dict[str, Any] = {"timeout_s": 20.0, "attempts": 5}
PRUNE_OPTIONS = ("workers", "attempts", "timeout_s", "backoff_s", "max_bytes_in_flight", "driver")
WATCH_FLAGS = {
    "workers": "--workers",
    "attempts": "--attempts",
    "timeout_s": "--timeout",
    "backoff_s": "--backoff",
    "rescan_s": "--rescan",
    "queue_size": "--queue-size",
    "max_bytes_in_flight": "--max-bytes-in-flight",
    "shutdown_timeout_s": "--shutdown-timeout",
    "host": "--host",
    "driver": "--driver",
}


@dataclass(slots=True, kw_only=True)
class Actor:
    """A process of the scenario; every life of it is another process."""

    name: str
    plan: ActorPlan
    notes: Notes
    lives: int = 0
    noted: int = 0  # bytes of its notes before its present life
    code: int | None = None  # of its last, healthy life


@dataclass(slots=True)
class Actors:
    """All of a run's. Threads that keep different actors may call at the same time."""

    stage: Stage
    over: threading.Event = field(default_factory=threading.Event)  # the faulty phase is
    processes: list[Process] = field(default_factory=list)
    kills: int = 0
    hard_ends: int = 0  # lives that could not clean up
    all: list[Actor] = field(init=False)

    def __post_init__(self) -> None:
        """Start nobody."""
        self.all = [
            Actor(name=name, plan=plan, notes=Notes(self.stage.directory / f"{name}.notes"))
            for number, plan in enumerate(self.stage.scenario.actors)
            for name in [f"{number}-{plan.role}"]
        ]

    def of(self, role: Role) -> list[Actor]:
        """Return those of a role."""
        return [actor for actor in self.all if actor.plan.role == role]

    def keep(self, actor: Actor, counter: Counter) -> None:
        """Let an actor live through its lives, as many as fit into the faulty phase."""
        try:
            for life in actor.plan.lives:
                if self.over.is_set():
                    return
                covered = self._covered(actor)
                already = len(counter.names_put)
                process = self._start(actor, life)
                self._live(actor, process, life, counter)
                for breach in covered.sent_again(counter.names_put[already:]):
                    self.stage.breach("nothing is sent without need", f"{actor.name}, life {actor.lives}: {breach}")
        except Exception as error:  # noqa: BLE001 - the campaign's own mistakes must not pass for a clean run
            self.stage.breach("the campaign itself works", repr(error))

    def to_their_end(self, actors: list[Actor]) -> None:
        """Start actors once more, in health, and wait until they are done."""
        processes = [(actor, self._start(actor, None)) for actor in actors]
        for actor, process in processes:
            if actor.plan.role == "watch":
                self._watches(actor)
                process.signal(signal.SIGTERM)
            code = actor.code = self._wait(actor, process, HEALTHY_S)
            # What an older write replaced, or was sent twice, is no pruner's fault: it keeps it.
            if code != 0 and not (actor.plan.role == "pruner" and code == Exit.DIFFERENCES):
                self.stage.breach("a healthy process ends well", f"{actor.name} ended with {code}")

    @contextlib.contextmanager
    def pruning(self) -> Iterator[None]:
        """Have the pruners work again and again beside what happens in the block."""
        over = threading.Event()
        threads = [threading.Thread(target=self._prune_until, args=(over, actor)) for actor in self.of("pruner")]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _prune_until(self, over: threading.Event, actor: Actor) -> None:
        while not over.is_set():
            code = self._wait(actor, self._start(actor, None), HEALTHY_S)
            if code not in {Exit.COMPLETE, Exit.DIFFERENCES, Exit.UNCHECKED}:  # nothing may be in the mirror yet
                self.stage.breach("a healthy process ends well", f"{actor.name}, life {actor.lives} ended with {code}")

    def link(self, trainer: Actor) -> None:
        """Do what a user does when training is over."""
        trainer.lives += 1
        process = self._run_trainer("link_all", trainer, None)
        if self._wait(trainer, process, HEALTHY_S) != 0:
            self.stage.breach("what waits in the spool can be linked", "see the log")

    def _live(self, actor: Actor, process: Process, life: Life, counter: Counter) -> None:
        asked = counter.count
        while not (self.over.is_set() or process.is_over or self._has_begun(actor, counter.count - asked, life)):
            time.sleep(0.005)
        self.over.wait(life.after_s)
        if life.ending in {Ending.CLOSE, Ending.LEAVE}:
            while not (self.over.wait(0.02) or process.is_over):
                pass
        if life.stopped_s and not process.is_over:
            process.signal(signal.SIGSTOP)
            self.over.wait(life.stopped_s)
            process.signal(signal.SIGCONT)
        process.signal(SIGNALS[life.ending])
        if life.ending is Ending.INT and process.wait(AGAIN_S) is None:
            process.signal(signal.SIGINT)  # an interrupt that comes while the process forks is gone
        self._wait(actor, process, life.close_timeout_s + END_S)

    def _covered(self, actor: Actor) -> laws.Covered:
        """Return what need not be sent in an actor's next life, where nobody else works on its directory."""
        sharing = [other for other in self.of("server") if other.plan.directory == actor.plan.directory]
        alone = sharing == [actor]
        return laws.Covered(self.stage.record_dir(actor.plan.directory)) if alone else laws.Covered(None)

    def _has_begun(self, actor: Actor, requests: int, life: Life) -> bool:
        """Whether the time until a life's end begins to count: at a certain request, or at a first sign of life."""
        if life.after_requests is not None and self.stage.scenario.store != "directory":
            return requests >= life.after_requests
        log = self.stage.directory / f"{actor.name}-{actor.lives}.log"
        return actor.notes.size > actor.noted or (log.exists() and log.stat().st_size > 0)

    def _watches(self, actor: Actor) -> None:
        """Wait until a command says that it watches: before, a signal is nobody's."""
        log = self.stage.directory / f"{actor.name}-{actor.lives}.log"
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            if log.exists() and "watching" in log.read_text(errors="replace"):
                return
            time.sleep(0.02)

    def _start(self, actor: Actor, life: Life | None) -> Process:
        actor.lives += 1
        actor.noted = actor.notes.size
        plan = actor.plan
        directory = str(self.stage.record_dir(plan.directory))
        options = {**self.stage.options, **({"shutdown_timeout_s": life.close_timeout_s} if life else HEALTHY)}
        if plan.role == "trainer":
            return self._run_trainer("run", actor, life)
        if plan.role == "watch":
            return self._run("capture:command", actor, _watch_arguments(directory, self.stage.place.url, options))
        if plan.role == "pruner":
            if life is None:
                plan = replace(plan, older_than_s=0.0)
            arguments = _prune_arguments(
                directory, self.stage.place.url, plan, {**options, **({} if life else HEALTHY)}
            )
            return self._run("capture:command", actor, arguments)
        job = CaptureJob(
            url=self.stage.place.url if plan.role == "server" else None,
            options=options,
            record_dir=directory,
            notes=str(actor.notes),
            records=plan.records,
            life=life,
            late_s=LATE_S if self.of("pruner") else 0.0,
        )
        return self._run("capture:run", actor, job)

    def _run_trainer(self, function: str, actor: Actor, life: Life | None) -> Process:
        job = TrainerJob(
            url=self.stage.place.url,
            options={**self.stage.options, **({} if life else HEALTHY)},
            record_dir=str(self.stage.record_dir(actor.plan.directory)),
            notes=str(actor.notes),
            answers=tuple(str(server.notes) for server in self.of("server")),
            spool=str(self.stage.spool),
            run=self.stage.wandb_run,
            steps=actor.plan.steps,
            life=life,
        )
        return self._run(f"trainer:{function}", actor, job)

    def _run(self, target: str, actor: Actor, job: object) -> Process:
        process = self.stage.ground.zygote.start(
            f"tests.campaign.{target}",
            job,
            log=self.stage.directory / f"{actor.name}-{actor.lives}.log",
            environment=self.stage.environment,
        )
        self.processes.append(process)
        return process

    def _wait(self, actor: Actor, process: Process, timeout_s: float) -> int | None:
        code = process.wait(timeout_s)
        if code is None:
            self.stage.breach("a process ends when it is asked to", f"{actor.name}, life {actor.lives}, see its log")
            process.signal(signal.SIGUSR1)  # its threads go to the log
            time.sleep(0.5)
            process.signal(signal.SIGKILL)
            code = process.wait(END_S)
        self.kills += code == -signal.SIGKILL
        self.hard_ends += code != 0 and actor.plan.role != "pruner"  # which writes to no mirror
        return code


def _prune_arguments(directory: str, url: str, plan: ActorPlan, options: dict[str, Any]) -> list[str]:
    arguments = ["prune", directory, url, "--yes", "--older-than", str(plan.older_than_s)]
    for name in PRUNE_OPTIONS:
        arguments += [WATCH_FLAGS[name], str(options[name])]
    for kind in options["exclude"] if plan.discards else ():
        arguments += ["--discard", kind]
    return arguments


def _watch_arguments(directory: str, url: str, options: dict[str, Any]) -> list[str]:
    arguments = ["watch", directory, url, "--listen", "127.0.0.1:0"]
    for name, flag in WATCH_FLAGS.items():
        arguments += [flag, str(options[name])]
    for kind in options["exclude"]:
        arguments += ["--exclude", kind]
    return [*arguments, "--fsync" if options["fsync"] else "--no-fsync"]
