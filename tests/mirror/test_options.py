"""Every option by flag, environment and file: the flag wins, then the environment, then the file."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

import click
import pytest

from mirror.config import MirrorConfig
from mirror.errors import ConfigError
from mirror.terminal.commands import command, run
from mirror.terminal.options import EVERYTHING, Name, Seconds, merge, option, parse_storage_option


@dataclass
class Seen:
    """What a command was called with."""

    config: MirrorConfig
    include: tuple[str, ...]
    max_lag: float | None
    dry_run: bool


class Line:
    """A command line with one command of every kind of option, and what its last run was called with."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._seen: list[Seen] = []
        self._group = click.Group()

        @command(self._group, *EVERYTHING)
        @click.argument("url")
        @option("--include", multiple=True, type=Name())
        @option("--max-lag", type=Seconds(), default=None)
        @option("--dry-run", is_flag=True)
        def copy(
            *, include: tuple[str, ...], max_lag: float | None, dry_run: bool, config: MirrorConfig, **_rest: object
        ) -> int:
            self._seen.append(Seen(config, include, max_lag, dry_run))
            return 0

        @command(self._group)
        @click.argument("url")
        @option("--sample")
        def check(**_given: object) -> int:
            return 0

    def run(
        self, *args: str, url: str = "s3://bucket", env: dict[str, str] | None = None, file: str | None = None
    ) -> Seen:
        """Run the command, which must be called."""
        assert self.code(*args, url=url, env=env, file=file) == 0
        return self._seen.pop()

    def code(
        self, *args: str, url: str = "s3://bucket", env: dict[str, str] | None = None, file: str | None = None
    ) -> int:
        """Run the command and return the exit code."""
        more = []
        with self._monkeypatch.context() as patch:
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            if file is not None:
                path = self._folder / "mirror.toml"
                path.write_text(file)
                more = ["--config", str(path)]
            return run(self._group, ["copy", url, *more, *args])


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(tmp_path, monkeypatch)


def test_every_setting_is_an_option() -> None:
    """No field of the settings is missing on the command line; storage options have flags of their own."""
    assert {*EVERYTHING, "storage_options"} == {setting.name for setting in fields(MirrorConfig)}


def test_without_options_the_settings_are_the_defaults(line: Line) -> None:
    """The command line has no defaults of its own."""
    seen = line.run()
    assert seen == Seen(MirrorConfig(), (), None, dry_run=False)


SETTINGS = [
    ("exclude", ["--exclude", "experts,tokens"], "experts, tokens", '["experts", "tokens"]'),
    ("workers", ["--workers", "7"], "7", "7"),
    ("max_bytes_in_flight", ["--max-bytes-in-flight", "1000"], "1000", "1000"),
    ("max_bytes_in_flight", ["--max-bytes-in-flight", "1MiB"], "1M", '"1024kib"'),
    ("queue_size", ["--queue-size", "10"], "10", "10"),
    ("timeout_s", ["--timeout", "90s"], "1.5m", "90"),
    ("timeout_s", ["--timeout", "10m"], "600s", '"10m"'),
    ("attempts", ["--attempts", "3"], "3", "3"),
    ("backoff_s", ["--backoff", "0.25"], ".25", "0.25"),
    ("shutdown_timeout_s", ["--shutdown-timeout", "2m"], "120", "120.0"),
    ("rescan_s", ["--rescan", "1h"], "1h", "3600"),
    ("host", ["--host", "10.0.0.9"], "10.0.0.9", '"10.0.0.9"'),
    ("fsync", ["--no-fsync"], "no", "false"),
    ("upload_checksum", ["--upload-checksum", "md5"], "md5", '"md5"'),
]


@pytest.mark.parametrize(("name", "flags", "text", "toml"), SETTINGS)
def test_a_setting_is_read_from_each_source(line: Line, name: str, flags: list[str], text: str, toml: str) -> None:
    """The same setting by flag, by environment and by file is the same setting."""
    by_flag = line.run(*flags).config
    assert by_flag.as_mapping() == {name: by_flag.as_mapping()[name]}
    assert line.run(env={f"RECORD_MIRROR_{name.upper()}": text}).config == by_flag
    assert line.run(file=f"{name} = {toml}").config == by_flag


