"""Settings come from wherever a run keeps them, mean the same everywhere, and are refused in one clear sentence."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mirror.config import MirrorConfig
from mirror.errors import ConfigError


class Foreign(Mapping[str, object]):
    """A mapping as configuration libraries have them: no dict, with containers of its own inside."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> object:
        """Give containers of the library's own."""
        return _foreign(self._values[name])

    def __iter__(self) -> Iterator[str]:
        """Give the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Count them."""
        return len(self._values)


class ForeignList(Sequence[object]):
    """A list as configuration libraries have them."""

    def __init__(self, values: Sequence[object]) -> None:
        self._values = values

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - a Sequence's own
        """Give containers of the library's own."""
        return _foreign(self._values[index])

    def __len__(self) -> int:
        """Count them."""
        return len(self._values)


def _foreign(value: object) -> object:
    if isinstance(value, dict):
        return Foreign(value)
    return ForeignList(value) if isinstance(value, list) else value


def test_every_option_has_a_default_that_works() -> None:
    """Nothing has to be set."""
    config = MirrorConfig()
    assert config.exclude == ()
    assert config.as_mapping() == {}
    assert MirrorConfig.from_mapping(None) == MirrorConfig.from_mapping({}) == config


def test_one_setting_means_the_same_from_every_source(tmp_path: Path) -> None:
    """Keyword arguments, mappings, the environment, TOML and JSON files give equal settings."""
    values: dict[str, Any] = {
        "exclude": ["experts", "tokens"],
        "workers": 7,
        "timeout_s": 2.5,
        "fsync": False,
        "host": "node-7",
        "storage_options": {"key": "x", "client_kwargs": {"region_name": "r"}},
    }
    (tmp_path / "mirror.json").write_text(json.dumps(values))
    (tmp_path / "mirror.toml").write_text(
        'exclude = ["experts", "tokens"]\nworkers = 7\ntimeout_s = 2.5\nfsync = false\nhost = "node-7"\n'
        '[storage_options]\nkey = "x"\nclient_kwargs = { region_name = "r" }\n'
    )
    environment = {
        "RECORD_MIRROR_EXCLUDE": "experts, tokens",
        "RECORD_MIRROR_WORKERS": "7",
        "RECORD_MIRROR_TIMEOUT_S": "2.5",
        "RECORD_MIRROR_FSYNC": "false",
        "RECORD_MIRROR_HOST": "node-7",
        "RECORD_MIRROR_STORAGE_OPTIONS": json.dumps(values["storage_options"]),
        "RECORD_MIRROR": "s3://bucket/x",
        "PATH": "/bin",
    }
    expected = MirrorConfig(**values)
    assert MirrorConfig.from_mapping(values) == expected
    assert MirrorConfig.from_mapping({}, **values) == expected
    assert MirrorConfig.from_mapping(Foreign(values)) == expected
    assert MirrorConfig.from_environment(environment) == expected
    assert MirrorConfig.from_file(tmp_path / "mirror.toml") == expected
    assert MirrorConfig.from_file(tmp_path / "mirror.json") == expected
    assert MirrorConfig.from_mapping(expected.as_mapping()) == expected


def test_the_environment_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mapping the process's own environment is read."""
    monkeypatch.setenv("RECORD_MIRROR_WORKERS", "3")
    assert MirrorConfig.from_environment().workers == 3


def test_keyword_arguments_win() -> None:
    """What is given at the call overrides the mapping."""
    assert MirrorConfig.from_mapping({"workers": 3, "attempts": 2}, workers=9) == MirrorConfig(workers=9, attempts=2)


def test_names_of_existing_configurations_are_taken() -> None:
    """timeout, backoff and shutdown_timeout are the names with a unit."""
    config = MirrorConfig.from_mapping({"timeout": 5, "backoff": 0.1, "shutdown_timeout": 7, "rescan": 3})
    assert config == MirrorConfig(timeout_s=5.0, backoff_s=0.1, shutdown_timeout_s=7.0, rescan_s=3.0)


