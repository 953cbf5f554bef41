"""Sample records in the real format: for demonstrations, tests and benchmarks.

What is written looks like a capture server's work: the real file names, a real document, and compressed sizes drawn
from the ranges that real runs show. The payloads are random bytes inside real zstd frames, so they compress no further
and cost next to nothing to make.
"""

from __future__ import annotations

import base64
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import zstandard

if TYPE_CHECKING:
    import os

ProfileName = Literal["tiny", "text", "tokens", "moe"]
Status = Literal["finished", "failed", "abandoned", "open"]

_EPOCH_S: Final = 1_760_000_000.0  # a fixed moment, so that a seed gives the same bytes on any day
_STOP_REASONS: Final = ("stop", "length", "tool_error")
_FAST_LEVEL: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one kind of record consists of; each size is a range of compressed bytes, drawn log-uniformly."""

    document_bytes: tuple[int, int]
    sidecar_bytes: tuple[tuple[str, tuple[int, int]], ...] = ()


PROFILES: Final[dict[ProfileName, Profile]] = {
    "tiny": Profile(document_bytes=(450, 900), sidecar_bytes=(("tokens", (100, 400)),)),
    "text": Profile(document_bytes=(5_000, 60_000)),
    "tokens": Profile(
        document_bytes=(5_000, 60_000),
        sidecar_bytes=(("tokens", (20_000, 600_000)), ("sampling_mask", (50_000, 1_700_000))),
    ),
    "moe": Profile(
        document_bytes=(5_000, 60_000),
        sidecar_bytes=(
            ("tokens", (20_000, 600_000)),
            ("sampling_mask", (50_000, 1_700_000)),
            ("experts", (1_000_000, 12_000_000)),
        ),
    ),
}


def write_record(
    record_dir: str | os.PathLike[str],
    record_id: str,
    *,
    profile: ProfileName,
    rng: random.Random,
    status: Status = "finished",
    instance_id: str = "task-0",
    repetition_id: int = 0,
    step: int = 1,
    attempt: int = 0,
    reward: float | None = None,
) -> list[str]:
    """Write one record as a capture server does: sidecars first, each file under a temporary name and then renamed.

    The same state of ``rng`` gives the same bytes. Writing an id again replaces its files.

    Args:
        record_dir: the flat directory of the records; made when absent.
        record_id: the trajectory's id, the first part of each file name.
        profile: which sidecars there are and how large the files become.
        rng: the source of sizes and contents.
        status: ``open`` is what a server writes at shutdown; it has not ended.
        instance_id: the task that the trajectory ran.
        repetition_id: which of the task's samples it is.
        step: the global training step.
        attempt: from 0; a retry is a record of its own.
        reward: drawn from ``rng`` when None.

    Returns:
        The file names, sidecars first and the document last.

    Raises:
        ValueError: there is no such profile.
        OSError: the directory cannot be written.
    """
    if profile not in PROFILES:
        msg = f"no profile {profile!r}; choose one of {', '.join(PROFILES)}"
        raise ValueError(msg)
    sizes = PROFILES[profile]
    directory = Path(record_dir)
    directory.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, object] = {}
    names: list[str] = []
    for kind, bounds in sizes.sidecar_bytes:
        name = f"{record_id}.{kind}.zst"
        payload = rng.randbytes(_log_uniform(rng, bounds))
        _write_renamed(directory, name, _frame(payload))
        manifest[kind] = {"file": name, "arrays": {"data": {"dtype": "uint8", "shape": [len(payload)]}}}
        names.append(name)
    created_at = round(_EPOCH_S + rng.uniform(0, 86_400), 3)
    ended = status != "open"
    document = {
        "format_version": 1,
        "id": record_id,
        "status": status,
        "ended": ended,
        "meta": {
            "instance_id": instance_id,
            "repetition_id": repetition_id,
            "step": step,
            "attempt": attempt,
            "task": instance_id.rpartition("-")[0] or instance_id,
        },
        "annotations": {
            "reward": round(rng.random(), 4) if reward is None else reward,
            "stop_reason": rng.choice(_STOP_REASONS),
        },
        "created_at": created_at,
        "finished_at": round(created_at + rng.uniform(1, 600), 3) if ended else None,
        "sidecars": manifest,
    }
    name = f"{record_id}.json.zst"
    _write_renamed(directory, name, _frame_document(document, _log_uniform(rng, sizes.document_bytes), rng))
    return [*names, name]


def write_corpus(
    record_dir: str | os.PathLike[str],
    *,
    profile: ProfileName,
    count: int,
    seed: int,
    prefix: str = "tr_",
) -> list[str]:
    """Write ``count`` records of one profile, four samples to a task, and return their ids in order of writing.

    Ids look like ``tr_ab12cd34``; seed, profile and prefix decide every byte.

    Raises:
        ValueError: there is no such profile.
        OSError: the directory cannot be written.
    """
    rng = random.Random(f"{prefix}/{profile}/{seed}")  # noqa: S311 - sample data, no secrets
    taken: set[str] = set()
    ids: list[str] = []
    while len(ids) < count:
        record_id = f"{prefix}{rng.getrandbits(32):08x}"
        if record_id in taken:
            continue
        taken.add(record_id)
        task, repetition_id = divmod(len(ids), 4)
        write_record(
            record_dir,
            record_id,
            profile=profile,
            rng=rng,
            instance_id=f"{profile}-{task}",
            repetition_id=repetition_id,
        )
        ids.append(record_id)
    return ids


def write_litter(record_dir: str | os.PathLike[str], *, seed: int = 0) -> list[str]:
    """Leave what a record directory holds besides records, none of which may ever be copied.

    That is: sidecars whose document a crash prevented, temporary files of a write under way, a hidden file, and a
    subdirectory with a whole record in it.

    Returns:
        The paths below ``record_dir``, "/"-separated.

    Raises:
        OSError: the directory cannot be written.
    """
    rng = random.Random(f"litter/{seed}")  # noqa: S311 - sample data, no secrets
    directory = Path(record_dir)
    directory.mkdir(parents=True, exist_ok=True)
    orphan = f"tr_{rng.getrandbits(32):08x}"
    half_written = f"tr_{rng.getrandbits(32):08x}"
    litter = [
        f"{orphan}.tokens.zst",
        f"{orphan}.experts.zst",
        f".{half_written}.json.zst.tmp",
        f".{half_written}.tokens.zst.tmp",
        ".nfs000000000001",
    ]
    for name in litter:
        (directory / name).write_bytes(rng.randbytes(300))
    inner = write_record(directory / "old", f"tr_{rng.getrandbits(32):08x}", profile="tiny", rng=rng)
    return [*litter, *(f"old/{name}" for name in inner)]


def _log_uniform(rng: random.Random, bounds: tuple[int, int]) -> int:
    low, high = bounds
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def _frame(payload: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_FAST_LEVEL).compress(payload)


def _frame_document(document: dict[str, object], size_bytes: int, rng: random.Random) -> bytes:
    """Compress the document with as much conversation as brings it to about ``size_bytes``."""
    bare = len(_frame(json.dumps(document | {"messages": _messages("")}).encode()))
    # Random base64 text compresses to the size of the bytes that it encodes.
    text = base64.b64encode(rng.randbytes(max(0, size_bytes - bare))).decode()
    return _frame(json.dumps(document | {"messages": _messages(text)}).encode())


def _messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "Solve the task."}, {"role": "assistant", "content": text}]


def _write_renamed(directory: Path, name: str, content: bytes) -> None:
    temporary = directory / f".{name}.tmp"
    temporary.write_bytes(content)
    temporary.rename(directory / name)
