"""`vibey engines`: the fleet, how it is and how it shared the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.cli.output import Table

COLUMNS = (
    Column("ENGINE", wide=True),
    Column("TIER"),
    Column("USED", right=True),
    Column("CIRCUIT"),
    Column("WEIGHT", right=True),
    Column("RUNS", right=True),
    Column("SHARE", right=True),
    Column("EXPECTED", right=True),
    Column("NOTE", wide=True),
)


@click.command(cls=Command, examples=("vibey engines", "vibey engines --json"))
@json_option
def engines(*, as_json: bool) -> None:
    """Show every engine, how full it is, and its share of the runs.

    EXPECTED is the share it was offered: one that was never offered work, because others came first,
    expects none, and NOTE says that it was not needed so far. NOTE also
    tells what its weight takes for a while: schedules, preferences and what runs have taught.
    """
    from vibey.services import views

    with session.installation() as installation:
        found = views.engines(installation)
    if as_json:
        output.print_json(found)
        return
    screen = output.console()
    screen.print(table(found["engines"]) if found["engines"] else "no engine is configured; run: vibey up")
    for pool in found["pools"]:
        screen.print(output.cell(f"pool {pool['name']}: {_layers(pool)}"))
    screen.print(f"as of {output.clock(found['as_of'])} UTC", style="dim")


def table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Engines as a table."""
    return output.table(COLUMNS, [_row(each) for each in found])


def _row(each: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        each["name"],
        each["tier"],
        f"{each['in_use']}/{each['slots']}",
        each["circuit"],
        f"{each['weight']:g}",
        each["selected_count"],
        output.percent(each["share"]),
        output.percent(each["expected_share"]),
        "; ".join(words for words in (each["remark"] or each["detail"], _layers(each)) if words),
    )


def _layers(each: Mapping[str, Any]) -> str:
    """The layers on an engine or pool: `preference × 2 until 2026-03-01 14:05:09 (month end)`."""
    return "; ".join(_layer(layer) for layer in each["layers"])


def _layer(layer: Mapping[str, Any]) -> str:
    until = f" until {output.clock(layer['until'])}" if layer["until"] else ""
    note = f" ({layer['note']})" if layer["note"] else ""
    return f"{layer['kind']} × {layer['factor']:g}{until}{note}"
