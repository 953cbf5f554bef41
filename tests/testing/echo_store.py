"""An HTTP server that keeps what is PUT and answers GET with it: small enough for a test to look into."""

from __future__ import annotations

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class EchoHandler(BaseHTTPRequestHandler):
    """Keeps what is PUT under its path and answers GET with it."""

    protocol_version = "HTTP/1.1"
    server: EchoServer

    def do_PUT(self) -> None:
        """Keep the body, or nothing when the connection ends inside it."""
        body = self._chunked() if "chunked" in self.headers.get("Transfer-Encoding", "") else self._sized()
        if body is None:
            self.close_connection = True
            return
        self.server.stored[self.path] = body
        self.server.hosts.append(self.headers["Host"])
        self._answer(200, hashlib.md5(body).hexdigest().encode())  # noqa: S324 - as an S3 ETag, not for security

    def do_GET(self) -> None:
        """Answer with the body; under ``/chunked`` in chunks, under ``/close`` until the connection ends."""
        body = self.server.stored.get(self.path)
        if body is None:
            self._answer(404, b"")
        elif self.path.startswith("/chunked"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for start in range(0, len(body), 1000):
                piece = body[start : start + 1000]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        elif self.path.startswith("/close"):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
        else:
            self._answer(200, body)

    def do_HEAD(self) -> None:
        """Announce the length of the body and send none."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.stored[self.path])))
        self.end_headers()

    def do_POST(self) -> None:
        """Answer with the place of an upload session, as GCS does."""
        self._sized()
        self.send_response(200)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/session")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _sized(self) -> bytes | None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        return body if len(body) == length else None

    def _chunked(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class EchoServer(ThreadingHTTPServer):
    """A store small enough to look into."""

    def __init__(self) -> None:
        """Listen on a free port; nothing is stored."""
        super().__init__(("127.0.0.1", 0), EchoHandler)
        self.stored: dict[str, bytes] = {}
        self.hosts: list[str] = []

    def handle_error(self, *_: object) -> None:
        """Say nothing of connections that the proxy resets."""
