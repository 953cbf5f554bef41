"""The settings of a run's records: ``references/config.py`` and ``references/phases.py``."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

import mirror
from references.config import RecordsConfig, WandbConfig, make_record_index
from references.errors import ConfigError
from references.record_log import RecordLog


@dataclass
class TrainerConfig:
    """A trainer's own configuration, with ours in it."""

    learning_rate: float = 1e-6
    records: RecordsConfig = field(default_factory=RecordsConfig)


def test_a_trainers_configuration_embeds_ours_and_takes_overrides(tmp_path: Path) -> None:
    """OmegaConf fills the dataclasses from YAML and from a list of names and values, whichever comes last wins."""
    written = tmp_path / "run.yaml"
    written.write_text("records: {record_dir: /data/record, wandb: {timeout: 60, attempts: 5}}")
    overrides = [
        "records.record_mirror=s3://bucket/run-7",
        "records.record_mirror_config.exclude=[experts]",
        "records.record_mirror_config.storage_options.client_kwargs.region_name=eu-1",
        "records.wandb.phases=[train,eval]",
        "records.wandb.attempts=2",
        "records.wandb.enabled=false",
    ]

    merged = OmegaConf.merge(
        OmegaConf.structured(TrainerConfig), OmegaConf.load(written), OmegaConf.from_dotlist(overrides)
    )
    trainer: Any = OmegaConf.to_object(merged)

    records = trainer.records
    assert isinstance(records, RecordsConfig)
    assert (records.record_dir, records.record_mirror) == ("/data/record", "s3://bucket/run-7")
    assert records.record_mirror_config == {
        "exclude": ["experts"],
        "storage_options": {"client_kwargs": {"region_name": "eu-1"}},
    }
    assert records.wandb == WandbConfig(enabled=False, phases=["train", "eval"], timeout=60.0, attempts=2)
    assert RecordsConfig.from_mapping(merged.records) == records


def test_a_plain_mapping_will_do() -> None:
    """YAML without OmegaConf gives a mapping; what it leaves out has its default."""
    records = RecordsConfig.from_mapping({"record_dir": "/data/record", "wandb": {"phases": ["eval"]}})

    assert records == RecordsConfig(record_dir="/data/record", wandb=WandbConfig(phases=["eval"]))
    assert RecordsConfig.from_mapping({}) == RecordsConfig()


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"wandb": {"phases": ["trian"]}}, "unknown phase 'trian' to index: did you mean 'train'"),
        ({"wandb": {"phases": ["test"]}}, "unknown phase 'test' to index: known are 'train' and 'eval'"),
        ({"wandb": {"phases": "train"}}, "give a list of 'train' and 'eval'"),
        ({"wandb": {"enabled": "yes"}}, "wandb.enabled is 'yes'"),
        ({"wandb": {"attempts": 0}}, "attempts is 0"),
        ({"wandb": {"timeout": -1}}, "timeout is -1"),
        ({"wandb": {"atempts": 3}}, "unknown setting 'wandb.atempts': did you mean 'wandb.attempts'"),
        ({"wandb": ["train"]}, r"wandb is \['train'\]: give names and values"),
        ({"record_miror": "s3://b/r"}, "unknown setting 'record_miror': did you mean 'record_mirror'"),
        ({"nothing": 1}, "unknown setting 'nothing': known are record_dir"),
        ({10**5_000: 1}, "unknown setting this int: known are record_dir"),
        ({"w" * 100_000: 1}, r"unknown setting 'w{199}\.\.\.: known are record_dir"),
        ({"wandb": {"phases": [10**5_000]}}, "unknown phase this int to index: known are"),
    ],
)
def test_a_mistake_is_refused_at_construction(mapping: dict[str, Any], words: str) -> None:
    """In one sentence that says what to write instead."""
    with pytest.raises(ConfigError, match=words):
        RecordsConfig.from_mapping(mapping)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"record_mirror": "s3://bucket/run"}, "record_dir is not"),
        ({"record_dir": "/r", "record_mirror_config": {"workers": 3}}, "record_mirror is not"),
        ({"record_dir": "/r", "record_mirror": "s3://b/r", "record_mirror_config": {"worker": 3}}, "'workers'"),
    ],
    ids=str,
)
def test_what_no_server_would_start_with_is_refused(settings: dict[str, Any], words: str) -> None:
    """By the trainer, before any server is started."""
    with pytest.raises(mirror.ConfigError, match=words):
        RecordsConfig(**settings)


