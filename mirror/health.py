"""How a mirror is, over HTTP: ``/healthz`` for whoever restarts or pages, ``/metrics`` for Prometheus."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING

from mirror.breaker import BreakerState
from mirror.errors import ConfigError
from mirror.stats import MirrorStats

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

logger = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 10.0


def judge(stats: MirrorStats, *, max_lag_s: float | None) -> list[str]:
    """Say what is wrong with a mirror; nothing: it is healthy."""
    problems = []
    if stats["breaker"] == BreakerState.REFUSED:
        problems.append(f"the store refuses everything: {stats['breaker_reason']}")
    elif stats["breaker"] != BreakerState.CLOSED:
        problems.append(f"the store does not answer: {stats['breaker_reason']}")
    if max_lag_s is not None and stats["lag_s"] > max_lag_s:
        problems.append(f"the oldest uncopied record is {stats['lag_s']:.0f} s old, which is more than {max_lag_s:g} s")
    return problems


def parse_listen(text: str) -> tuple[str, int] | None:
    """Read ``host:port``, ``:port``, ``[v6]:port`` or ``off``.

    Raises:
        ConfigError: it is none of them.
    """
    if text == "off":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 0xFFFF:  # noqa: PLR2004 - the largest port
        raise ConfigError(f"--listen takes host:port such as 127.0.0.1:9119, or off, not {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


class MirrorCollector:
    """Turns a mirror's stats into Prometheus metrics, when they are asked for."""

    def __init__(self, stats: Callable[[], MirrorStats]) -> None:
        """Ask nothing yet."""
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """Yield what the stats say now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - slow to import

        stats = self._stats()
        labels = [stats["url"]]
        for name, value, text in (
            ("mirrored", stats["mirrored"], "Records copied."),
            ("failed", stats["failed"], "Records given up until somebody acts."),
            ("lost", stats["lost"], "Records whose local file was gone before it was copied."),
            ("timed_out", stats["timed_out"], "Requests that ran out of time."),
            ("retried", stats["retried"], "Requests that were tried again."),
            ("files", stats["files"], "Files sent."),
            ("bytes", stats["bytes"], "Bytes sent."),
        ):
            counter = CounterMetricFamily(f"record_mirror_{name}", text, labels=["url"])
            counter.add_metric(labels, value)
            yield counter
        for name, level, text in (
            (
                "submitted",
                stats["submitted"],
                "Records handed over or found by a look; may fall when two turn out to be one.",
            ),
            ("late", stats["late"], "Records that must be found again on disk."),
            ("pending", stats["pending"], "Records that wait or are being copied."),
            ("lag_seconds", stats["lag_s"], "Age of the oldest record that is not in the mirror."),
        ):
            gauge = GaugeMetricFamily(f"record_mirror_{name}", text, labels=["url"])
            gauge.add_metric(labels, level)
            yield gauge
        breaker = GaugeMetricFamily("record_mirror_breaker", "1 for the state that it is in.", labels=["url", "state"])
        for state in BreakerState:
            breaker.add_metric([*labels, state.value], float(stats["breaker"] == state))
        yield breaker


class HealthServer:
    """Serves on a daemon thread from when it is made until ``close``."""

    def __init__(
        self, address: tuple[str, int], stats: Callable[[], MirrorStats], *, max_lag_s: float | None = None
    ) -> None:
        """Listen on host and port; port 0 takes a free one.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415 - slow to import

        registry = CollectorRegistry()
        registry.register(MirrorCollector(stats))
        ProcessCollector(registry=registry)
        try:
            self._server = _Server(address, stats, registry, max_lag_s)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {address[0]}:{address[1]} ({error.strerror}): give --listen another"
            ) from None
        threading.Thread(target=self._server.serve_forever, name="record-mirror-health", daemon=True).start()

    @property
    def url(self) -> str:
        """Where it answers."""
        host, port = self._server.server_address[:2]
        host = str(host)
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def serving(
    address: tuple[str, int] | None, stats: Callable[[], MirrorStats], *, max_lag_s: float | None = None
) -> Iterator[HealthServer | None]:
    """Serve for the length of the block; without an address nothing is served.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    if address is None:
        yield None
        return
    with contextlib.closing(HealthServer(address, stats, max_lag_s=max_lag_s)) as server:
        yield server


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = False  # a second daemon on the port is a mistake

    def __init__(
        self,
        address: tuple[str, int],
        stats: Callable[[], MirrorStats],
        registry: CollectorRegistry,
        max_lag_s: float | None,
    ) -> None:
        self.stats = stats
        self.registry = registry
        self.max_lag_s = max_lag_s
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # the base class's asks the name service who we are, which may take long
        self.server_name, self.server_port = "record-mirror", self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the base class's
        logger.debug("a request from %s broke off: %s", client_address, sys.exception())


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_TIMEOUT_S
    server_version = "record-mirror"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._answer_health()
        elif path == "/metrics":
            self._answer_metrics()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"/healthz or /metrics\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        logger.debug(format, *args)

    def _answer_health(self) -> None:
        stats = self.server.stats()
        problems = judge(stats, max_lag_s=self.server.max_lag_s)
        body = json.dumps({"healthy": not problems, "problems": problems, **stats}).encode() + b"\n"
        self._answer(HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK, "application/json", body)

    def _answer_metrics(self) -> None:
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - slow to import

        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        self._answer(HTTPStatus.OK, content_type, encode(self.server.registry))

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
