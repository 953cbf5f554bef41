"""The connections of a server on asyncio's streams, each served by a task, none of which outlives the server."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_ACCEPTING_TURNS: Final = 5  # of the loop, from a connection's arrival to its being served; a few to spare
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER with no time to linger: close sends RST


class Connections:
    """Those of one server, which is given ``accept``. Used on one event loop."""

    def __init__(
        self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]
    ) -> None:
        """Have each connection served so; one that is still open when that ends is aborted."""
        self._serve = serve
        self._served: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._served[task] = writer
        task.add_done_callback(lambda task: self._served.pop(task).transport.abort())

    def reset(self) -> None:
        """Reset all that are open now."""
        for writer in self._served.values():
            reset(writer)

    async def end(self) -> None:
        """End all tasks, and with them their connections: the loop's own end may overlook some."""
        tasks = list(self._served)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection so that its client notices at once."""
    if not writer.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        writer.transport.abort()


async def stop_listening(server: asyncio.Server) -> None:
    """Close a server once what it accepted has reached its callback: asyncio leaves open what is between the two."""
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    for _ in range(_ACCEPTING_TURNS):
        await asyncio.sleep(0)
    server.close()
