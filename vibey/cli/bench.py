"""`vibey bench`: how quick the router is here, beside its bars and its peers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vibey.cli.command import Command, json_option
from vibey.cli.failures import Interrupted
from vibey.cli.interrupts import interruptible
from vibey.cli.output import Column, console, note, print_json, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vibey.bench.report import Report

DEFAULT_ROUNDS = 5
ROWS = (
    "pure", "latency", "durable", "enqueue", "endtoend", "handover", "delay", "memory", "projects", "breadth", "size",
    "depth", "limits",
)  # fmt: skip


@click.command(
    cls=Command,
    examples=(
        "vibey bench                          everything, five rounds, a quarter of an hour",
        "vibey bench --row durable --row pure only these",
        "vibey bench --quick --json           whether everything can be measured, in a few minutes",
        "vibey bench --peers build/peers --write benchmarks/results    as make bench does",
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
@click.option(
    "--peers",
    type=click.Path(file_okay=False, path_type=Path),
    help="The environment peers are installed in; make bench prepares one.",
)
@click.option(
    "--write",
    "results",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    help="Also write a page, a picture and the numbers into this folder, made where it is missing.",
)
@json_option
@click.pass_context
def bench(  # noqa: PLR0913  one parameter an option
    context: click.Context,
    *,
    quick: bool,
    rounds: int | None,
    rows: Sequence[str],
    directory: Path | None,
    peers: Path | None,
    results: Path | None,
    as_json: bool,
) -> None:
    """Measure decisions, enqueueing, throughput, hand-over, memory, size, and what depth and distance cost.

    Starts servers and workers of its own in a scratch folder, and removes all of it at the end. Each figure is
    measured in turn with something to compare it with, such as plain Celery on the same broker; a peer that is not
    installed is named as missing. Exit 1 when a bar is
    missed; with --quick only when something did not work.
    """
    from vibey.bench.report import write

    try:
        with interruptible():
            done = _measured(directory, peers, rounds or (1 if quick else DEFAULT_ROUNDS), rows, quick=quick)
    except KeyboardInterrupt:
        raise Interrupted("the servers and workers of the bench are gone") from None
    if results is not None:
        for path in write(done, results):
            note(f"written: {path}")
    if as_json:
        print_json(done.to_json())
    else:
        _print(done)
    context.exit(1 if done.missed and not quick else 0)


def _measured(directory: Path | None, peers: Path | None, rounds: int, rows: Sequence[str], *, quick: bool) -> Report:
    from vibey.bench import machine, suite
    from vibey.bench.figures import Scale
    from vibey.bench.laboratory import Laboratory
    from vibey.bench.peers import Peers
    from vibey.bench.report import Report

    found = Peers.found(None if peers is None else peers.resolve())
    with Laboratory.opened(directory, found) as laboratory:
        described = machine.describe(laboratory.status())
        figures = suite.run(laboratory, Scale(rounds, quick), rows)
    return Report(described, tuple(figures), found.versions, found.missing, rounds, quick=quick)


def _print(report: Report) -> None:
    out = console()
    out.print("   ".join(f"{key} {value}" for key, value in report.machine.items()))
    out.print()
    columns = (
        Column("ROW"), Column("WHAT", wide=True), Column("MEDIAN", right=True), Column("SPREAD", right=True),
        Column("UNIT"), Column("BAR", right=True), Column("MET"),
    )  # fmt: skip
    out.print(table(columns, (report.cells(figure) for figure in report.figures)))
    for name, reason in report.missing.items():
        out.print(f"missing: {name}: {reason}")
