"""A scenario's weather: gusts become a proxy's faults, spells begin and end in time, and requests are counted."""

from __future__ import annotations

import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence

from mirror.testing import (
    Answer,
    Fault,
    FaultProxy,
    FlipRequestBit,
    Hang,
    LoseReply,
    Reply,
    Reset,
    Stall,
    Throttle,
    TruncateReply,
    s3_error,
)
from mirror.testing.faults import Action
from tests.campaign.scenario import Gust, Spell
from tests.references.wandb_standin import faults as wandb_faults
from tests.references.wandb_standin.server import WandbServer


def action_of(gust: Gust) -> Action:
    """Return what happens to the requests of a gust."""
    number = int(gust.value)
    wish_s = gust.value or None
    actions: dict[str, Action] = {
        "reset": Reset(),
        "reset_within": Reset(after_bytes=number),
        "lose_reply": LoseReply(),
        "hang": Hang(),
        "stall": Stall(gust.value),
        "throttle": Throttle(bytes_per_s=max(1.0, gust.value)),
        "slow_down": Answer(s3_error(503, "SlowDown", retry_after_s=wish_s)),
        "too_many": Answer(Reply(status=429, headers={"Retry-After": f"{wish_s:g}"} if wish_s else {})),
        "internal_error": Answer(s3_error(500, "InternalError")),
        "bad_gateway": Answer(Reply(status=502, body=b"<html>Bad Gateway</html>")),
        "truncate": TruncateReply(after_bytes=number),
        "denied": Answer(s3_error(403, "AccessDenied")),
        "expired": Answer(s3_error(400, "ExpiredToken")),
        "flip": FlipRequestBit(at=number),
    }
    return actions[gust.kind]


def trouble_wandb(server: WandbServer, kind: str) -> None:
    """Let something go wrong with W&B."""
    match kind:
        case "down":
            server.down()
        case "hang":
            server.faults.plan("*", wandb_faults.Hang(), times=2)
        case "status":
            server.faults.plan("*", wandb_faults.Status(code=503), times=4)
        case "drop":
            server.faults.plan("*", wandb_faults.Drop(), times=3)
        case "lose_commit":
            server.faults.plan("CommitArtifact", wandb_faults.LoseReply(), times=2)
        case "delay":
            server.faults.plan("*", wandb_faults.Delay(seconds=0.4), times=10)
        case "refuse":
            server.faults.plan("CreateArtifact", wandb_faults.Refuse(), times=2)


class Counter:
    """Counts a proxy's requests as the first rule of its script, and tells who waits for a certain number."""

    def __init__(self) -> None:
        """Begin at 0."""
        self.count = 0
        self.names_put: list[str] = []  # of record files, in the order in which their requests began
        self._arrived = threading.Condition()

    def __call__(self, method: str, path: str) -> bool:
        """Count a request; never match it."""
        with self._arrived:
            self.count += 1
            if method == "PUT" and "_receipts/" not in path:
                self.names_put.append(urllib.parse.unquote(path.partition("?")[0].rpartition("/")[2]))
            self._arrived.notify_all()
        return False

    def wait_for(self, count: int, timeout_s: float) -> bool:
        """Return True as soon as so many requests began, False when the time is over."""
        with self._arrived:
            return self._arrived.wait_for(lambda: self.count >= count, timeout_s)


def blow(proxy: FaultProxy, gusts: Sequence[Gust]) -> Counter:
    """Script the gusts, and return what counts the requests."""
    counter = Counter()
    proxy.clear()
    proxy.script(Fault(action=Reset(), match=counter, times=1 << 60))
    proxy.script(*(Fault(action=action_of(gust), match=_matcher(counter, gust), times=gust.count) for gust in gusts))
    return counter


def _matcher(counter: Counter, gust: Gust) -> Callable[[str, str], bool]:
    return lambda method, _path: counter.count > gust.start and (method in {"PUT", "POST"} or not gust.writes_only)


class Spells:
    """Begins and ends spells on a thread of its own, until it is told to end them all."""

    def __init__(self, spells: Sequence[Spell], turn: Callable[[Spell, bool], None]) -> None:
        """Start; ``turn`` begins a spell, or ends it when it is given False."""
        self._turn = turn
        moments = [(spell.begin_s, True, spell) for spell in spells] + [(spell.end_s, False, spell) for spell in spells]
        self._moments = sorted(moments, key=lambda moment: moment[:2])
        self._spells = spells
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="campaign-spells", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End every spell; those that did not begin yet never do."""
        self._over.set()
        self._thread.join()
        for spell in self._spells:
            self._turn(spell, False)  # noqa: FBT003 - as its type says

    def _run(self) -> None:
        began = time.monotonic()
        for at_s, begins, spell in self._moments:
            if self._over.wait(max(0.0, began + at_s - time.monotonic())):
                return
            self._turn(spell, begins)
