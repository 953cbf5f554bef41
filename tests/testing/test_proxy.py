"""The proxy passes requests on unchanged, counts them, and does to them what its script says and nothing else."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from mirror.testing import (
    Answer,
    Fault,
    FaultProxy,
    FlipReplyBit,
    FlipRequestBit,
    Hang,
    LoseReply,
    Reply,
    Reset,
    Stall,
    Throttle,
    TruncateReply,
    requests_to,
    s3_error,
)
from tests.testing.echo_store import EchoServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@pytest.fixture
def store() -> Iterator[EchoServer]:
    """A running store."""
    with EchoServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(store: EchoServer) -> Iterator[FaultProxy]:
    """A running proxy in front of the store."""
    with FaultProxy(f"http://127.0.0.1:{store.server_port}") as running:
        yield running


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[http.client.HTTPConnection]:
    """A connection to the proxy; it opens itself again after it was closed."""
    with closing(http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=10)) as connection:
        yield connection


def ask(
    client: http.client.HTTPConnection,
    method: str,
    path: str,
    body: Any = None,  # noqa: ANN401 - whatever http.client takes
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    try:
        client.request(method, path, body, dict(headers or {}))
        reply = client.getresponse()
        return reply.status, reply.read()
    except OSError:
        client.close()
        raise


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
@pytest.mark.parametrize("path", ["/sized", "/chunked", "/close"])
def test_bodies_pass_unchanged(client: http.client.HTTPConnection, store: EchoServer, path: str, size: int) -> None:
    """Whatever the size and the framing, the store gets the client's bytes and the client gets the store's."""
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert ask(client, "PUT", path, body)[0] == 200
    assert store.stored[path] == body
    assert ask(client, "GET", path) == (200, body)
    assert ask(client, "HEAD", path) == (200, b"")


def test_a_chunked_request_stays_chunked(client: http.client.HTTPConnection, store: EchoServer) -> None:
    """A body of unknown length is passed on piece by piece."""
    assert ask(client, "PUT", "/a", iter([b"one", b"two" * 50_000, b"three"]))[0] == 200
    assert store.stored["/a"] == b"one" + b"two" * 50_000 + b"three"


def test_the_host_header_is_the_clients(
    client: http.client.HTTPConnection, store: EchoServer, proxy: FaultProxy
) -> None:
    """The store sees the Host that the client signed."""
    ask(client, "PUT", "/a", b"x")
    assert store.hosts == [urlsplit(proxy.url).netloc]


def test_requests_are_kept_with_path_and_size(client: http.client.HTTPConnection, proxy: FaultProxy) -> None:
    """Each request is counted by method and listed with its query, status and sizes, until cleared."""
    ask(client, "PUT", "/a?x=1", b"12345")
    ask(client, "GET", "/a?x=1")
    ask(client, "GET", "/missing")
    seen = [(r.method, r.path, r.status, r.body_bytes, r.reply_bytes) for r in proxy.requests]
    assert seen == [("PUT", "/a?x=1", 200, 5, 32), ("GET", "/a?x=1", 200, 0, 5), ("GET", "/missing", 404, 0, 0)]
    assert proxy.counts == {"PUT": 1, "GET": 2}
    proxy.clear()
    assert (proxy.requests, proxy.counts) == ([], {})


def test_an_upload_session_goes_on_through_the_proxy(client: http.client.HTTPConnection, proxy: FaultProxy) -> None:
    """A Location at the store becomes the same place at the proxy."""
    client.request("POST", "/start", b"{}")
    reply = client.getresponse()
    reply.read()
    assert reply.headers["Location"] == f"{proxy.url}/session"


def test_faults_happen_in_order_to_the_requests_that_match(
    client: http.client.HTTPConnection, proxy: FaultProxy
) -> None:
    """A rule is used up by the requests that match it; others pass; afterwards all is well."""
    proxy.script(
        Fault(action=Answer(Reply(status=503)), match=requests_to("PUT", ".json"), times=2),
        Fault(action=Answer(Reply(status=429)), match=requests_to("PUT")),
    )
    assert proxy.remaining_faults == 3
    paths = ["/a.json", "/a.tokens", "/b.json", "/c.json", "/d.tokens"]
    assert [ask(client, "PUT", path, b"x")[0] for path in paths] == [503, 429, 503, 200, 200]
    assert proxy.remaining_faults == 0


def test_a_scripted_answer_never_reaches_the_store(
    client: http.client.HTTPConnection, store: EchoServer, proxy: FaultProxy
) -> None:
    """Status, code and Retry-After are the script's; the store hears nothing and the connection stays usable."""
    proxy.script(Fault(action=Answer(s3_error(503, "SlowDown", retry_after_s=2))))
    client.request("PUT", "/a", b"x" * 100_000)
    reply = client.getresponse()
    assert (reply.status, reply.headers["Retry-After"]) == (503, "2")
    assert b"<Code>SlowDown</Code>" in reply.read()
    assert store.stored == {}
    assert ask(client, "PUT", "/a", b"x")[0] == 200


