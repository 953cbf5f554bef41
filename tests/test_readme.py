"""The README's Python is run as it stands, but for where the records, the mirror and W&B are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirror.names import document_name
from references.spool import default_directory
from tests.mirror.local_records import write_files

README = Path(__file__).parents[1] / "README.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as one program: the record is in the mirror, and the step in its index."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    records, mirror = tmp_path / "records", tmp_path / "mirror"
    write_files(records, "tr_ab12")
    names: dict[str, object] = {}
    blocks: list[str] = _BLOCK.findall(README.read_text(encoding="utf-8"))
    assert len(blocks) == 3
    for block in blocks:
        code = block.replace("/data/record", str(records)).replace("s3://bucket/run-7", str(mirror))
        exec(compile(code, str(README), "exec"), names)  # noqa: S102 - our own examples
    names["run"].finish()  # type: ignore[attr-defined] # wandb's run
    assert (mirror / document_name("tr_ab12")).exists()
    assert (mirror / "index" / "train" / "step-1.json").exists()


def test_it_says_where_the_spool_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place that steps wait in unless somebody says otherwise."""
    for name in ("RECORD_MIRROR_SPOOL", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert f"`~/{default_directory().relative_to(Path.home())}`" in README.read_text(encoding="utf-8")
