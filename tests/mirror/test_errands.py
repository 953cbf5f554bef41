"""Background work of which there is one piece of each kind at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mirror.errands import Errands


class Work:
    """An errand that ends when it is let."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.may_end = asyncio.Event()

    async def errand(self, _path: Path) -> int:
        self.begun += 1
        number = self.begun
        await self.may_end.wait()
        self.ended += 1
        return number


async def turns() -> None:
    """Let everything go as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_there_is_one_of_each_at_a_time(tmp_path: Path) -> None:
    """Begun twice it runs once, for each of its arguments; its end is told."""

    async def scenario() -> None:
        work, ends = Work(), list[int]()
        errands = Errands(lambda: ends.append(work.ended))
        for path in (tmp_path, tmp_path, tmp_path / "other"):
            errands.begin(work.errand, path)
        await turns()
        assert work.begun == len(errands.tasks()) == 2
        work.may_end.set()
        await turns()
        assert len(ends) == 2
        assert errands.tasks() == []

    asyncio.run(scenario())


def test_anew_is_what_began_after_it_was_asked_for(tmp_path: Path) -> None:
    """What is under way already may have looked too early; who ask meanwhile share the next."""

    async def scenario() -> None:
        work = Work()
        errands = Errands(list)
        errands.begin(work.errand, tmp_path)
        await turns()
        asked = [asyncio.create_task(errands.anew(work.errand, tmp_path)) for _ in range(3)]
        await turns()
        assert work.begun == 1
        work.may_end.set()
        assert await asyncio.gather(*asked) == [2, 2, 2]

    asyncio.run(scenario())


def test_an_errand_goes_on_when_nobody_waits_any_more(tmp_path: Path) -> None:
    """What it has taken in hand is lost to nobody whose time ran out."""

    async def scenario() -> None:
        work = Work()
        errands = Errands(list)
        for wait in (errands.anew(work.errand, tmp_path), errands.wait(but=turns)):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(wait, 0.01)
        assert work.begun == 1
        work.may_end.set()
        await turns()
        assert work.ended == 1

    asyncio.run(scenario())