def test_a_reset_comes_before_the_store_hears_anything(
    client: http.client.HTTPConnection, store: EchoServer, proxy: FaultProxy
) -> None:
    """The client sees a reset connection, the store no request."""
    proxy.script(Fault(action=Reset()))
    with pytest.raises(ConnectionResetError):
        ask(client, "PUT", "/a", b"x")
    assert store.stored == {}
    assert [r.status for r in proxy.requests] == [None]


def test_a_reset_within_the_body_leaves_nothing_whole(
    client: http.client.HTTPConnection, store: EchoServer, proxy: FaultProxy
) -> None:
    """The connection is reset after so many bytes of the body, on both sides."""
    proxy.script(Fault(action=Reset(after_bytes=1000)))
    with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
        ask(client, "PUT", "/a", b"x" * 2_000_000)
    assert store.stored == {}
    assert [r.body_bytes for r in proxy.requests] == [1000]


def test_a_lost_reply_is_of_a_request_that_was_done(
    client: http.client.HTTPConnection, store: EchoServer, proxy: FaultProxy
) -> None:
    """The store has the body, the client a reset connection."""
    proxy.script(Fault(action=LoseReply()))
    with pytest.raises(ConnectionResetError):
        ask(client, "PUT", "/a", b"x")
    assert store.stored == {"/a": b"x"}


def test_a_hanging_request_is_never_answered(
    client: http.client.HTTPConnection, store: EchoServer, proxy: FaultProxy
) -> None:
    """Nothing comes back, not even a go-ahead for the body; the proxy's end resets the connection."""
    proxy.script(Fault(action=Hang()))
    client.putrequest("PUT", "/a")
    client.putheader("Expect", "100-continue")
    client.putheader("Content-Length", "1")
    client.endheaders()
    client.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.sock.recv(1)
    client.sock.settimeout(10)
    proxy.down()
    with pytest.raises(ConnectionResetError):
        client.sock.recv(1)
    assert store.stored == {}


def test_a_stalled_answer_comes_late(client: http.client.HTTPConnection, proxy: FaultProxy) -> None:
    """The answer arrives, and not before the time has passed."""
    proxy.script(Fault(action=Stall(0.2)))
    begun = time.monotonic()
    assert ask(client, "PUT", "/a", b"x")[0] == 200
    assert time.monotonic() - begun >= 0.2


def test_a_truncated_answer_ends_early(client: http.client.HTTPConnection, proxy: FaultProxy) -> None:
    """The announced length stays, the bytes stop, and the connection is closed."""
    ask(client, "PUT", "/a", b"x" * 5000)
    proxy.script(Fault(action=TruncateReply(after_bytes=1234)))
    with pytest.raises(http.client.IncompleteRead) as caught:
        ask(client, "GET", "/a")
    assert (len(caught.value.partial), caught.value.expected) == (1234, 5000 - 1234)


def test_one_bit_of_a_body_can_be_flipped(
    client: http.client.HTTPConnection, store: EchoServer, proxy: FaultProxy
) -> None:
    """Exactly one byte differs by its lowest bit: in what the store gets, or in what the client gets."""
    body = bytes(600_000)
    flipped = bytearray(body)
    flipped[500_000] ^= 1
    proxy.script(Fault(action=FlipRequestBit(at=500_000)))
    ask(client, "PUT", "/a", body)
    assert store.stored["/a"] == flipped
    ask(client, "PUT", "/a", body)
    proxy.script(Fault(action=FlipReplyBit(at=500_000)))
    assert ask(client, "GET", "/a") == (200, bytes(flipped))


