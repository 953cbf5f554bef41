"""What may go wrong between a client and a store, as facts that a test writes down in the order they shall happen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

Match = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer that the proxy gives in the store's place."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Reset the connection: before anything is forwarded, or after so many bytes of the request's body were."""

    after_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LoseReply:
    """Let the store do what it was asked, then reset the connection instead of passing its answer on."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer in the store's place; the store does not hear of the request."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Hang:
    """Accept the request and never answer, until the client or the proxy closes."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Let the store do what it was asked, and hold its answer back for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateReply:
    """Close the connection after so many bytes of the answer's body, whatever length was announced."""

    after_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipRequestBit:
    """Flip the lowest bit of one byte of the request's body, as a bad wire would."""

    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipReplyBit:
    """Flip the lowest bit of one byte of the answer's body, as a bad wire would."""

    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Pass both bodies on at so many bytes per second."""

    bytes_per_s: float


Action = Reset | LoseReply | Answer | Hang | Stall | TruncateReply | FlipRequestBit | FlipReplyBit | Throttle


def every_request(_method: str, _path: str) -> bool:
    """Match every request."""
    return True


def requests_to(method: str, part: str = "") -> Match:
    """Match the requests of one method whose path, with its query, contains ``part``."""
    return lambda asked_method, path: asked_method == method and part in path


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One rule of a script: what happens to the next ``times`` requests that match."""

    action: Action
    match: Match = every_request
    times: int = 1


class Script:
    """The faults still to come, in order; a request takes the first that matches it. Any thread may call."""

    def __init__(self) -> None:
        """Begin with no fault."""
        self._lock = threading.Lock()
        self._rules: list[tuple[Fault, int]] = []

    def add(self, *faults: Fault) -> None:
        """Append to what is still to come."""
        with self._lock:
            self._rules += [(fault, fault.times) for fault in faults]

    def clear(self) -> None:
        """Forget what is still to come."""
        with self._lock:
            self._rules.clear()

    @property
    def remaining(self) -> int:
        """How many requests will still meet a fault."""
        with self._lock:
            return sum(left for _, left in self._rules)

    def take(self, method: str, path: str) -> Action | None:
        """Return what happens to this request, and count it against its rule."""
        with self._lock:
            for index, (fault, left) in enumerate(self._rules):
                if fault.match(method, path):
                    self._rules[index : index + 1] = [(fault, left - 1)] if left > 1 else []
                    return fault.action
        return None


def s3_error(status: int, code: str, *, message: str = "scripted", retry_after_s: float | None = None) -> Reply:
    """Return the answer of an S3 store that refuses with ``code``, e.g. ``SlowDown``."""
    error = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n{error}'
    headers = {"Content-Type": "application/xml"}
    if retry_after_s is not None:
        headers["Retry-After"] = f"{retry_after_s:g}"
    return Reply(status=status, body=body.encode(), headers=headers)
