"""A mirror at work: its thread, the engine on it, and what the engine is made of."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from concurrent.futures import CancelledError, wait
from dataclasses import dataclass

from mirror.allowance import Allowance
from mirror.backlog import Backlog
from mirror.breaker import Breaker, BreakerState
from mirror.config import MirrorConfig
from mirror.copying import Copier
from mirror.engine import Engine
from mirror.kinds import Kinds
from mirror.limiter import Limiter
from mirror.location import Location
from mirror.loop import LoopThread
from mirror.place import words_for_place
from mirror.receipts.ledger import Ledger
from mirror.receipts.segments import PREFIX as RECEIPTS
from mirror.receipts.segments import make_writer_id, write_probe
from mirror.reliable import ReliableStore
from mirror.retry import RetryPolicy
from mirror.stores.driver import choose_driver
from mirror.stores.opening import StoreOpener

ASK_EVERY_S = 0.1  # whether the store refuses everything by now, while a close waits
JOIN_S = 5.0  # for the thread to end once it has nothing to do


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which records go where, and how."""

    location: Location
    place: str  # what the mirror is called beside the records
    host: str  # what receipts say of this node
    config: MirrorConfig
    open_store: StoreOpener


class Running:
    """Started when made, for one process; ``end`` it once."""

    def __init__(self, plan: Plan, backlog: Backlog, kinds: Kinds) -> None:
        """Start the thread and the engine; nothing is contacted."""
        self.driver = choose_driver(plan.location, plan.config)
        self.thread = LoopThread("record-mirror")
        self._woken = False
        self.engine, self.breaker, self.store = self.thread.start(_assemble(plan, backlog, kinds)).result()
        self.thread.at_end(self.engine.aclose)
        self._work = self.thread.start(_begin(self.engine)).result()

    def wake(self) -> None:
        """Tell the engine that there is something to do; many calls at once cost one."""
        if not self._woken:
            self._woken = True
            self.thread.call_soon(self._wake)

    def wait_drained(self, timeout_s: float | None, *, late_too: bool) -> bool:
        """Wait on the calling thread as ``drained``; False too if the time ran out or ``end`` came first."""
        waiting = self.thread.start(self.engine.drained(late_too=late_too))
        try:
            return waiting.result(timeout_s)
        except (TimeoutError, CancelledError):
            waiting.cancel()
            return False

    def wait_drained_or_refused(self, timeout_s: float) -> None:
        """Wait as ``wait_drained``, for late records too, but not for a store that refuses everything."""
        end = time.monotonic() + timeout_s
        waiting = self.thread.start(self.engine.drained(late_too=True))
        while not waiting.done() and not (self.breaker.state is BreakerState.REFUSED and self.engine.needs_store):
            left_s = end - time.monotonic()
            if left_s <= 0:
                break
            wait([waiting], min(left_s, ASK_EVERY_S))
        waiting.cancel()

    def end(self) -> None:
        """End every task, bring the last receipts over, let go of everything."""
        ending = self.thread.start(self._end())
        with contextlib.suppress(TimeoutError, CancelledError):  # CancelledError: the interpreter has ended the loop
            ending.result(2 * JOIN_S)
        self.thread.close(JOIN_S)

    def _wake(self) -> None:
        self._woken = False
        self.engine.wake.set()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}  # the work, and what other threads are waiting for
        for task in others:
            task.cancel()
        await asyncio.wait({self._work, *others})
        await self.engine.last_flush()


async def _begin(engine: Engine) -> asyncio.Task[None]:
    return asyncio.create_task(engine.run())


async def _assemble(plan: Plan, backlog: Backlog, kinds: Kinds) -> tuple[Engine, Breaker, ReliableStore]:
    config = plan.config
    raw_store = plan.open_store(plan.location, config)
    writer = make_writer_id()
    breaker = Breaker(plan.location.shown)
    policy = RetryPolicy(attempts=config.attempts, backoff_s=config.backoff_s, timeout_s=config.timeout_s)
    probe_once = functools.partial(write_probe, raw_store, writer)
    store = ReliableStore(
        raw_store,
        policy,
        limiter=Limiter(config.workers),
        breaker=breaker,
        probe=probe_once,
        essential=RECEIPTS,
        patient=True,
    )
    copier = Copier(
        store=store,
        in_flight=Allowance(config.max_bytes_in_flight),
        exclude=frozenset(config.exclude),
        writer=writer,
        host=plan.host,
    )
    engine = Engine(
        store=store,
        probe_once=probe_once,
        breaker=breaker,
        copier=copier,
        backlog=backlog,
        kinds=kinds,
        open_ledger=lambda path: Ledger(
            path, plan.place, writer, url=words_for_place(plan.location, config.storage_options)
        ),
        mirror_directory=plan.location.directory,
        workers=config.workers,
        rescan_s=config.rescan_s,
    )
    return engine, breaker, store