def test_kinds_are_separated_by_commas_everywhere(line: Line) -> None:
    """In a flag and in a file as in the environment; spaces do not matter."""
    assert line.run("--exclude", "tokens, experts").config.exclude == ("experts", "tokens")
    assert line.run("--exclude", "tokens", "--exclude", "experts,").config.exclude == ("experts", "tokens")
    assert line.run(file="exclude = 'tokens, experts'").config.exclude == ("experts", "tokens")
    assert line.code("--exclude", "tokens;experts") == 2


def test_the_flag_wins_over_the_environment_and_that_over_the_file(line: Line) -> None:
    """Each source is overridden by the one that is nearer to the user."""
    file, env, flag = "workers = 1", {"RECORD_MIRROR_WORKERS": "2"}, ("--workers", "3")
    assert line.run(file=file).config.workers == 1
    assert line.run(file=file, env=env).config.workers == 2
    assert line.run(*flag, file=file, env=env).config.workers == 3


def test_other_options_have_the_same_sources(line: Line) -> None:
    """Not only the mirror's settings, and under the flag's name in the file."""
    assert line.run("--max-lag", "5m", "--dry-run", "--include", "a*").max_lag == 300
    seen = line.run(
        env={"RECORD_MIRROR_MAX_LAG": "60", "RECORD_MIRROR_DRY_RUN": "true", "RECORD_MIRROR_INCLUDE": "a*,b"}
    )
    assert (seen.max_lag, seen.dry_run, seen.include) == (60, True, ("a*", "b"))
    seen = line.run(file='max-lag = "2m"\ndry_run = true\ninclude = "a*"')
    assert (seen.max_lag, seen.dry_run, seen.include) == (120, True, ("a*",))


def test_the_file_may_be_named_in_the_environment_and_be_json(line: Line, tmp_path: Path) -> None:
    """RECORD_MIRROR_CONFIG names it; the older names of settings are known there too."""
    path = tmp_path / "mirror.json"
    path.write_text(json.dumps({"timeout": 7, "shutdown_timeout": 8}))
    config = line.run(env={"RECORD_MIRROR_CONFIG": str(path)}).config
    assert (config.timeout_s, config.shutdown_timeout_s) == (7, 8)
    assert line.run(env={"RECORD_MIRROR_TIMEOUT": "9"}).config.timeout_s == 9


def test_retries_are_attempts_after_the_first(line: Line) -> None:
    """The stronger source wins, whichever of the two names it uses."""
    assert line.run("--retries", "0").config.attempts == 1
    assert line.run("--retries", "4", file="attempts = 2").config.attempts == 5
    assert line.run("--attempts", "2", env={"RECORD_MIRROR_RETRIES": "4"}).config.attempts == 2
    assert line.run(file="retries = 6").config.attempts == 7


def test_storage_options_of_all_sources_are_put_together(line: Line) -> None:
    """A flag adds to a table or replaces one value of it; what is no JSON is text."""
    config = line.run(
        *("--storage-option", "client_kwargs.region_name=eu-1", "--storage-option", "anon=true"),
        *("--storage-option", "secret=a=b", "--storage-option", 'key="0123"'),
        env={"RECORD_MIRROR_STORAGE_OPTIONS": '{"key": "from the environment", "client_kwargs": {"verify": false}}'},
        file='[storage_options]\ntoken = "t"\n[storage_options.client_kwargs]\nregion_name = "us-1"\n',
    ).config
    assert config.storage_options == {
        "token": "t",
        "client_kwargs": {"region_name": "eu-1", "verify": False},
        "key": "0123",
        "anon": True,
        "secret": "a=b",
    }


