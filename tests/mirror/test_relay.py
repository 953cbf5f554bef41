"""A relay leaves nothing open behind it: what it left would be told as a fault of whatever test runs later."""

from __future__ import annotations

import gc
import socket
import ssl
import threading
import warnings

import pytest

from tests.mirror.relay import Relay
from tests.mirror.tls import LOOPBACK, Certificates


@pytest.mark.parametrize("with_tls", [False, True])
def test_it_closes_what_a_client_keeps_open(certificates: Certificates, *, with_tls: bool) -> None:
    """The server has ended the connection in order, and its client neither reads that nor says so."""
    with socket.create_server((LOOPBACK, 0)) as server, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"the end")

        answering = threading.Thread(target=answer)
        answering.start()
        url = f"http://{LOOPBACK}:{server.getsockname()[1]}"
        with Relay(url, certificates.server if with_tls else None) as relay:
            port = int(relay.url.rpartition(":")[2])
            client: socket.socket = socket.create_connection((LOOPBACK, port))
            if with_tls:
                trusting = ssl.create_default_context(cafile=certificates.trusted)
                client = trusting.wrap_socket(client, server_hostname=LOOPBACK)
            client.sendall(b"?")
            assert client.recv(100) == b"the end"
            answering.join()
        client.close()
        gc.collect()
    assert [str(warning.message) for warning in said if "unclosed" in str(warning.message)] == []