@pytest.mark.parametrize("logger", ["wandb", "console"])
@pytest.mark.parametrize("records", [None, {}, RecordLog], ids=["none", "mapping", "class"])
def test_a_log_that_is_none_is_refused(records: Any, logger: str) -> None:  # noqa: ANN401 - any mistake
    """When the callback is made, not at the end of the first step."""
    with pytest.raises(ConfigError, match=r"records is a \w+: give the RecordLog"):
        make_record_index(RecordsConfig(), records, logger=logger)


def test_every_server_is_started_with_the_same(tmp_path: Path) -> None:
    """One function gives what each capture server of the run gets."""
    config = RecordsConfig(
        record_dir="/data/record", record_mirror=str(tmp_path), record_mirror_config={"exclude": ["experts"]}
    )

    assert config.server_settings().as_mapping() == {
        "record_dir": "/data/record",
        "record_mirror": str(tmp_path),
        "record_mirror_config": {"exclude": ["experts"]},
    }
    assert RecordsConfig().server_settings().open_mirror() is None


def test_a_relative_path_is_the_trainers_on_every_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are handed whole paths, and URLs as they were written."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    config = RecordsConfig(record_dir="rec", record_mirror="../mir")
    home = RecordsConfig.from_mapping({"record_dir": "~/rec", "record_mirror": "~/mir"})
    monkeypatch.chdir("/")

    handed = config.server_settings()
    assert (handed.record_dir, handed.record_mirror) == (str(tmp_path / "rec"), str(tmp_path.parent / "mir"))
    assert (home.record_dir, home.record_mirror) == (str(tmp_path / "home/rec"), str(tmp_path / "home/mir"))
    for url in ("s3://bucket/run-7", "file:///mir", "memory://mir"):
        assert RecordsConfig(record_dir="/rec", record_mirror=url).record_mirror == url


@pytest.mark.parametrize(
    ("enabled", "logger", "indexes"),
    [
        (None, "wandb", True),
        (None, ["console", "wandb"], True),
        (None, "tensorboard", False),
        (None, None, False),
        (True, "tensorboard", True),
        (False, "wandb", False),
    ],
)
def test_steps_are_indexed_where_the_trainer_logs_to_wandb(
    *, enabled: bool | None, logger: str | list[str] | None, indexes: bool, tmp_path: Path
) -> None:
    """Unless the run says otherwise; where they are not, the log of attempts is emptied all the same."""
    log = RecordLog()
    config = RecordsConfig(wandb=WandbConfig(enabled=enabled, spool=str(tmp_path / "spool")))
    callback = make_record_index(config, log, logger=logger)
    log.add_attempt("train", id="tr_1", instance_id="task")
    log.add_attempt("eval", id="tr_2", instance_id="task")

    callback.step_end(1)
    callback.eval_end(1)
    callback.train_end()

    assert (tmp_path / "spool" / "run-" / "train" / "step-1.json").exists() == indexes
    assert not (tmp_path / "spool" / "run-" / "eval").exists()
    assert log.take("train") == log.take("eval") == []


def test_a_run_that_is_not_indexed_leaves_wandbs_client_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its retries are limited for our versions only."""
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)

    make_record_index(RecordsConfig(), RecordLog(), logger="console")

    assert not [name for name in os.environ if name.startswith("WANDB")]


def test_an_asynchronous_trainers_entries_wait_for_their_batch(tmp_path: Path) -> None:
    """``keep_steps`` reaches the callback."""
    log = RecordLog()
    config = RecordsConfig(wandb=WandbConfig(keep_steps=1, spool=str(tmp_path)))
    callback = make_record_index(config, log)
    log.add_attempt("train", id="tr_1", instance_id="task")

    for step in (1, 2):
        callback.step_end(step, trajectory_ids=[SimpleNamespace(instance_id="other", repetition_id=0)])

    callback.close(60)  # the batches have been looked through
    assert callback.stats()["expired"] == 1
