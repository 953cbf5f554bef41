"""Pieces of background work on an event loop, one of each at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)

Errand = Callable[..., Coroutine[Any, Any, T]]


class Errands:
    """Used on one event loop."""

    def __init__(self, ended: Callable[[], object]) -> None:
        """Begin with none; ``ended`` is called when one has ended."""
        self._ended = ended
        self._under_way: dict[tuple[object, ...], asyncio.Task[Any]] = {}

    def begin(self, errand: Errand[object], *arguments: Path) -> None:
        """Start an errand unless it is under way with the same arguments."""
        key = (errand, *arguments)
        if key not in self._under_way:
            self._under_way[key] = task = asyncio.create_task(errand(*arguments))
            task.add_done_callback(lambda task: self._end(key, task))

    async def wait(self, *, but: Errand[object]) -> None:
        """Return when all that is under way now has ended, but for this one."""
        tasks = [task for key, task in self._under_way.items() if key[0] != but]
        if tasks:
            await asyncio.wait(tasks)

    async def anew(self, errand: Errand[T], *arguments: Path) -> T:
        """Return what an errand brings that began after this call; it goes on where the wait is cancelled."""
        key = (errand, *arguments)
        if (earlier := self._under_way.get(key)) is not None:
            await asyncio.wait([earlier])
        self.begin(errand, *arguments)  # unless somebody who waited too has
        brings: asyncio.Task[T] = self._under_way[key]
        return await asyncio.shield(brings)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return what is under way."""
        return list(self._under_way.values())

    def _end(self, key: tuple[object, ...], task: asyncio.Task[Any]) -> None:
        del self._under_way[key]
        self._ended()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a bug ended a look at the records or the store", exc_info=error)
