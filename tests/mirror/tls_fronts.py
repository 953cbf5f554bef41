"""TLS in front of any plain server."""

from __future__ import annotations

import contextlib

from tests.mirror.relay import Relay
from tests.mirror.tls import Certificates


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
