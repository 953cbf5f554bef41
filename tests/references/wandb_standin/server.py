"""A stand-in W&B server on a free loopback port, in a thread of its own: enough of it for the real client.

It answers runs, metrics and artifacts (logging, waiting, reading back, downloading), records every request, and fails
on demand (see ``faults``). Operations are named as the newest client names them; the rest of the traffic is
``PutManifest``, ``PutFile``, ``GetManifest``, ``GetFile``, ``GetBlob``, ``PutRunFile`` and ``FileStream``.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.references.wandb_standin.faults import Delay, Drop, Fault, Faults, Hang, LoseReply, Refuse, Status
from tests.references.wandb_standin.graphql import AnswerError, execute, operation_name
from tests.references.wandb_standin.nodes import ENTITY, Nodes
from tests.references.wandb_standin.state import State

API_KEY = "0123456789abcdef0123456789abcdef01234567"  # any 40 characters: nobody checks them
MAX_BODY_BYTES = 1 << 30
OLDER_NAMES = {  # as the newest client names the same operations
    "ArtifactByIDShort": "ArtifactByID",
    "ArtifactByName": "ArtifactMembershipByName",
    "Artifacts": "ProjectArtifacts",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that reached the server, whatever became of it."""

    operation: str
    method: str
    path: str
    variables: dict[str, Any] = field(default_factory=dict)
    fault: Fault | None = None


