"""Who may be logging a step of the spool at this moment: a claim beside the step's file, seen by every process.

A version that W&B's client was given may be committed minutes later, whoever still waits for it. Somebody else who
logged the step meanwhile would make a second version. So a process that has taken over a step claims it, and says until
when its client may be busy with it at the latest. A claim ends before that with the process, and with the run that the
client logs to.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from references.spool import Spool, StepKey

MAX_BYTES = 4096
LATEST_S = 1e11  # Unix seconds; later, and ``datetime`` cannot show it
_LIVING = frozenset("RSDTtWIKP")  # states of a process in which it, or its client, may go on


class By(StrEnum):
    """Who logs it."""

    TRAINING = "training"  # the process that began the run
    LINK = "link"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """That a process may be logging a step.

    Attributes:
        by: who.
        host: where the process is.
        process: its number there.
        began: what tells it from a later process of the same number; None where nobody knows.
        until_s: when it will not be logging it any more, in Unix time.
    """

    by: By
    host: str
    process: int
    began: str | None
    until_s: Annotated[float, msgspec.Meta(le=LATEST_S)]

    def is_alive(self, now_s: float) -> bool:
        """Say whether the process may still be at it; of one on another host nobody knows before the time is over."""
        if now_s >= self.until_s:
            return False
        return self.host != socket.gethostname() or _began(self.process) == self.began != ""


_decoder = msgspec.json.Decoder(Claim)


class Claims:
    """The claims of one process. Used by one thread; what fails costs no step, and is as if nobody claimed anything."""

    def __init__(self, spool: Spool, by: By, *, process: int | None = None) -> None:
        """Claim nothing yet; ``process`` holds the claims, by default this one."""
        self._spool = spool
        self._by = by
        self._process = os.getpid() if process is None else process
        self._held: dict[StepKey, float] = {}  # until when

    def hold(self, key: StepKey, for_s: float) -> bool:
        """Claim a step for that long from now on; return whether it was held without a break until now, or is new."""
        now_s = time.time()
        held_until = self._held.get(key)
        claim = Claim(
            by=self._by,
            host=socket.gethostname(),
            process=self._process,
            began=_began(self._process),
            until_s=now_s + for_s,
        )
        path = self._path(key)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
        with contextlib.suppress(OSError):
            try:
                temporary.write_bytes(msgspec.json.encode(claim))
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            self._held[key] = claim.until_s
        return held_until is None or now_s < held_until

    def release(self, key: StepKey) -> None:
        """Give up the claim of a step."""
        if self._held.pop(key, None) is not None:
            with contextlib.suppress(OSError):
                self._path(key).unlink()

    def release_all_but(self, keys: set[StepKey]) -> None:
        """Give up all claims but these."""
        for key in self._held.keys() - keys:
            self.release(key)

    def other(self, key: StepKey) -> Claim | None:
        """Return the claim of another process that may be logging a step, if there is one."""
        try:
            with self._path(key).open("rb") as file:
                claim = _decoder.decode(file.read(MAX_BYTES))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return claim if key not in self._held and claim.is_alive(time.time()) else None

    def _path(self, key: StepKey) -> Path:
        return self._spool.folder(key) / f".step-{key.step}.claim"


def _began(process: int) -> str | None:
    """Return when a process began, in whatever its system counts; "" when there is none; None when nobody knows."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[19] if fields[0] in _LIVING else ""
    except OSError:
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        return None
    return None
