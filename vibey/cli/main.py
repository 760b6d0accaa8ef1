"""Main: the `vibey` command, its list of commands, and what becomes of an error.

A command's module is imported when the command is first asked for, and what it needs when it runs, so that help is
quick.
"""

from __future__ import annotations

import difflib
import importlib
import logging
import os
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from typing_extensions import override

import vibey
from vibey import __version__
from vibey.cli.command import Group
from vibey.cli.failures import failure_of, report, show_traceback, silence_output, unwritten, wants_json
from vibey.cli.surroundings import OutputError, decoded, open_missing_streams, prepare_output

if TYPE_CHECKING:
    from collections.abc import Sequence

# A command's first sentence is folded, not cut.
WHOLE = 200
COMMANDS = {
    "Start": ("init", "up", "down", "migrate", "apply", "doctor", "config", "demo", "completion"),
    "Work": ("new", "project", "enqueue", "cancel", "retry"),
    "Look": (
        "status",
        "jobs",
        "job",
        "explain",
        "logs",
        "engines",
        "slots",
        "mode",
        "cost",
        "ledger",
        "pages",
        "metrics",
    ),
    "Operate": ("engine", "measure", "audit", "simulate", "replay", "prune", "backup", "restore", "purge", "bench"),
}


class Vibey(Group):
    """The group of all commands: loads them when asked for, and turns errors into lines and exit codes."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command there is a module of, in the order help shows them."""
        return [name for names in COMMANDS.values() for name in names if util.find_spec(f"vibey.cli.{name}")]

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; its module has an object of the same name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        found: click.Command = getattr(importlib.import_module(f"vibey.cli.{cmd_name}"), cmd_name)
        return found

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command the arguments name; a usage error with the nearest name when there is none."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            ctx.fail(f"no such command: {name}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by what they are for."""
        known = self.list_commands(ctx)
        for heading, names in COMMANDS.items():
            found = [(name, self.get_command(ctx, name)) for name in names if name in known]
            rows = [(name, command.get_short_help_str(WHOLE)) for name, command in found if command]
            with formatter.section(heading):
                formatter.write_dl(rows)

    @override
    def main(self, args: Sequence[str] | None = None, *_: Any, **values: Any) -> NoReturn:
        """Run a command and leave with its exit code."""
        open_missing_streams()
        prepare_output()
        given = decoded(sys.argv[1:] if args is None else args)
        values.update(standalone_mode=False, prog_name="vibey")
        code = _guarded(lambda: super(Vibey, self).main(given, **values), as_json=wants_json(given))
        # An interrupt inside exec() of a text, as dataclasses use it while a module is imported, sets a flag for which
        # CPython ends the process by the signal instead of with this code. The next exec() clears the flag.
        exec("")  # noqa: S102
        sys.exit(code)


def _guarded(run: Any, *, as_json: bool) -> int:  # noqa: ANN401  a command returns what it likes
    try:
        return _finished(run())
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        silence_output()
        return 1
    except OutputError as error:
        show_traceback(error)
        silence_output()
        return report(unwritten(error), as_json=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the outermost guard
        show_traceback(error)
        return report(failure_of(error), as_json=as_json)


def _finished(answer: object) -> int:
    sys.stdout.flush()
    return answer if isinstance(answer, int) and not isinstance(answer, bool) else 0


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001  click's way
    if wanted and not context.resilient_parsing:
        click.echo(f"vibey {__version__}{_commit()}")
        context.exit()


def _commit() -> str:
    """What follows the version in a checkout: the commit, and whether files differ from it. Nothing without git."""
    top = Path(vibey.__file__).parents[1]
    if not (top / ".git").exists():
        return ""
    # A git hook's own variables would name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ("git", "-C", str(top), "describe", "--always", "--abbrev=9", "--exclude=*", "--dirty=.dirty")
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"+g{done.stdout.strip()}"


@click.group(
    cls=Vibey,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples=(
        "vibey init && vibey up --detach             start with the engines found here",
        """vibey enqueue '{"task": "build"}' --wait    run one job and wait for it""",
        "vibey status --watch                        see what goes on",
    ),
)
@click.option(
    "-c",
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Configuration file; default: $VIBEY_CONFIG, else ./vibey.toml.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli(config: Path | None) -> None:
    """Route long, expensive jobs to a mixed fleet of engines: local slots first, paid work under a daily cap.

    Exit codes: 0 ok, 1 a check or a job failed, 2 usage, 3 refused, 4 a service is unreachable, 130 interrupted.
    """
    if os.environ.get("NO_COLOR"):
        click.get_current_context().color = False
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(logging.Formatter("vibey: %(message)s"))
    if config is not None:
        os.environ["VIBEY_CONFIG"] = str(config.absolute())


def main() -> NoReturn:
    """The entry point of the `vibey` program."""
    cli.main()


if __name__ == "__main__":
    main()
