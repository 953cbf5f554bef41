"""What can go wrong between a client and the stand-in, on demand and for a counted number of calls."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

EVERY_OPERATION = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The call is not carried out; the answer is this HTTP status."""

    code: int
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """The call is carried out and answered as usual, this many seconds late."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """The call is neither carried out nor answered until the faults are cleared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """The call is not carried out; the connection is closed without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseReply:
    """The call is carried out, but the connection is closed instead of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """The call is not carried out; the answer is a GraphQL error, which no client retries."""

    message: str = "refused on demand"


Fault = Status | Delay | Hang | Drop | LoseReply | Refuse


@dataclass(slots=True)
class _Planned:
    operation: str
    fault: Fault
    times: int | None  # None: until cleared


@dataclass(slots=True)
class Faults:
    """The script: which operation fails how, and how many more times. Any thread may call it."""

    _planned: list[_Planned] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def plan(self, operation: str, fault: Fault, times: int | None = 1) -> None:
        """Let the next ``times`` calls of ``operation`` meet ``fault``; None means all until cleared."""
        with self._lock:
            self._planned.append(_Planned(operation, fault, times))

    def clear(self) -> None:
        """Forget the script: every later call is healthy."""
        with self._lock:
            self._planned.clear()

    def take(self, operation: str) -> Fault | None:
        """Return the fault that this call of ``operation`` meets, and count it."""
        with self._lock:
            for planned in self._planned:
                if planned.operation in (operation, EVERY_OPERATION) and planned.times != 0:
                    if planned.times is not None:
                        planned.times -= 1
                    return planned.fault
            return None
