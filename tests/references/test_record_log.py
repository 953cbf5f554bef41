"""What ``references/record_log.py`` keeps, for whom and for how long."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from references.batch import Batch, Part
from references.errors import ConfigError
from references.record_log import RecordLog
from references.run_index import RecordLocation
from tests.references.index_builders import TrajectoryID, finished, read_batch


def names(log: RecordLog, phase: str = "train") -> list[str]:
    """Take a phase and name what was in it."""
    return [entry.id for entry in log.take(phase)]


def test_each_phase_is_taken_once_and_apart() -> None:
    """Taking a phase takes all of it, in the order of the log, and leaves the other alone."""
    log = RecordLog()
    for name in ("a", "b"):
        log.add("train", TrajectoryID(name, 0), 0, finished(name))
    log.add("eval", TrajectoryID("c", 0), 0, finished("c"))
    assert names(log) == ["a", "b"]
    assert log.take("train") == []
    assert names(log, "eval") == ["c"]


def test_an_attempt_that_lacks_everything_is_logged() -> None:
    """A generator that has nothing to say about an attempt is not failed for it."""
    log = RecordLog()
    log.add("train", None, 0, None)
    log.add("train", SimpleNamespace(instance_id="a"), 1, SimpleNamespace(id="tr", result=None, finishing=None))
    assert names(log) == ["", "tr"]


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("trian", "unknown phase 'trian' to log an attempt in: did you mean 'train'"),
        ("test", "known are 'train' and 'eval'"),
        (None, "unknown phase None"),
    ],
)
def test_an_unknown_phase_is_refused_and_nothing_is_lost(phase: Any, words: str) -> None:  # noqa: ANN401 - any mistake
    """No step would ever take what is logged in it; what was logged before stays, and the log goes on."""
    log = RecordLog()
    log.add("train", TrajectoryID("a", 0), 0, finished("before"))
    with pytest.raises(ConfigError, match=words):
        log.add(phase, TrajectoryID("a", 0), 0, finished("tr"))
    with pytest.raises(ConfigError, match=words):
        log.add_attempt(phase, id="tr", instance_id="a")
    log.add("train", TrajectoryID("a", 0), 0, finished("after"))
    assert names(log) == ["before", "after"]


def test_plain_values_say_the_same_as_a_trajectory() -> None:
    """Other generators log the same facts by name."""
    log = RecordLog()
    log.add("train", TrajectoryID("a", 1), 2, finished("tr"))
    log.add_attempt(
        "train",
        id="tr",
        instance_id="a",
        repetition_id=1,
        attempt=2,
        status="finished",
        annotations={"reward": 1.0},
        record={"host": "10.0.0.5", "path": "/data/record/tr.json.zst", "files": ["tr.tokens.zst", "tr.json.zst"]},
    )
    first, second = log.take("train")
    assert first == second
    assert isinstance(first.record, RecordLocation)


def test_every_thread_and_task_is_heard_and_no_entry_is_taken_twice() -> None:
    """Adding from many threads and tasks while a trainer takes neither loses nor repeats an entry."""
    log = RecordLog()
    begin = threading.Barrier(5)
    taken: list[str] = []

    async def rollouts(worker: int) -> None:
        async def one(number: int) -> None:
            await asyncio.sleep(0)
            log.add("train", TrajectoryID(f"{worker}", number), 0, SimpleNamespace(id=f"{worker}-{number}"))

        await asyncio.gather(*map(one, range(250)))

    def generate(worker: int) -> None:
        begin.wait()
        asyncio.run(rollouts(worker))

    workers = [threading.Thread(target=generate, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    begin.wait()
    while any(worker.is_alive() for worker in workers):
        taken += names(log)
    taken += names(log)
    assert sorted(taken) == sorted(f"{worker}-{number}" for worker in range(4) for number in range(250))


def test_entries_wait_for_the_step_whose_batch_has_them() -> None:
    """An asynchronous trainer takes the samples of its batch, all attempts of each; the others stay."""
    log = RecordLog()
    ids = {name: TrajectoryID(name, 0) for name in ("a", "b", "c")}
    log.add("train", ids["a"], 0, SimpleNamespace(id="a0"))
    log.add("train", ids["b"], 0, SimpleNamespace(id="b0"))
    log.add("train", ids["a"], 1, SimpleNamespace(id="a1"))
    taken, expired = log.begin_batch("train", keep_steps=2).choose(read_batch([ids["a"]]))
    assert ([entry.id for entry in taken], expired) == (["a0", "a1"], 0)
    log.add("train", ids["c"], 0, SimpleNamespace(id="c0"))
    taken, expired = log.begin_batch("train", keep_steps=2).choose(read_batch(["c0", "b0"]))
    assert ([entry.id for entry in taken], expired) == (["b0", "c0"], 0)
    assert log.take("train") == []


def test_the_same_prompt_in_a_later_epoch_is_taken_apart() -> None:
    """A draw that was dropped stays behind when the next draw of the prompt is trained."""
    log = RecordLog()
    dropped, trained = TrajectoryID("a", 0), TrajectoryID("a", 0)
    log.add("train", dropped, 0, SimpleNamespace(id="dropped"))
    log.add("train", trained, 0, SimpleNamespace(id="trained"))
    taken, _ = log.begin_batch("train", keep_steps=5).choose(read_batch([trained]))
    assert [entry.id for entry in taken] == ["trained"]
    assert names(log) == ["dropped"]


def test_what_is_logged_while_a_batch_is_taken_is_kept() -> None:
    """A generator that finishes an attempt just then loses nothing, and stands behind what was there before."""
    log = RecordLog()

    class _Interrupted(dict[str, Part]):
        def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - as of any dict
            log.add("train", TrajectoryID("meanwhile", 0), 0, SimpleNamespace(id="meanwhile"))
            return super().get(key, default)

    log.add("train", TrajectoryID("before", 0), 0, SimpleNamespace(id="before"))
    assert log.begin_batch("train", keep_steps=1).choose(Batch(by_record=_Interrupted())) == ([], 0)
    assert names(log) == ["before", "meanwhile"]


def test_a_batch_may_choose_later() -> None:
    """Of two batches that are begun before either has chosen, the later one gets what the earlier one leaves."""
    log = RecordLog()
    ids = {name: TrajectoryID(name, 0) for name in "abcd"}
    for name in "ab":
        log.add("train", ids[name], 0, SimpleNamespace(id=name))
    first = log.begin_batch("train", keep_steps=2)
    log.add("train", ids["c"], 0, SimpleNamespace(id="c"))
    second = log.begin_batch("train", keep_steps=2)
    log.add("train", ids["d"], 0, SimpleNamespace(id="d"))
    assert [
        [e.id for e in taken] for taken, _ in (first.choose(read_batch(["a"])), second.choose(read_batch(["b"])))
    ] == [
        ["a"],
        ["b"],
    ]
    assert [e.id for e in log.take("train")] == ["c", "d"]
    assert log.take("train") == []


def test_a_batch_that_never_chose_keeps_nothing_from_the_next() -> None:
    """What a failed step was to choose from is there for the one after it."""
    log = RecordLog()
    log.add("train", TrajectoryID("a", 0), 0, SimpleNamespace(id="a"))
    log.begin_batch("train", keep_steps=2)
    taken, expired = log.begin_batch("train", keep_steps=2).choose(read_batch(["a"]))
    assert ([e.id for e in taken], expired) == (["a"], 0)


def test_entries_that_no_batch_has_expire_and_are_counted() -> None:
    """An entry waits for the given number of batches after the first it could have been in, then it is dropped."""
    log = RecordLog()
    nobody = read_batch([])
    log.add("train", TrajectoryID("early", 0), 0, SimpleNamespace(id="early"))
    assert log.begin_batch("train", keep_steps=1).choose(nobody) == ([], 0)
    log.add("train", TrajectoryID("late", 0), 0, SimpleNamespace(id="late"))
    assert log.begin_batch("train", keep_steps=1).choose(nobody) == ([], 1)
    assert names(log) == ["late"]


def test_keeping_for_no_further_step_drops_what_the_first_batch_has_not() -> None:
    """With no step to wait, an entry is in the next batch or nowhere."""
    log = RecordLog()
    log.add("train", TrajectoryID("a", 0), 0, SimpleNamespace(id="a"))
    assert log.begin_batch("train", keep_steps=0).choose(read_batch([])) == ([], 1)
    assert log.take("train") == []


FORK = """
import os, signal, threading
from references.record_log import RecordLog
log = RecordLog()
def add():
    while True:
        log.add_attempt("train", id="tr", instance_id="task")
for _ in range(4):
    threading.Thread(target=add, daemon=True).start()
codes = []
for _ in range(5):
    child = os.fork()
    if not child:
        signal.alarm(20)
        log.add_attempt("train", id="child", instance_id="task")
        os._exit(0)
    codes.append(os.waitpid(child, 0)[1])
    log.take("train")
print(codes, flush=True)
os._exit(0)
"""


def test_a_child_forked_while_others_add_can_add() -> None:
    """A lock that a thread of the parent holds at the fork is not held in the child."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True, cwd=Path.cwd())  # noqa: S603 - ours
    assert done.stdout.strip() == "[0, 0, 0, 0, 0]"
