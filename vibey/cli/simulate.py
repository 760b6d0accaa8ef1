"""`vibey simulate`: what a configuration would do with a trace, in virtual time."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option, seconds
from vibey.cli.interrupts import interruptible
from vibey.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vibey.settings import Settings
    from vibey.simulate.report import Report
    from vibey.simulate.trace import Trace

# Below this a simulation is over before a bar would be seen.
LONG_JOBS = 20_000
LARGE_BYTES = 4_000_000
STEP_JOBS = 500
# So many lines about the cap still tell something.
MOST_DAYS = 14
LONGEST_SECONDS = 10 * 366 * 86_400


@click.command(
    cls=Command,
    examples=(
        "vibey simulate --trace week.jsonl                     the configuration in force",
        "vibey simulate --config new.toml --trace week.jsonl   another one on the same trace",
        "vibey simulate --trace week.jsonl --what-if cap=20    a change of it",
        "vibey simulate --trace week.jsonl --out D.jsonl       every decision, a line each",
        "vibey simulate --trace week.jsonl --plot week.png     a picture of it",
        "vibey simulate --from-ledger --save-trace week.jsonl  the last seven days of this installation",
    ),
)
@click.option(
    "--config",
    "chosen",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The configuration to try; default: the one in force.",
)
@click.option(
    "--trace",
    "source",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What happens: arrivals and fleet events, a JSON object a line, by time.",
)
@click.option("--from-ledger", is_flag=True, help="Play what happened on this installation instead of a file.")
@click.option(
    "--since",
    callback=seconds,
    default="7d",
    show_default=True,
    metavar="TIME",
    help="How far back that goes.",
)
@click.option(
    "--save-trace",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --from-ledger: write what happened there, as a trace.",
)
@click.option("--what-if", "changes", metavar="KEY=VALUE,…", help="Change settings first: cap=20,slots.ollama=2.")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write every decision there, a JSON object a line.",
)
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw engines, queue and cap over time: a .png, or a self-contained .html.",
)
@json_option
def simulate(  # noqa: PLR0913  one parameter an option
    *,
    chosen: Path | None,
    source: Path | None,
    from_ledger: bool,
    since: float,
    save_trace: Path | None,
    changes: str | None,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Play a trace on a configuration: the router's own decisions, in virtual time, without a fleet or a server.

    The same trace gives the same bytes. A trace with a mistake is refused as a whole, and then nothing is written.
    """
    from vibey.settings import load

    if (source is None) != from_ledger:
        raise click.UsageError("name one source: --trace FILE or --from-ledger")
    if save_trace is not None and not from_ledger:
        raise click.UsageError("--save-trace goes with --from-ledger")
    if since > LONGEST_SECONDS:
        raise click.UsageError("--since goes back ten years at most")
    settings = load(chosen) if changes is None else _changed(chosen, changes)
    if plot is not None:
        from vibey.simulate.plot import check

        check(plot)
    with interruptible():
        trace = _past(settings, since, save_trace) if source is None else _read(source, settings, quiet=as_json)
        report = _played(settings, trace, out, quiet=as_json, drawn=plot is not None)
        if plot is not None:
            from vibey.simulate.plot import draw

            draw(report, plot)
    told = report.to_json()
    if as_json:
        output.print_json(told)
    else:
        _show(told, settings)


def _changed(chosen: Path | None, changes: str) -> Settings:
    from vibey.settings import load
    from vibey.settings.source import read
    from vibey.simulate.whatif import changed

    return changed(load(chosen), read(chosen, os.environ), changes, os.environ)


def _read(source: Path, settings: Settings, *, quiet: bool) -> Trace:
    from vibey.simulate.files import read

    with _bar("reading", source.stat().st_size, LARGE_BYTES, quiet=quiet) as advance:
        return read(source, settings, advance)


