"""The frame around every command: its common options, its words, its errors and its exit code."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from mirror.config import ENV_PREFIX
from mirror.errors import ConfigError, EmptyMirrorError, MirrorError, StoreError
from mirror.redact import redact_url
from mirror.showing import show, suggest
from mirror.terminal.exits import Exit
from mirror.terminal.options import config_file_option, mirror_options, misspelt_variables, option
from mirror.terminal.output import Output, logging_to_stderr

EPILOG = (
    "Each option can also be set in the environment as RECORD_MIRROR_<OPTION>, and in a file that --config or "
    "RECORD_MIRROR_CONFIG names. Exit codes: 0 complete, 1 failed, 2 usage, 3 partial, 4 differences found, "
    "5 could not check, 130 interrupted."
)


_OTHER_WORDS = {
    **dict.fromkeys(["copy", "cp", "upload", "push", "backup"], "sync"),
    **dict.fromkeys(["check", "diff", "fsck"], "verify"),
    **dict.fromkeys(["download", "get", "restore", "fetch"], "pull"),
    **dict.fromkeys(["fix", "heal", "mend"], "repair"),
    **dict.fromkeys(["info", "stat", "stats"], "status"),
    **dict.fromkeys(["list", "steps"], "ls"),
}


class Commands(click.Group):
    """A group that knows what its commands are called elsewhere."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command.

        Raises:
            click.UsageError: there is none; the nearest is suggested.
        """
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            name = args[0]
            meant = _OTHER_WORDS.get(name.lower(), name)
            hint = suggest(meant, self.list_commands(ctx), "`--help` lists them")
            raise click.UsageError(f"No such command {show(name)}: {hint}", ctx)
        return super().resolve_command(ctx, args)


def command(
    group: click.Group, *settings: str, failure: Exit = Exit.FAILED
) -> Callable[[Callable[..., int]], click.Command]:
    """Make a function a command of the group.

    It is called with ``output``, ``config`` and its own arguments, and returns its exit code.

    Args:
        group: whose command it becomes.
        settings: the fields of ``MirrorConfig`` that it has options for.
        failure: what its exit code is when the store makes it fail.
    """

    def decorate(function: Callable[..., int]) -> click.Command:
        @functools.wraps(function)
        def run(*, json: bool, quiet: bool, verbose: int, **given: Any) -> int:  # noqa: ANN401 - whatever it takes
            output = Output(json=json, quiet=quiet)
            try:
                _remark_on_variables(output)
                with logging_to_stderr(verbose=verbose, quiet=quiet):
                    return function(output=output, **given)
            except ConfigError as error:
                return _fail(output, error, Exit.USAGE)
            except (StoreError, EmptyMirrorError) as error:
                return _fail(output, _of_store(error, given), failure)
            except MirrorError as error:
                return _fail(output, error, Exit.FAILED)
            except BrokenPipeError:
                raise  # nobody reads on; click knows what to do
            except OSError as error:
                return _fail(output, f"{error.filename or 'the file system'}: {error.strerror or error}", failure)

        own = list(reversed(run.__dict__["__click_params__"]))
        decorated: Any = mirror_options(*settings)(run)
        for add in (
            config_file_option,
            option("--verbose", "-v", count=True, help="Log what happens; twice: each record."),
            option("--quiet", "-q", is_flag=True, help="Only errors and findings."),
            option("--json", is_flag=True, help="JSON lines on standard output, the last one a summary."),
        ):
            decorated = add(decorated)
        made = group.command(epilog=EPILOG)(decorated)
        made.params = [*own, *(parameter for parameter in made.params if parameter not in own)]
        return made

    return decorate


def run(group: click.Group, args: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; what a user can cause never ends in a traceback."""
    arguments = list(sys.argv[1:] if args is None else args)
    try:
        code = group.main(
            arguments or ["--help"],
            prog_name="record-mirror",
            standalone_mode=False,
            help_option_names=["-h", "--help"],
        )
    except (click.UsageError, ConfigError) as error:
        return _refuse(error, arguments)
    except click.ClickException as error:
        return _fail(_plain_output(arguments), error, Exit.FAILED)
    except (KeyboardInterrupt, click.Abort):
        return _fail(_plain_output(arguments), "interrupted", Exit.INTERRUPTED)
    return int(code or 0)


def _remark_on_variables(output: Output) -> None:
    for remark in misspelt_variables(click.get_current_context().find_root()):
        output.remark(remark)


def _of_store(error: StoreError | EmptyMirrorError, given: Mapping[str, Any]) -> str:
    """Say where it happened instead of what was called; where two stores take part, nobody knows which it was."""
    where = given.get("url") or given.get("source")
    if where is None or given.get("source_url") or not isinstance(error, StoreError):
        return str(error)
    name = "" if error.key.endswith("/") or not error.key else f"{error.key}: "
    return f"{redact_url(where)}: {name}{error.reason}"


def _fail(output: Output, error: Exception | str, code: Exit) -> int:
    output.error(error.format_message() if isinstance(error, click.ClickException) else str(error))
    return output.summary(None, code)


def _refuse(error: click.UsageError | ConfigError, arguments: Sequence[str]) -> int:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(error.ctx.get_usage(), err=True)
    return _fail(_plain_output(arguments), error, Exit.USAGE)


def _plain_output(arguments: Sequence[str]) -> Output:
    """Return what to speak through where no command got as far as having its own."""
    asked = os.environ.get(ENV_PREFIX + "JSON", "").lower() in {"1", "true", "t", "yes", "y", "on"}
    return Output(json=asked or "--json" in arguments)