def test_foreign_containers_become_plain_ones() -> None:
    """Stores' libraries get dicts and lists, whatever the configuration came in."""
    options = {"client_kwargs": {"verify": False}, "scopes": ["a", {"b": 1}], "pair": (1, 2)}
    config = MirrorConfig.from_mapping(Foreign({"storage_options": options, "exclude": ["experts"]}))
    assert config.storage_options == options
    assert type(config.storage_options["client_kwargs"]) is dict
    assert type(config.storage_options["scopes"]) is list
    assert type(config.storage_options["pair"]) is tuple
    assert config.exclude == ("experts",)


def test_storage_options_are_handed_on_as_they_are() -> None:
    """An object among them, such as a session, is neither copied nor changed."""
    session = threading.Lock()
    config = MirrorConfig.from_mapping({"storage_options": {"session": session}})
    again = MirrorConfig.from_mapping(config.as_mapping())
    assert again.storage_options["session"] is session


def test_settings_do_not_follow_the_mapping_they_came_from() -> None:
    """Changing the mapping afterwards changes nothing."""
    options: dict[str, object] = {"inner": {"a": 1}}
    config = MirrorConfig(storage_options=options)
    options["inner"] = {"a": 2}
    assert config.storage_options == {"inner": {"a": 1}}


def test_secrets_are_not_in_the_representation() -> None:
    """Printing the settings shows no storage option."""
    assert "canary" not in repr(MirrorConfig(storage_options={"secret": "canary"}))