def test_a_throttled_body_takes_its_time(client: http.client.HTTPConnection, proxy: FaultProxy) -> None:
    """Bodies pass whole and no faster than the rate."""
    proxy.script(Fault(action=Throttle(bytes_per_s=100_000)))
    begun = time.monotonic()
    assert ask(client, "PUT", "/a", b"x" * 20_000)[0] == 200
    assert time.monotonic() - begun >= 0.2
    assert ask(client, "GET", "/a") == (200, b"x" * 20_000)


def test_while_down_connections_are_refused(client: http.client.HTTPConnection, proxy: FaultProxy) -> None:
    """Open connections are reset and new ones refused, until it is up again on the same port."""
    ask(client, "PUT", "/a", b"x")
    url = proxy.url
    proxy.down()
    with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
        ask(client, "GET", "/a")
    with pytest.raises(ConnectionRefusedError):
        ask(client, "GET", "/a")
    proxy.up()
    assert proxy.url == url
    assert ask(client, "GET", "/a") == (200, b"x")


def test_latency_is_added_to_each_round_trip(client: http.client.HTTPConnection, proxy: FaultProxy) -> None:
    """Latency may be changed while running; asking for a go-ahead first costs it twice."""
    ask(client, "PUT", "/a", b"x")
    proxy.latency_s = 0.1
    begun = time.monotonic()
    ask(client, "GET", "/a")
    assert time.monotonic() - begun >= 0.1
    begun = time.monotonic()
    ask(client, "PUT", "/a", b"x", {"Expect": "100-continue"})
    assert time.monotonic() - begun >= 0.2


def test_the_go_ahead_comes_before_the_body(proxy: FaultProxy, store: EchoServer) -> None:
    """A client that waits for 100 Continue gets it, then sends its body, then gets the answer."""
    with socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port or 0), timeout=10) as raw:
        raw.sendall(b"PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert raw.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(b"abc")
        assert raw.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    assert store.stored == {"/a": b"abc"}


def test_an_answer_may_come_instead_of_the_go_ahead(proxy: FaultProxy) -> None:
    """A scripted answer to a client that waits for 100 Continue comes at once and closes the connection."""
    proxy.script(Fault(action=Answer(Reply(status=503))))
    with socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port or 0), timeout=10) as raw:
        raw.sendall(b"PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        answer = raw.recv(1000)
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"Connection: close" in answer
        assert raw.recv(1) == b""


def test_a_check_sees_the_body_as_the_store_would(store: EchoServer) -> None:
    """The check gets the whole body after any flip; what it returns is answered in the store's place."""
    seen: list[tuple[str, str, str, bytes]] = []

    def check(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply | None:
        seen.append((method, path, headers["x-sum"], body))
        return None if body == b"a" * 300_000 else s3_error(400, "BadDigest")

    upstream = f"http://127.0.0.1:{store.server_port}"
    with FaultProxy(upstream, check_request=check) as proxy:
        proxy.script(Fault(action=FlipRequestBit(at=299_999)))
        with closing(http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=10)) as client:
            assert ask(client, "PUT", "/a", b"a" * 300_000, {"X-Sum": "1"})[0] == 400
            assert store.stored == {}
            assert ask(client, "PUT", "/a", b"a" * 300_000, {"X-Sum": "2"})[0] == 200
    assert [(method, path, claimed) for method, path, claimed, _ in seen] == [("PUT", "/a", "1"), ("PUT", "/a", "2")]
    assert seen[0][3] == b"a" * 299_999 + b"`"
    assert store.stored == {"/a": b"a" * 300_000}


def test_a_store_that_is_gone_looks_like_a_reset() -> None:
    """The proxy invents no answer when the store does not accept connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        with (
            FaultProxy(f"http://127.0.0.1:{taken.getsockname()[1]}") as proxy,
            closing(http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=10)) as client,
            pytest.raises(ConnectionResetError),
        ):
            ask(client, "GET", "/a")


def test_only_plain_http_upstreams_are_accepted() -> None:
    """The error says what form the URL has to have."""
    with pytest.raises(ValueError, match="http://host:port only"):
        FaultProxy("https://example.com")
