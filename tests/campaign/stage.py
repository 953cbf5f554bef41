"""Where one run takes place: its directories and small disks, its mirror, what its processes are given."""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from pathlib import Path
from typing import Any

from tests.campaign.disks import Disk
from tests.campaign.ground import BUCKETS, GCS_BUCKET, Ground
from tests.campaign.scenario import Scenario, Spell
from tests.mirror.places import DirectoryPlace, GcsPlace, Place, S3Place

DISK_MIB = 48
LARGE_MIB = 140  # for a large record, and its temporary file


class Stage:
    """Made for one run; ``release`` it afterwards. ``breaches`` is what the run is found guilty of."""

    def __init__(self, scenario: Scenario, ground: Ground) -> None:
        """Make the directories, and mount the disks."""
        name = f"{scenario.seed}-{uuid.uuid4().hex[:6]}"
        self.scenario = scenario
        self.ground = ground
        self.breaches: list[str] = []
        self.overtaken: frozenset[str] = frozenset()  # files that a late write of an older generation replaced
        self.directory = ground.scratch / name
        self.scratch = self.directory / "tmp"
        self.scratch.mkdir(parents=True)
        plans = [plan for actor in scenario.actors for plan in actor.records]
        size_mib = DISK_MIB + LARGE_MIB * sum(plan.profile == "large" for plan in plans)
        self.records = Disk(self.directory / "records", size_mib)
        self.mirror_disk: Disk | None = None
        if scenario.store == "directory":
            self.mirror_disk = Disk(self.directory / "mirror", size_mib)
            self.place: Place = DirectoryPlace(self.directory / "mirror" / "run-7")
        elif scenario.store == "gcs":
            self.place = GcsPlace(ground.gcs, GCS_BUCKET, f"campaign/{name}")
        else:
            self.place = S3Place(ground.seaweed, BUCKETS[scenario.store], f"campaign/{name}")
        self.options: dict[str, Any] = {**scenario.options}
        if scenario.store != "directory":
            self.options["storage_options"] = ground.options(scenario.store)
        self._credentials = self.directory / "credentials"
        ground.write_credentials(self._credentials, rotated=False)
        ground.expiry.expired = None
        self.direct_options = {} if scenario.store == "directory" else self.place.options()
        self.proxy = ground.proxy(scenario.store)
        self.proxy.up()
        self.proxy.latency_s = 0.0
        self.spool = self.directory / "spool"
        self.wandb_run = f"run-{name}" if scenario.has_wandb else None
        self.environment = {
            "TMPDIR": str(self.scratch),
            "AWS_SHARED_CREDENTIALS_FILE": str(self._credentials),
            "RECORD_MIRROR_STORAGE_OPTIONS": json.dumps(self.options.get("storage_options", {})),
        }
        if scenario.has_wandb:
            ground.wandb.recover()
            self.environment |= ground.wandb_environment(self.directory / "wandb")

    @property
    def record_dirs(self) -> list[Path]:
        """The record directories."""
        return sorted({self.record_dir(actor.directory) for actor in self.scenario.actors})

    def record_dir(self, name: str) -> Path:
        """Return one of the record directories."""
        return self.records.path / name

    def breach(self, law: str, what: str) -> None:
        """Take note that a law does not hold; any thread may."""
        self.breaches.append(f"{law}: {what}")

    def turn(self, spell: Spell, begins: bool) -> None:  # noqa: FBT001 - begins or ends
        """Begin or end a spell."""
        match spell.kind:
            case "down":
                self.proxy.down() if begins else self.proxy.up()
            case "latency":
                self.proxy.latency_s = spell.value if begins else 0.0
            case "records_full":
                self.records.fill() if begins else self.records.free()
            case "mirror_full" if self.mirror_disk is not None:
                self.mirror_disk.fill() if begins else self.mirror_disk.free()
            case "mirror_frozen" if self.mirror_disk is not None:
                self.mirror_disk.freeze() if begins else self.mirror_disk.thaw()
            case "expired" if begins:
                self.ground.expire()
            case "expired":
                self.ground.write_credentials(self._credentials, rotated=True)

    def release(self) -> None:
        """Unmount the disks; where a law did not hold, what was on them is kept as ``evidence``."""
        if self.breaches:
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(self.records.path, self.directory / "evidence")
        self.records.release()
        if self.mirror_disk is not None:
            self.mirror_disk.release()