def test_the_endpoint_has_a_flag(line: Line) -> None:
    """It replaces whatever endpoint was set before, and is refused where it would mean nothing."""
    file = '[storage_options.client_kwargs]\nendpoint_url = "http://old"\nregion_name = "us-1"\n'
    options = line.run("--endpoint-url", "http://127.0.0.1:9", file=file).config.storage_options
    assert options == {"endpoint_url": "http://127.0.0.1:9", "client_kwargs": {"region_name": "us-1"}}
    assert line.run(url="gs://bucket", env={"RECORD_MIRROR_ENDPOINT_URL": "http://x"}).config.storage_options == {
        "endpoint_url": "http://x"
    }
    assert line.code("--endpoint-url", "http://x", url="abfs://container@account") == 2


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        ("worker = 3", "unknown option 'worker' in {path}: did you mean 'workers'?"),
        ("[storage_option]", "unknown option 'storage_option' in {path}: did you mean 'storage_options'?"),
        ("max_leg = 3", "unknown option 'max_leg' in {path}: did you mean 'max_lag'?"),
        ("zzzzz = 3", "unknown option 'zzzzz' in {path}: `--help` lists the options"),
        ("exclude = 5", "exclude must be a list of sidecar kinds such as ['experts'], not 5"),
        ('workers = "many"', "workers must be a whole number, not 'many'"),
        ("workers = ", "the configuration file {path} cannot be read: Invalid value (at end of document)"),
        ('max_lag = "soon"', "Invalid value for '--max-lag': 'soon' is not a time such as 90, 10m or 2h"),
    ],
)
def test_a_wrong_file_is_one_clear_sentence(
    line: Line, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, complaint: str
) -> None:
    """An unknown name, with the nearest one, and a wrong type are errors of use."""
    assert line.code(file=file) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {complaint.format(path=tmp_path / 'mirror.toml')}"


def test_one_file_serves_every_command(line: Line) -> None:
    """An option of another command is no mistake."""
    assert line.run(file='sample = "5%"\nworkers = 2').config.workers == 2


def test_a_missing_file_is_an_error(line: Line, tmp_path: Path) -> None:
    """A file that was asked for and is not there is never silently left out."""
    assert line.code("--config", str(tmp_path / "nowhere.toml")) == 2


@pytest.mark.parametrize(
    ("flags", "env"),
    [
        (["--workers", "0"], {}),
        (["--workers", "many"], {}),
        (["--timeout", "-1"], {}),
        (["--timeout", "0"], {}),
        (["--exclude", "a.b"], {}),
        (["--upload-checksum", "crc"], {}),
        (["--storage-option", "anon"], {}),
        (["--storage-option", "=1"], {}),
        ([], {"RECORD_MIRROR_WORKERS": "many"}),
        ([], {"RECORD_MIRROR_STORAGE_OPTIONS": "{"}),
        ([], {"RECORD_MIRROR_STORAGE_OPTIONS": "[1]"}),
        (["--nonsense"], {}),
    ],
)
def test_wrong_values_are_errors_of_use(line: Line, flags: list[str], env: dict[str, str]) -> None:
    """Wherever they come from."""
    assert line.code(*flags, env=env) == 2


def test_a_misspelt_variable_is_remarked(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    """With the nearest name; a variable that is like none may be somebody else's."""
    variables = {"RECORD_MIRROR_WOKERS": "3", "RECORD_MIRROR_STORAGE_OPTION": "key=a"}
    line.run(env={**variables, "RECORD_MIRROR_SERVICE_HOST": "10.0.0.1", "RECORD_MIRROR_WORKERS": "2"})
    assert capsys.readouterr().err == (
        "the environment variable RECORD_MIRROR_STORAGE_OPTION is no option: did you mean "
        "RECORD_MIRROR_STORAGE_OPTIONS?\n"
        "the environment variable RECORD_MIRROR_WOKERS is no option: did you mean RECORD_MIRROR_WORKERS?\n"
    )


def test_help_shows_defaults_as_they_are_written(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    """With -h, too."""
    assert line.code("-h") == 0
    text = " ".join(capsys.readouterr().out.split())
    for default in ("60s", "64MiB", "0.5s", "auto", "on"):
        assert f"[default: {default}]" in text
    assert "[auto|xxh3_128|md5]" in text


def test_dots_nest_and_values_are_json() -> None:
    """A value that is not JSON is taken as text."""
    assert parse_storage_option("a.b=1") == (["a", "b"], 1)
    assert parse_storage_option("a=x y") == (["a"], "x y")
    assert parse_storage_option("secret=12345678") == (["secret"], "12345678")  # a fine one, whatever it looks like
    assert parse_storage_option("key=12345e1") == (["key"], "12345e1")
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        parse_storage_option("a..b=1")


def test_tables_are_merged_all_the_way_down() -> None:
    """A table meets a table; anything else is replaced."""
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}, "d": {"e": 5}}) == {
        "a": {"b": 4, "c": 2},
        "d": {"e": 5},
    }
