"""A whole training, small: servers that write and mirror records, a generator with retries, SkyRL's loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from mirror import RecordMirror, locate
from mirror.samples import write_record
from references import RecordLog, RecordsConfig, SkycapRecordIndex, WandbConfig, make_record_index
from references.skyrl import TrajectoryIds
from tests.mirror.places import DirectoryPlace, Place
from tests.references.skyrl_standin import Plan, Tracker, Trainer

RETRIED_EVERY = 9  # samples
LOCAL_EVERY = 50


class IndexedTrainer(TrajectoryIds, Trainer):
    """SkyRL's trainer with our adapter."""


@dataclass
class Cluster:
    """A capture server that mirrors its records, another one that does not, and a generator that uses both."""

    directory: Path
    place: Place
    large: dict[str, bytes] = field(default_factory=dict)  # files to add to a record, by the record's id
    resumed: str = ""  # tells the records of a resumed run from those before
    is_prompt: bool = False  # every record has landed before its step ends

    def __post_init__(self) -> None:
        """Start the mirror."""
        self.log = RecordLog()
        self.mirrored, self.unmirrored = self.directory / "records", self.directory / "unmirrored"
        self._opened = 0
        self.mirror = RecordMirror(self.place.url, storage_options=self.place.options(), fsync=False, rescan_s=0.2)

    async def generate(self, input_batch: dict[str, Any], disable_tqdm: bool = False) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002 - as SkyRL's generators have it
        """Run every sample of a batch, some of them twice."""
        ids = input_batch["trajectory_ids"]
        for trajectory_id in ids:
            self._opened += 1
            fails = self._opened % RETRIED_EVERY == 0
            for attempt in range(1 + fails):
                await asyncio.to_thread(self._run, input_batch["phase"], trajectory_id, attempt, failed=fails > attempt)
        if self.is_prompt:
            assert self.mirror.flush(60), self.mirror.stats()
        return {
            "prompt_token_ids": [[1, 2]] * len(ids),
            "response_ids": [[3, 4]] * len(ids),
            "rewards": [1.0] * len(ids),
            "loss_masks": [[0, 1]] * len(ids),
            "stop_reasons": None,
            "rollout_metrics": {},
            "rollout_logprobs": None,
            "trajectory_ids": None,
            "is_last_step": None,
        }

    def _run(self, phase: str, trajectory_id: Any, attempt: int, *, failed: bool) -> None:  # noqa: ANN401 - SkyRL's
        name = f"tr_{self.resumed}{trajectory_id.instance_id}_{trajectory_id.repetition_id}_{attempt}"
        is_local = self._opened % LOCAL_EVERY == 0 and not failed
        record_dir = self.unmirrored if is_local else self.mirrored
        rng = Random(name)  # noqa: S311 - sample data
        write_record(record_dir, name, profile="tiny", rng=rng, status="failed" if failed else "finished")
        if name in self.large:
            (record_dir / f"{name}.experts.zst").write_bytes(self.large[name])
        if is_local:
            record = locate(record_dir, name)
        else:
            self.mirror.submit(record_dir, name)
            record = self.mirror.locate(record_dir, name)
        trajectory = SimpleNamespace(
            id=name,
            result=SimpleNamespace(status="failed" if failed else "finished", record=SimpleNamespace(**record)),
            finishing={"reward": 1.0},
        )
        self.log.add(phase, trajectory_id, attempt, trajectory)

    def files(self) -> dict[str, bytes]:
        """Return what the mirror is to hold."""
        return {path.name: path.read_bytes() for path in self.mirrored.glob("[!.]*.zst")}

    def close(self) -> None:
        """Mirror what is left."""
        assert self.mirror.close(60), self.mirror.stats()


def plan(steps: range, *, samples: int = 64, tasks: int = 8) -> Plan:
    """Return a training of these steps, with as many samples each."""
    batches = [[f"s{step}t{task}" for task in range(tasks)] for step in steps]
    return Plan(batches=batches, samples=samples // tasks)


def make_callback(
    cluster: Cluster,
    directory: Path,
    *,
    via: str | None = None,
    **wandb: Any,  # noqa: ANN401 - any setting
) -> SkycapRecordIndex:
    """Make the callback as a trainer does, from the run's configuration; it reads the mirror through ``via``."""
    storage = {} if isinstance(cluster.place, DirectoryPlace) else {"storage_options": cluster.place.options(via=via)}
    config = RecordsConfig(
        record_dir=str(cluster.mirrored),
        record_mirror=cluster.place.url,
        record_mirror_config=storage,
        wandb=WandbConfig(spool=str(directory / "spool"), **wandb),
    )
    return make_record_index(config, cluster.log)


def train(cluster: Cluster, callback: SkycapRecordIndex, run: object, training: Plan, *, first_step: int = 1) -> None:
    """Train as SkyRL does, logging metrics all along."""
    tracker = Tracker(SimpleNamespace(run=run))
    trainer = IndexedTrainer(training, cluster, tracker, callbacks=[callback])
    trainer.global_step = first_step - 1
    asyncio.run(trainer.train())