def test_excluded_kinds_are_a_set_in_a_fixed_order() -> None:
    """Order and repetition do not matter; a missing mapping of storage options is an empty one."""
    assert MirrorConfig(exclude=["b", "a", "b"]).exclude == ("a", "b")  # type: ignore[arg-type] # what YAML gives
    assert MirrorConfig.from_mapping({"exclude": {"a"}}).exclude == ("a",)
    assert MirrorConfig.from_mapping({"storage_options": None}).storage_options == {}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("worker", "did you mean 'workers'"),
        ("exlude", "did you mean 'exclude'"),
        ("time_out", "did you mean 'timeout"),
        ("shutdown_time", "did you mean 'shutdown_timeout"),
        ("zzz", "known are exclude, workers"),
        ("", "known are exclude, workers"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name: str, hint: str) -> None:
    """A misspelt option is never silently ignored."""
    with pytest.raises(ConfigError, match=rf"unknown mirror option {re.escape(repr(name))}: {re.escape(hint)}"):
        MirrorConfig.from_mapping({name: 1})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"exclude": "experts"}, r"exclude must be a list of sidecar kinds such as \['experts'\]"),
        ({"exclude": None}, "exclude must be a list"),
        ({"exclude": 5}, "exclude must be a list"),
        ({"exclude": [5]}, "exclude must list sidecar kinds"),
        ({"exclude": [""]}, "exclude must list sidecar kinds"),
        ({"exclude": ["experts.zst"]}, "exclude must list sidecar kinds such as 'experts', not 'experts.zst'"),
        ({"exclude": ["a/b"]}, "exclude must list sidecar kinds"),
        ({"exclude": ["tokens,experts"]}, "exclude must list sidecar kinds such as 'experts', not 'tokens,experts'"),
        ({"exclude": ["to kens"]}, "exclude must list sidecar kinds"),
        ({"exclude": ["json"]}, "the document itself"),
        ({"workers": "8"}, "workers must be a whole number, not '8'"),
        ({"workers": 2.0}, "workers must be a whole number"),
        ({"workers": True}, "workers must be a whole number"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"queue_size": -1}, "queue_size must be at least 1"),
        ({"attempts": 0}, "attempts must be at least 1"),
        ({"max_bytes_in_flight": None}, "max_bytes_in_flight must be a whole number"),
        ({"timeout": "60"}, "timeout_s must be a number of seconds, not '60'"),
        ({"timeout_s": 0}, "timeout_s must be more than 0"),
        ({"timeout_s": math.nan}, "timeout_s must be a number of seconds"),
        ({"timeout_s": math.inf}, "timeout_s must be a number of seconds"),
        ({"backoff": -1}, "backoff_s must not be negative"),
        ({"backoff": True}, "backoff_s must be a number"),
        ({"rescan_s": None}, "rescan_s must be a number"),
        ({"fsync": "no"}, "fsync must be true or false"),
        ({"host": 5}, "host must be an address"),
        ({"host": ""}, "host must be an address"),
        ({"upload_checksum": "crc"}, "upload_checksum must be one of auto, xxh3_128, md5"),
        ({"upload_checksum": []}, "upload_checksum must be one of"),
        ({"storage_options": {"endpoint_url": "10.0.0.1:99"}}, "no protocol: write http://10.0.0.1:99"),
        ({"storage_options": {"client_kwargs": {"endpoint_url": "u:p@host"}}}, "no protocol: write http://\\*+@host"),
        ({"storage_options": "key=x"}, "storage_options must be a mapping"),
        ({"storage_options": [("key", "x")]}, "storage_options must be a mapping"),
    ],
)
def test_a_wrong_value_is_refused_in_one_sentence(values: dict[str, object], sentence: str) -> None:
    """The sentence names the option and says what belongs there."""
    with pytest.raises(ConfigError, match=sentence) as caught:
        MirrorConfig.from_mapping(values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mapping", ["workers=8", ["workers"], 5])
def test_what_is_no_mapping_is_refused(mapping: Any) -> None:  # noqa: ANN401 - the point
    """A configuration of the wrong kind is said to be one."""
    with pytest.raises(ConfigError, match="must be a mapping"):
        MirrorConfig.from_mapping(mapping)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("WORKERS", "many", "int"),
        ("TIMEOUT_S", "soon", "time such as 10m"),
        ("MAX_BYTES_IN_FLIGHT", "plenty", "size such as 64MiB"),
        ("FSYNC", "maybe", "bool"),
        ("STORAGE_OPTIONS", "{key", "JSON"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(name: str, value: str, kind: str) -> None:
    """The error names the variable and what it must hold, and never shows the value."""
    with pytest.raises(ConfigError, match=f"RECORD_MIRROR_{name} must hold a valid {kind}") as caught:
        MirrorConfig.from_environment({f"RECORD_MIRROR_{name}": value})
    assert value not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("x.toml", "workers = ", "cannot be read"),
        ("x.json", "{", "cannot be read"),
        ("x.json", "[1]", "must hold a table"),
        ("x.yaml", "workers: 5", "must be TOML or JSON, not YAML"),
        ("x.toml", "timeout = 'soon'", "timeout: 'soon' is not a time such as 90, 10m or 2h"),
        ("x.toml", "max_bytes_in_flight = '1 XB'", "is not a size such as 67108864, 64MiB or 64MB"),
        ("x.toml", "worker = 5", "did you mean 'workers'"),
        ("x.toml", "\udcff", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str, reason: str) -> None:
    """Broken files, other content and unknown options are told apart."""
    path = tmp_path / name
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=reason):
        MirrorConfig.from_file(path)


def test_times_and_sizes_have_units_where_they_are_text(tmp_path: Path) -> None:
    """In a file and in the environment; Python code gives numbers."""
    path = tmp_path / "x.toml"
    path.write_text("timeout = '10m'\nmax_bytes_in_flight = '64M'\nrescan_s = 5")
    config = MirrorConfig.from_file(path)
    assert (config.timeout_s, config.max_bytes_in_flight, config.rescan_s) == (600, 64 << 20, 5)
    environment = {"RECORD_MIRROR_BACKOFF_S": "10s", "RECORD_MIRROR_MAX_BYTES_IN_FLIGHT": "64MB"}
    config = MirrorConfig.from_environment(environment)
    assert (config.backoff_s, config.max_bytes_in_flight) == (10, 64_000_000)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The path is in the sentence."""
    with pytest.raises(ConfigError, match=r"absent\.toml cannot be read"):
        MirrorConfig.from_file(tmp_path / "absent.toml")
