"""Command: what all commands share: examples at the end of their help, `--json`, and types of their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click
from typing_extensions import override

from vibey.cli.surroundings import is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

Function = TypeVar("Function", bound=Callable[..., Any])

# What PostgreSQL's bigint holds.
LEAST_INTEGER, GREATEST_INTEGER = -(2**63), 2**63 - 1
SHOWN_DIGITS = 25
SHOWN_CHARACTERS = 60
LONGEST_SECONDS = 100 * 366 * 86_400
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([smhd]?)")


class Command(click.Command):
    """A command whose help ends with examples, each a line and what it does."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **values: Any) -> None:  # noqa: ANN401  click's
        """Remember the examples; all else is click's."""
        super().__init__(*arguments, **values)
        self.examples = tuple(examples)

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; a value that no database or message can hold is a usage error."""
        rest = super().parse_args(ctx, args)
        for parameter in self.get_params(ctx):
            given = ctx.params.get(parameter.name or "")
            for value in given if isinstance(given, tuple) else (given,):
                _require_storable(value, ctx, parameter)
        return rest

    @override
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below the options, or below the commands of a group."""
        super().format_epilog(ctx, formatter)
        write_examples(self.examples, formatter)


class Group(Command, click.Group):
    """A group of commands whose help ends with examples."""


def seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """The seconds an option's text denotes, as its callback: `90`, `90s`, `15m`, `2h` or `1d`."""
    if value is None:
        return None
    found = _DURATION.fullmatch(value.strip().lower())
    if found is None:
        message = f"{value!r} is not a length of time; write 90, 90s, 15m, 2h or 1d"
        raise click.BadParameter(message, context, parameter)
    length = float(found[1]) * _UNITS[found[2]]
    if length > LONGEST_SECONDS:
        raise click.BadParameter(f"{value!r} is more than a hundred years", context, parameter)
    return length


def _require_storable(value: object, context: click.Context, parameter: click.Parameter) -> None:
    if isinstance(value, str) and not is_text(value):
        message = f"{value[:SHOWN_CHARACTERS]!r} is not UTF-8 text; with LC_ALL=C.UTF-8 a terminal sends that"
        raise click.BadParameter(message, context, parameter)
    if isinstance(value, int) and not LEAST_INTEGER <= value <= GREATEST_INTEGER:
        message = f"{_shortened(str(value))} is out of range; a whole number here has at most 64 bits"
        raise click.BadParameter(message, context, parameter)


def _shortened(digits: str) -> str:
    return digits if len(digits) <= SHOWN_DIGITS else f"{digits[:SHOWN_DIGITS]}…"


def past_instant(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | timedelta | None:
    """An instant in ISO 8601, UTC unless it says otherwise, or how long ago, as an option's callback."""
    if value is None:
        return None
    if not _DATE.match(value.strip()):
        return timedelta(seconds=seconds(context, parameter, value) or 0)
    try:
        instant = datetime.fromisoformat(value.strip())
    except ValueError:
        message = f"{value!r} is not an instant; write 2026-03-01T14:05:00Z, or how long ago: 15m, 2h or 1d"
        raise click.BadParameter(message, context, parameter) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    """Write a section of examples, if there are any."""
    if examples:
        with formatter.section("Examples"):
            for line in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def json_option(function: Function) -> Function:
    """Add `--json` to a command, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)
