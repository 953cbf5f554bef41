"""TLS in front of a plain server, and a wire that flips a bit: bytes are passed on as they come."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import secrets
import ssl
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mirror.testing.proxy import stop_listening

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Certificates:
    """An authority that nobody else knows, and what it vouches for: 127.0.0.1."""

    trusted: Path  # everybody whom a client is to trust: this authority and the machine's own
    server: ssl.SSLContext = field(repr=False)

    @classmethod
    def made_in(cls, folder: Path) -> Self:
        """Make new ones, with their files in ``folder``."""
        authority_key, authority = _certificate(f"a test's authority {secrets.token_hex(8)}")  # names tell them apart
        key, certificate = _certificate(LOOPBACK, authority_key, authority)
        trusted, chain = folder / "trusted.pem", folder / "server.pem"
        usual = ssl.get_default_verify_paths().cafile
        trusted.write_bytes(
            (Path(usual).read_bytes() if usual else b"") + authority.public_bytes(serialization.Encoding.PEM)
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        return cls(trusted, context)


def _certificate(
    name: str, issuer_key: ec.EllipticCurvePrivateKey | None = None, issuer: x509.Certificate | None = None
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=7))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        here = x509.IPAddress(ipaddress.ip_address(LOOPBACK))
        builder = builder.add_extension(x509.SubjectAlternativeName([here]), critical=False)
    return key, builder.sign(issuer_key or key, hashes.SHA256())


@dataclass
class Flip:
    """A bit to flip in each of some connections."""

    behind_bytes: int
    times: int


class Relay:
    """Passes the bytes of each connection on, both ways, between ``__enter__`` and ``__exit__``.

    With a context for TLS it ends that and goes on in plain; without one it knows nothing of what it passes on.
    """

    def __init__(self, upstream_url: str, context: ssl.SSLContext | None = None) -> None:
        """Prepare; nothing runs before ``__enter__``."""
        upstream = urlsplit(upstream_url)
        self._upstream = (upstream.hostname or LOOPBACK, upstream.port or 0)
        self._context = context
        self._scheme = "https" if context is not None else upstream.scheme
        self._port = 0
        self._flip: Flip | None = None
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="relay", daemon=True)

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"{self._scheme}://{LOOPBACK}:{self._port}"

    @property
    def has_flipped(self) -> bool:
        """Whether what ``flip`` asked for has happened."""
        return self._flip is None

    def flip(self, *, behind_bytes: int, times: int = 1) -> None:
        """Flip one bit of the requests of so many connections, behind so many bytes that pass from now on."""
        self._flip = Flip(behind_bytes, times)

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        """Drop all connections and end."""
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        connections: set[asyncio.Task[None]] = set()

        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            def ended(task: asyncio.Task[None]) -> None:
                connections.discard(task)
                if task.cancelled():
                    writer.transport.abort()  # perhaps before it had begun
                else:
                    task.exception()  # both sides were told

            task = asyncio.create_task(self._serve(reader, writer))
            connections.add(task)
            task.add_done_callback(ended)

        server = await asyncio.start_server(serve, LOOPBACK, 0)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        await stop_listening(server)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _ending(writer):
            if self._context is not None:  # not by the server itself, which would leave a handshake open at the end
                await writer.start_tls(self._context)
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
            async with _ending(up_writer):
                ways = [
                    asyncio.create_task(self._pass_on(reader, up_writer, is_request=True)),
                    asyncio.create_task(self._pass_on(up_reader, writer, is_request=False)),
                ]
                try:
                    ended, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    for way in ended:
                        way.result()
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        flip: Flip | None = None
        left = 0
        while data := await reader.read(CHUNK_BYTES):
            if is_request and self._flip is not None:
                if self._flip is not flip:
                    flip, left = self._flip, self._flip.behind_bytes
                if 0 <= left < len(data):
                    data = flipped(data, left)
                    flip.times -= 1
                    self._flip = flip if flip.times else None
                left -= len(data)  # negative once it has happened
            writer.write(data)
            await writer.drain()


def flipped(data: bytes, at: int) -> bytes:
    """Return other bytes: one bit differs."""
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


@contextlib.asynccontextmanager
async def _ending(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """End a connection as the other side ended its own: in order, or with a reset."""
    try:
        yield
    except BaseException:
        writer.transport.abort()
        raise
    writer.close()


class TlsFronts:
    """TLS in front of any plain server, as many as are asked for."""

    def __init__(self, certificates: Certificates, stack: contextlib.ExitStack) -> None:
        """Prepare; ``stack`` ends them."""
        self._certificates = certificates
        self._stack = stack
        self._fronts: dict[str, Relay] = {}

    def of(self, url: str) -> str:
        """Return the https URL of what answers at an http URL."""
        if url.startswith("https:"):
            return url
        if url not in self._fronts:
            self._fronts[url] = self._stack.enter_context(Relay(url, self._certificates.server))
        return self._fronts[url].url