def _past(settings: Settings, since: float, save_trace: Path | None) -> Trace:
    """What happened on the installation, and in a file if it is wanted."""
    from vibey.services.history import history_of
    from vibey.simulate.files import written
    from vibey.simulate.trace import parse

    with session.installation() as installation:
        past = history_of(installation, since, settings)
    if save_trace is not None:
        with written(save_trace) as file:
            file.writelines(past.lines)
    if past.left_out:
        output.note(
            f"vibey: {output.many(past.left_out, 'job')} left out: cancelled, of another pool, or unservable now"
        )
    return parse(past.lines, "the recorded past", settings.engine, settings.capabilities)


def _played(settings: Settings, trace: Trace, out: Path | None, *, quiet: bool, drawn: bool) -> Report:
    """Play the trace with a bar on a terminal, and keep its decisions if they are wanted."""
    from vibey.simulate.files import written
    from vibey.simulate.run import simulate as played

    with nullcontext() if out is None else written(out) as file:
        sink = None if file is None else file.write
        with _bar("simulating", trace.jobs, LONG_JOBS, quiet=quiet) as advance:

            def arrived(jobs: int) -> None:
                if jobs % STEP_JOBS == 0:
                    advance(STEP_JOBS)

            return played(settings, trace, sink, arrived, keeps_moments=drawn)


@contextmanager
def _bar(what: str, total: int, least: int, *, quiet: bool) -> Iterator[Callable[[int], object]]:
    """A bar on standard error, if that is a terminal and there is much to do; yields what advances it."""
    from rich.progress import Progress

    screen = output.console(stderr=True)
    hidden = quiet or total < least or not screen.is_terminal
    with Progress(console=screen, transient=True, disable=hidden) as bars:
        task = bars.add_task(what, total=total)
        yield (lambda _: None) if hidden else (lambda count: bars.advance(task, count))


def _show(told: Mapping[str, Any], settings: Settings) -> None:
    screen = output.console()
    columns = (
        Column("ENGINE"), Column("TIER"), Column("PICKS", right=True), Column("SHARE", right=True),
        Column("EXPECTED", right=True), Column("BUSY", right=True), Column("REMARK", wide=True),
    )  # fmt: skip
    rows = [
        (
            each["name"],
            settings.engine[each["name"]].tier,
            f"{each['picks']:,}",
            output.percent(each["share"]),
            output.percent(each["expected_share"]),
            output.percent(each["busy"]),
            each["remark"],
        )
        for each in told["engines"]
    ]
    screen.print(output.table(columns, rows))
    screen.print()
    for line in lines(told):
        screen.print(output.plain(line))


def lines(told: Mapping[str, Any]) -> Iterator[str]:
    """The summary below the table, for people."""
    jobs, waits = told["jobs"], told["waits"]
    yield f"jobs       {jobs['succeeded']:,} succeeded, {jobs['failed']:,} failed, {jobs['queued']:,} left queued"
    for reason, count in jobs["reasons"].items():
        yield f"           {count:,} left queued: {reason}"
    yield "waits      " + ", ".join(f"{name} {output.lasting(waits[name])}" for name in ("p50", "p95", "max"))
    yield f"paid       {output.many(told['overflows'], 'overflow')}, {output.many(told['fallbacks'], 'fallback')}"
    yield from _cap(told["cap"])
    yield f"makespan   {output.lasting(told['makespan'])}, {output.many(told['decisions'], 'decision')}"


def _cap(cap: Mapping[str, Any]) -> Iterator[str]:
    """Units used of the cap: by day and purse while those are few, else all at once; and paid runs that took none."""
    days, limit = cap["days"], cap["limit"]
    if cap["outside"]:
        yield f"outside    {output.many(cap['outside'], 'paid run')} took no unit of the cap"
    if len(days) <= MOST_DAYS:
        for day in days:
            yield f"cap        day {day['day']}: {day['used']:,} of {limit:,} units, {day['purse']}"
        return
    spent = sum(day["used"] >= limit for day in days)
    share = f"spent in {spent:,} of {len(days):,} days by purse"
    yield f"cap        {cap['used']:,} units, {limit:,} a day at most; {share}"