class WandbServer:
    """The server. ``state`` is what it holds, ``faults`` what shall go wrong, ``requests`` what came in."""

    def __init__(self) -> None:
        """Prepare; ``start`` opens the port."""
        self.state = State()
        self.faults = Faults()
        self.entity = ENTITY
        self.port = 0
        self._requests: list[Request] = []
        self._arrived = threading.Condition()
        self._healthy = asyncio.Event()  # set for ever each time the faults are cleared; hanging calls wait for it
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wandb-standin", daemon=True)
        self._nodes = Nodes(self.state, lambda: self.url)
        self._runner: web.AppRunner | None = None

    # Life

    def start(self) -> None:
        """Listen on a free port."""
        self._thread.start()
        self.up()

    def stop(self) -> None:
        """Answer what hangs, close the port and end the thread."""
        self.heal()
        self.down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def down(self) -> None:
        """Close the port: connections are refused, open ones are cut. What the server holds stays."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()

    def up(self) -> None:
        """Listen again, on the same port as before."""
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()

    def heal(self) -> None:
        """Forget all planned faults and let hanging calls end, without an answer."""
        self.faults.clear()
        self._loop.call_soon_threadsafe(self._release)

    def recover(self) -> None:
        """Be healthy and listen again, with no request recorded. What the server holds stays."""
        self.heal()
        self.state.deduplication = "latest"
        self.up()
        with self._arrived:
            self._requests.clear()

    # Looking at it

    @property
    def url(self) -> str:
        """The address for WANDB_BASE_URL."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self, scratch: str) -> dict[str, str]:
        """Return the environment in which the client talks to this server alone and keeps its files in ``scratch``."""
        return {
            "WANDB_BASE_URL": self.url,
            "WANDB_API_KEY": API_KEY,
            "WANDB_ENTITY": self.entity,
            "WANDB_ERROR_REPORTING": "false",
            "WANDB_SILENT": "true",
            "WANDB_CONSOLE": "off",
            "WANDB_DISABLE_GIT": "true",
            "WANDB_DIR": scratch,
            "WANDB_CACHE_DIR": f"{scratch}/cache",
            "WANDB_DATA_DIR": f"{scratch}/data",
            "WANDB_CONFIG_DIR": f"{scratch}/config",
            "WANDB_ARTIFACT_DIR": f"{scratch}/artifacts",
        }

    def requests(self, operation: str | None = None) -> list[Request]:
        """Return what came in so far, oldest first; of one operation or of all."""
        with self._arrived:
            return [request for request in self._requests if operation in (None, request.operation)]

    def wait_for(self, operation: str, count: int = 1, timeout_s: float = 30.0) -> bool:
        """Return True as soon as ``count`` calls of ``operation`` came in, False when the time is over."""
        with self._arrived:
            return self._arrived.wait_for(
                lambda: sum(request.operation == operation for request in self._requests) >= count, timeout_s
            )

    # Inside: everything below runs on the server's own thread

    async def _open(self) -> None:
        if self._runner is not None:
            return
        application = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._meet_faults])
        add = application.router.add_route
        add("POST", "/graphql", self._graphql)
        add("PUT", "/stored/manifest/{id}", self._put_manifest, name="PutManifest")
        add("GET", "/stored/manifest/{id}", self._get_manifest, name="GetManifest")
        add("PUT", "/stored/file/{id}/{path:.*}", self._put_file, name="PutFile")
        add("GET", "/stored/file/{id}/{path:.*}", self._get_file, name="GetFile")
        add("GET", "/artifactsV2/{place:.*}/{md5:[0-9a-f]{32}}{name:(/.*)?}", self._get_blob, name="GetBlob")
        add("PUT", "/stored/run/{path:.*}", self._accept, name="PutRunFile")
        add("POST", "/files/{place:.*}/file_stream", self._file_stream, name="FileStream")
        add("*", "/{path:.*}", self._unknown)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _release(self) -> None:
        self._healthy.set()
        self._healthy = asyncio.Event()

    @web.middleware
    async def _meet_faults(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Record the request, and let the planned fault, if any, happen to it."""
        operation, variables = await _identify(request)
        fault = self.faults.take(operation)
        with self._arrived:
            self._requests.append(
                Request(operation=operation, method=request.method, path=request.path, variables=variables, fault=fault)
            )
            self._arrived.notify_all()
        match fault:
            case Status(code=code, retry_after_s=pause_s):
                headers = {} if pause_s is None else {"Retry-After": f"{pause_s:g}"}
                return web.json_response({"errors": [{"message": f"{code} on demand"}]}, status=code, headers=headers)
            case Refuse(message=message):
                return web.json_response({"data": None, "errors": [{"message": message}]})
            case Hang():
                await self._healthy.wait()
                return _cut(request)
            case Drop():
                return _cut(request)
            case LoseReply():
                await handler(request)
                return _cut(request)
            case Delay(seconds=seconds):
                await asyncio.sleep(seconds)
        return await handler(request)

    async def _graphql(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        try:
            data = execute(asked["query"], asked.get("variables") or {}, self._nodes.root())
        except (AnswerError, KeyError, TypeError) as error:  # the last two: a query that the stand-in does not know
            return web.json_response({"data": None, "errors": [{"message": repr(error)}]})
        return web.json_response({"data": data})

    async def _put_manifest(self, request: web.Request) -> web.StreamResponse:
        self.state.version(request.match_info["id"]).manifest = await request.read()
        return web.Response()

    async def _get_manifest(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self.state.version(request.match_info["id"]).manifest)

    async def _put_file(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.state.blobs[hashlib.md5(body, usedforsecurity=False).hexdigest()] = body
        return web.Response()

    async def _get_file(self, request: web.Request) -> web.StreamResponse:
        version = self.state.version(request.match_info["id"])
        return web.Response(body=self.state.blob(version, request.match_info["path"]))

    async def _get_blob(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self.state.blobs[request.match_info["md5"]])

    async def _file_stream(self, request: web.Request) -> web.StreamResponse:
        """Take a run's metrics; the last of them end it."""
        body = await request.json()
        entity, project, name = request.match_info["place"].split("/")
        run = self.state.runs.get((entity, project, name))
        if run is not None and body.get("complete"):
            run["state"] = "failed" if body.get("exitcode") else "finished"
        return web.json_response({})

    async def _accept(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.json_response({})

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": f"the stand-in does not know {request.method} {request.path}"}, status=404)


async def _identify(request: web.Request) -> tuple[str, dict[str, Any]]:
    """Return the operation's name and its variables."""
    if request.path == "/graphql":
        asked = await request.json()
        name = operation_name(asked["query"])
        return OLDER_NAMES.get(name, name), asked.get("variables") or {}
    route = request.match_info.route.name
    return route or f"{request.method} {request.path}", {}


def _cut(request: web.Request) -> web.StreamResponse:
    """Close the connection; what is returned no longer reaches anybody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
