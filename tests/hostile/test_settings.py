"""Settings, URLs and references from anywhere: each is taken, or refused in one sentence of bounded length."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirror.config import MAX_FILE_BYTES, MirrorConfig, MirrorOptions
from mirror.errors import ConfigError
from mirror.location import Location, parse_location
from mirror.place import place_id
from mirror.stores.opening import check_settings
from mirror.terminal.commands import run
from mirror.terminal.options import parse_storage_option
from references.cli import commands
from references.errors import ReferencesError
from references.mirrors import named_mirror
from references.source import ArtifactRef, parse_source
from tests.hostile.anything import BAD_JSON, BOUNDED, EVIL_NAMES, changed_json, json_values, names

MAX_SENTENCE = 1_000
OPTIONS = sorted(MirrorOptions.__annotations__)
VALID: dict[str, Any] = {
    "exclude": ["experts"],
    "workers": 4,
    "max_bytes_in_flight": "64MiB",
    "timeout": "10m",
    "host": "10.0.0.5",
    "fsync": True,
    "driver": "auto",
    "storage_options": {"key": "k", "client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}},
}
schemes = st.sampled_from(
    ["s3://", "gs://", "file://", "abfs://", "http://", "memory://", "zip::s3://", "S3:/", "://", ""]
)
urls = st.builds(lambda scheme, name, end: scheme + name + end, schemes, names, names)


def assert_one_sentence(error: Exception) -> None:
    """Fail unless it can be shown to a user as it is."""
    assert 0 < len(str(error)) < MAX_SENTENCE, str(error)[:200]


@BOUNDED
@given(st.dictionaries(st.sampled_from(OPTIONS) | names, json_values, max_size=4))
def test_any_setting_is_taken_or_refused_in_a_sentence(given_options: dict[str, Any]) -> None:
    """Of any type, in any number, out of any range."""
    try:
        config = MirrorConfig.from_mapping(given_options)
    except ConfigError as error:
        assert_one_sentence(error)
        return
    assert MirrorConfig.from_mapping(config.as_mapping()) == config
    assert repr(config)


@BOUNDED
@given(changed_json(VALID) | st.binary(max_size=60), st.sampled_from(["json", "toml"]))
def test_any_file_is_taken_or_refused_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, kind: str
) -> None:
    """JSON or TOML that somebody broke, or bombs."""
    file = tmp_path_factory.mktemp("config") / f"mirror.{kind}"
    file.write_bytes(data)
    try:
        assert repr(MirrorConfig.from_file(file))
    except ConfigError as error:
        assert_one_sentence(error)


@pytest.mark.parametrize("data", [b"a = " + b"[" * 60_000, b"a = " + b"{a=" * 15_000, b"workers = " + b"9" * 5_000])
def test_depth_and_length_end_in_a_sentence(tmp_path: Path, data: bytes) -> None:
    """TOML as well as JSON."""
    (tmp_path / "mirror.toml").write_bytes(data)
    with pytest.raises(ConfigError) as refused:
        MirrorConfig.from_file(tmp_path / "mirror.toml")
    assert_one_sentence(refused.value)


@pytest.mark.parametrize("file", ["/dev/zero", "endless.json"])
def test_an_endless_file_is_read_no_further_than_a_configuration_can_be(tmp_path: Path, file: str) -> None:
    """Neither a device nor a large file fills the memory."""
    path = tmp_path / file
    if path.name == "endless.json":
        with path.open("wb") as opened:
            opened.truncate(1 << 40)  # sparse
    with pytest.raises(ConfigError, match=str(MAX_FILE_BYTES)):
        MirrorConfig.from_file(path)


@BOUNDED
@given(
    st.sampled_from(["WORKERS", "TIMEOUT_S", "MAX_BYTES_IN_FLIGHT", "FSYNC", "EXCLUDE", "STORAGE_OPTIONS", "HOST"]),
    st.sampled_from([data.decode(errors="replace") for data in BAD_JSON] + ["9" * 400, "9" * 400 + "TiB", "1e400"])
    | names,
)
def test_any_variable_is_taken_or_refused_in_a_sentence(name: str, text: str) -> None:
    """Also one that holds a bomb."""
    try:
        assert repr(MirrorConfig.from_environment({f"RECORD_MIRROR_{name}": text}))
    except ConfigError as error:
        assert_one_sentence(error)


@BOUNDED
@given(st.builds(lambda name, value: f"{name}={value}", names, names) | names)
def test_any_storage_option_is_taken_or_refused_in_a_sentence(text: str) -> None:
    """On the command line."""
    try:
        parse_storage_option(text)
    except ConfigError as error:
        assert_one_sentence(error)


@pytest.mark.parametrize("text", ["a=" + "[" * 100_000, ".".join(["a"] * 10_000) + "=1", "a." * 100 + "=1"])
def test_a_storage_option_is_no_bomb(text: str) -> None:
    """It is text then, or refused."""
    try:
        assert parse_storage_option(text) == (["a"], text[2:])
    except ConfigError as error:
        assert_one_sentence(error)


@pytest.mark.parametrize(
    "url", ["file://user:{}@host/x", "s3://key:{}@bucket/x\0", "https://user:{}@host/b", "s3://bucket/x?sig={}\0"]
)
def test_no_secret_in_a_url_is_shown(url: str) -> None:
    """Whatever else is wrong with it, and in whatever way it is suggested to be written."""
    with pytest.raises(ConfigError) as refused:
        check_settings(parse_location(url.format("canary-secret")), MirrorConfig())
    assert "canary-secret" not in str(refused.value)


@BOUNDED
@example("file://" + "x" * 1_000)
@example("s3:/" + "x" * 1_000)
@example("x://" * 1_000)
@given(urls | st.none() | st.integers() | st.binary())
def test_any_url_is_a_place_or_refused_in_a_sentence(url: Any) -> None:  # noqa: ANN401 - anything is the point
    """A place has a protocol and a root; nothing that chains, and no control character in what a request would hold."""
    for parse in (parse_location, parse_source):
        try:
            found: Location | ArtifactRef = parse(url)
        except (ConfigError, ReferencesError) as error:
            assert_one_sentence(error)
            continue
        if isinstance(found, Location):
            assert "::" not in found.base or found.protocol == "file" or "://" not in found.base.partition("::")[2]
            assert found.protocol == "file" or not re.search(r"[\x00-\x1f\x7f]", found.base)
            assert re.fullmatch(r"[A-Za-z0-9-]+", place_id(found, {}))
        else:
            assert found.path.count("/") == 2


@BOUNDED
@given(urls)
def test_a_row_names_no_place_on_this_machine(url: str) -> None:
    """A mirror that a step index names is in a store that is elsewhere, or is not read."""
    try:
        location = named_mirror(url)
    except ReferencesError as error:
        assert_one_sentence(error)
        return
    assert location.protocol in {"s3", "gs", "abfs"}


@pytest.mark.parametrize("name", [name for name in EVIL_NAMES if "\0" not in name])
@pytest.mark.parametrize("command", ["ls", "pull", "verify", "status"])
def test_any_place_on_the_command_line_ends_in_a_code(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never a traceback, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    began = time.process_time()
    words = [command, "--json", "--", f"memory://{name}"] + (["out"] if command == "pull" else [])
    code = run(commands, words)
    said = capsys.readouterr()
    assert code in {1, 2, 5}
    assert "Traceback" not in said.err
    assert [json.loads(line)["type"] for line in said.out.splitlines()][:1] == ["error"]
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
    assert time.process_time() - began < 30
