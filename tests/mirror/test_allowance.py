"""What is under way stays within the allowance, and whoever waits is served in turn, whoever gives up meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random as randoms
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from mirror.allowance import Allowance
from tests.mirror.fake_clock import settled


class Holder:
    """A task that holds some units until it is let go."""

    def __init__(self, allowance: Allowance, units: int, order: list[int] | None = None) -> None:
        self.units = units
        self.let_go = asyncio.Event()
        self.holding = False
        self._order = order
        self.task = asyncio.create_task(self._hold(allowance))

    async def _hold(self, allowance: Allowance) -> None:
        async with allowance.take(self.units):
            self.holding = True
            if self._order is not None:
                self._order.append(self.units)
            try:
                await self.let_go.wait()
            finally:
                self.holding = False


@contextlib.asynccontextmanager
async def ending(*holders: Holder) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for holder in holders:
            holder.let_go.set()
        await asyncio.gather(*(holder.task for holder in holders), return_exceptions=True)


def test_no_more_is_out_than_allowed() -> None:
    """Who does not fit waits until somebody lets go."""

    async def scenario() -> None:
        allowance = Allowance(3)
        first, second, third = Holder(allowance, 2), Holder(allowance, 1), Holder(allowance, 1)
        async with ending(first, second, third):
            await settled()
            assert [first.holding, second.holding, third.holding] == [True, True, False]
            assert allowance.used == 3
            second.let_go.set()
            await settled()
            assert third.holding
        assert allowance.used == 0

    asyncio.run(scenario())


def test_first_come_first_served() -> None:
    """A small one does not overtake a large one that came earlier, so the large one's turn comes."""

    async def scenario() -> None:
        allowance = Allowance(4)
        order: list[int] = []
        first, large, small = Holder(allowance, 2, order), Holder(allowance, 4, order), Holder(allowance, 1, order)
        async with ending(first, large, small):
            await settled()
            assert order == [2]
            first.let_go.set()
            await settled()
            assert order == [2, 4]
            large.let_go.set()
            await settled()
            assert order == [2, 4, 1]

    asyncio.run(scenario())


def test_what_is_larger_than_everything_goes_alone() -> None:
    """It gets all there is once nobody else holds any, and nobody beside it."""

    async def scenario() -> None:
        allowance = Allowance(2)
        first, huge, small = Holder(allowance, 1), Holder(allowance, 100), Holder(allowance, 1)
        async with ending(first, huge, small):
            await settled()
            assert not huge.holding
            first.let_go.set()
            await settled()
            assert huge.holding
            assert not small.holding
            huge.let_go.set()
            await settled()
            assert small.holding

    asyncio.run(scenario())


def test_nothing_can_be_taken_of_nothing() -> None:
    """An empty file takes no room, even where none is left."""

    async def scenario() -> None:
        allowance = Allowance(1)
        full, empty = Holder(allowance, 1), Holder(allowance, 0)
        async with ending(full, empty):
            await settled()
            assert empty.holding

    asyncio.run(scenario())


def test_the_capacity_may_change_while_some_wait() -> None:
    """More is served at once; less takes nothing away from those who hold some."""

    async def scenario() -> None:
        allowance = Allowance(1)
        holders = [Holder(allowance, 1) for _ in range(4)]
        async with ending(*holders):
            await settled()
            allowance.capacity = 3
            await settled()
            assert [holder.holding for holder in holders] == [True, True, True, False]
            allowance.capacity = 1
            holders[0].let_go.set()
            await settled()
            assert allowance.used == 2
            assert not holders[3].holding

    asyncio.run(scenario())


def test_a_cancelled_wait_lets_the_next_one_through() -> None:
    """Whoever gives up waiting leaves nothing behind."""

    async def scenario() -> None:
        allowance = Allowance(2)
        first, large, small = Holder(allowance, 1), Holder(allowance, 2), Holder(allowance, 1)
        async with ending(first, large, small):
            await settled()
            assert not small.holding
            large.task.cancel()
            await settled()
            assert small.holding
            assert large.task.cancelled()
        assert allowance.used == 0

    asyncio.run(scenario())


def test_cancelling_and_letting_go_at_once_loses_nothing() -> None:
    """A wait that is cancelled in the very moment in which its turn comes ends as cancelled and keeps nothing."""

    async def scenario(steps: tuple[str, ...]) -> None:
        allowance = Allowance(1)
        first, second, third = Holder(allowance, 1), Holder(allowance, 1), Holder(allowance, 1)
        async with ending(first, second, third):
            await settled()
            for step in steps:
                if step == "let go":
                    first.let_go.set()
                elif step == "cancel":
                    second.task.cancel()
                else:
                    await asyncio.sleep(0)
            await settled()
            assert second.task.cancelled()
            assert third.holding
        assert allowance.used == 0

    asyncio.run(scenario(("cancel", "let go")))
    asyncio.run(scenario(("let go", "cancel")))
    asyncio.run(scenario(("let go", "run", "cancel")))
    asyncio.run(scenario(("cancel", "run", "let go")))


@given(st.integers(1, 5), st.lists(st.integers(0, 7), max_size=12), st.integers(0, 2**32))
def test_the_allowance_holds_under_any_order_of_events(capacity: int, units: list[int], seed: int) -> None:
    """Whatever is let go or cancelled when: never too much is out, nobody starves, nothing is left over."""
    random = randoms.Random(seed)  # noqa: S311 - an order of events, no secret

    async def scenario() -> None:
        allowance = Allowance(capacity)
        holders = [Holder(allowance, n) for n in units]
        pending = list(holders)
        while pending:
            for _ in range(random.randrange(4)):
                await asyncio.sleep(0)
            out = [holder.units for holder in holders if holder.holding and not holder.let_go.is_set()]
            assert sum(out) <= capacity or sum(n > 0 for n in out) == 1
            pending.pop(random.randrange(len(pending))).let_go.set()
            if random.random() < 0.3:
                random.choice(holders).task.cancel()
        results = await asyncio.wait_for(asyncio.gather(*(h.task for h in holders), return_exceptions=True), 30)
        assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results)
        assert allowance.used == 0

    asyncio.run(scenario())
