"""`vibey demo`: the product at work on this machine, with real servers, workers and jobs."""

from __future__ import annotations

from pathlib import Path

import click

from vibey.cli.command import Command, json_option
from vibey.cli.failures import Interrupted
from vibey.cli.interrupts import interruptible
from vibey.cli.output import print_json

DEFAULT_DIRECTORY = Path(".vibey") / "demo"
DEFAULT_JOBS = 40


@click.command(
    cls=Command,
    examples=(
        "vibey demo                           forty jobs, then a look around in what they left",
        "vibey demo --jobs 8 --no-keep        a short one that leaves nothing behind",
        "vibey demo --json 2> progress        for a program: progress on standard error, one object at the end",
    ),
)
@click.option(
    "--jobs",
    "count",
    type=click.IntRange(1, 1000),
    default=DEFAULT_JOBS,
    show_default=True,
    help="How many jobs to run.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    help="The folder the demo keeps everything in.",
)
@click.option(
    "--keep/--no-keep",
    default=True,
    show_default=True,
    help="Leave data and servers to look around in, or remove them after a success.",
)
@json_option
@click.pass_context
def demo(context: click.Context, *, as_json: bool, count: int, directory: Path, keep: bool) -> None:
    """See the router at work, with no engine or account of your own.

    Starts Postgres and a Redis-compatible server in a folder of its own, real workers and beat, and sends small BUILD
    jobs to four engines, each a program that clones, changes, builds, tests and commits. Local slots fill, jobs are
    held, a few overflow to paid engines until the day's cap stops them, and an audit checks that every invariant held.
    Nothing else on this machine is touched. Needs git. Takes about half a minute. Exit 1 when a job did not succeed,
    the time was up, or the audit found a violation.
    """
    try:
        with interruptible():
            is_good = _run(directory.absolute(), count, as_json=as_json, keep=keep)
    except KeyboardInterrupt:
        raise Interrupted("the demo's workers and beat are stopped") from None
    context.exit(0 if is_good else 1)


def _run(directory: Path, count: int, *, as_json: bool, keep: bool) -> bool:
    """Run the demo and print its result; whether every job succeeded."""
    from rich.console import Console

    from vibey.demo import report
    from vibey.demo.conduct import conduct
    from vibey.demo.folder import Folder, require_git
    from vibey.demo.screen import Screen

    require_git()
    folder = Folder(directory)
    with folder.held(), Screen.opened() as screen:
        finished = conduct(folder, count, screen)
        keep = keep or not finished.is_good
        if not keep:
            screen.step("removing the demo's folder")
            folder.remove()
    if as_json:
        print_json(report.as_json(finished, folder))
    else:
        report.print_report(Console(highlight=False), finished, folder, kept=keep)
    return finished.is_good
