"""The README's Python is run as it stands, but for where the records, the mirror and W&B are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from mirror import MirrorConfig, RecordMirror
from mirror.names import document_name
from references import RecordsConfig
from references.spool import default_directory
from tests.mirror.local_records import write_files

README = Path(__file__).parents[1] / "README.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as one program: the record is in the mirror, and the step in its index."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("RECORD_MIRROR_SPOOL", str(tmp_path / "spool"))
    monkeypatch.chdir(tmp_path)
    records, mirror = tmp_path / "records", tmp_path / "mirror"
    write_files(records, "tr_ab12")
    names: dict[str, object] = {}
    blocks: list[str] = _BLOCK.findall(README.read_text(encoding="utf-8"))
    assert len(blocks) == 3
    for block in blocks:
        code = block.replace("/data/record", str(records)).replace("s3://bucket/run-7", str(mirror))
        exec(compile(code, str(README), "exec"), names)  # noqa: S102 - our own examples
    opened, config = names["mirror"], names["config"]
    assert isinstance(opened, RecordMirror)
    assert isinstance(config, RecordsConfig)
    assert names["settings"] == config.server_settings()
    assert opened.url == f"file://{mirror}"
    names["run"].finish()  # type: ignore[attr-defined] # wandb's run
    assert (mirror / document_name("tr_ab12")).exists()
    assert (mirror / "index" / "train" / "step-1.json").exists()


def test_the_example_of_a_file_is_one(tmp_path: Path) -> None:
    """Of settings that a mirror in S3 can be made of."""
    (example,) = _FILE.findall(README.read_text(encoding="utf-8"))
    (tmp_path / "mirror.toml").write_text(example, encoding="utf-8")
    config = MirrorConfig.from_file(tmp_path / "mirror.toml")
    assert set(tomllib.loads(example)) == {
        name for name, value in config.as_mapping().items() if value != getattr(MirrorConfig(), name)
    }
    assert RecordMirror("s3://bucket/run-7", config).stats()["driver"] == "obstore"


def test_it_says_where_the_spool_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place that steps wait in unless somebody says otherwise."""
    for name in ("RECORD_MIRROR_SPOOL", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert f"`~/{default_directory().relative_to(Path.home())}`" in README.read_text(encoding="utf-8")


def test_variables_are_the_command_lines_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedded mirror has the options that it is given, also those read from the environment on purpose."""
    monkeypatch.setenv("RECORD_MIRROR_WORKERS", "3")
    assert RecordMirror(tmp_path).config.workers == MirrorConfig().workers != 3
    assert RecordMirror(tmp_path, MirrorConfig.from_environment()).config.workers == 3


def test_a_restarted_server_finds_what_an_earlier_one_left(tmp_path: Path) -> None:
    """By ``scan`` where it has nothing to submit yet, else by the first ``submit``."""
    records = tmp_path / "records"
    for name in ("tr_1", "tr_2"):
        write_files(records, name)
    with RecordMirror(tmp_path / "scanned") as scanned, RecordMirror(tmp_path / "submitted") as submitted:
        scanned.scan(records)
        submitted.submit(records, "tr_2")
        for mirror in (scanned, submitted):
            assert mirror.flush(30)
            assert mirror.left() == []
    for place in ("scanned", "submitted"):
        assert (tmp_path / place / document_name("tr_1")).exists()
