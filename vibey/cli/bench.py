"""`vibey bench`: how quick the router is here, beside its bars and its peers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vibey.cli.command import Command, json_option
from vibey.cli.interrupts import interruptible
from vibey.cli.output import Column, console, note, print_json, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vibey.bench.figures import Figure

DEFAULT_ROUNDS = 5
INTERRUPTED = 130
ROWS = ("pure", "durable", "enqueue", "endtoend", "handover", "depth", "limits")


@click.command(
    cls=Command,
    examples=(
        "vibey bench                          everything, five rounds, about six minutes",
        "vibey bench --row durable --row pure only these",
        "vibey bench --quick --json           whether everything can be measured, in under a minute",
    ),
)
@click.option("--quick", is_flag=True, help="Everything once and small: a check of the bench, not of the speed.")
@click.option(
    "--rounds", type=click.IntRange(1, 100), help=f"How often each pair is measured.  [default: {DEFAULT_ROUNDS}]"
)
@click.option("--row", "rows", multiple=True, type=click.Choice(ROWS), help="Measure only this; may be repeated.")
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Where to make the scratch folder; on the disk to be measured.  [default: the folder for temporary files]",
)
@json_option
@click.pass_context
def bench(
    context: click.Context,
    *,
    quick: bool,
    rounds: int | None,
    rows: Sequence[str],
    directory: Path | None,
    as_json: bool,
) -> None:
    """Measure decisions, enqueueing, throughput, hand-over and depth.

    Starts servers and workers of its own in a scratch folder, and removes all of it at the end. Each figure is
    measured in turn with something to compare it with, such as plain Celery on the same broker. Exit 1 when a bar is
    missed; with --quick only when something did not work.
    """
    try:
        with interruptible():
            machine, figures = _measured(directory, rounds or (1 if quick else DEFAULT_ROUNDS), rows, quick=quick)
    except KeyboardInterrupt:
        note("vibey: interrupted; the servers and workers of the bench are gone")
        context.exit(INTERRUPTED)
    missed = [figure for figure in figures if figure.met is False]
    if as_json:
        rows_found = [figure.to_json() for figure in figures]
        print_json({"quick": quick, "machine": machine, "missed": len(missed), "rows": rows_found})
    else:
        _print(machine, figures, quick=quick)
    context.exit(1 if missed and not quick else 0)


def _measured(
    directory: Path | None, rounds: int, rows: Sequence[str], *, quick: bool
) -> tuple[dict[str, Any], list[Figure]]:
    from vibey.bench import machine, suite
    from vibey.bench.figures import Scale
    from vibey.bench.laboratory import Laboratory

    with Laboratory.opened(directory) as laboratory:
        described = machine.describe(laboratory.status())
        return described, suite.run(laboratory, Scale(rounds, quick), rows)


def _print(machine: dict[str, Any], figures: Sequence[Figure], *, quick: bool) -> None:
    out = console()
    out.print("   ".join(f"{key} {value}" for key, value in machine.items()))
    out.print()
    columns = (
        Column("ROW"), Column("WHAT", wide=True), Column("MEDIAN", right=True), Column("SPREAD", right=True),
        Column("UNIT"), Column("BAR", right=True), Column("MET"),
    )  # fmt: skip
    out.print(table(columns, (_cells(figure, quick=quick) for figure in figures)))


def _cells(figure: Figure, *, quick: bool) -> tuple[object, ...]:
    verdict = None if quick or figure.met is None else ("ok" if figure.met else "missed")
    spread = f"{_shown(min(figure.samples))} to {_shown(max(figure.samples))}"
    return figure.row, figure.what, _shown(figure.median), spread, figure.unit, figure.bar, verdict


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
