"""`vibey status`: the whole at a glance."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option
from vibey.cli.engines import table
from vibey.domain.errors import NothingApplied

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console, Group

    from vibey.services.installation import Installation

WATCH_SECONDS = 1.0
# Of a screen that is lower than this, as many lines are used anyway.
LEAST_HEIGHT = 8


@click.command(
    cls=Command,
    examples=(
        "vibey status                 mode, queue, cap and engines",
        "vibey status --watch         the same, live",
        "vibey status -p website      with that project's mode and cap",
    ),
)
@click.option("-p", "--project", default="default", show_default=True, help="Whose mode and cap to show.")
@click.option("-w", "--watch", is_flag=True, help="Keep showing it; Ctrl-C ends.")
@json_option
def status(*, project: str, watch: bool, as_json: bool) -> None:
    """Show mode, queue, today's cap, engines, workers and the size of the database.

    With --watch, and more engines than the terminal has lines for, those that need a look come first: kept out by
    something, then full, then at work; how many are not shown is said below them.
    """
    from vibey.services import views
    from vibey.services.login import running_pages

    if watch and as_json:
        raise click.UsageError("--watch is for people; for a program, call vibey status --json again and again")
    with session.installation() as installation:
        if watch:
            _watch(installation, project)
            return
        found = views.status(installation, project)
    if as_json:
        output.print_json(found)
    else:
        here = running_pages(session.settings())
        output.console().print(_page(found, pages=here.words if here else ""))


def _configuration(found: Mapping[str, Any]) -> str:
    """Which configuration is in force, and whether the file says something else."""
    if found["generation"] is None:
        return str(NothingApplied())
    in_force = f"generation {found['generation']} is in force"
    return f"{in_force}; vibey.toml differs from it: run vibey apply --check" if found["file_differs"] else in_force


def _problems(found: Mapping[str, Any]) -> list[str]:
    """Why live workers do not serve some engines."""
    alive = [worker for worker in found["workers"] if worker["alive"]]
    return [f"worker {worker['name']}: {text}" for worker in alive for text in worker["problems"].values()]


def _watch(installation: Installation, project: str) -> None:
    from rich.live import Live

    from vibey.domain.errors import ServiceUnavailable
    from vibey.services import views

    pause = threading.Event()
    screen = output.console()
    if not screen.is_terminal or screen.is_dumb_terminal:
        while True:
            screen.print(_page(views.status(installation, project)))
            screen.print()
            pause.wait(WATCH_SECONDS)
    page = _fitting(screen, views.status(installation, project))
    with Live(page, console=screen, auto_refresh=False, screen=False) as live:
        while True:
            pause.wait(WATCH_SECONDS)
            screen.width = output.screen_width(screen.file)
            try:
                live.update(_fitting(screen, views.status(installation, project)), refresh=True)
            except ServiceUnavailable as error:
                live.update(output.cell(str(error)), refresh=True)


def _fitting(screen: Console, found: Mapping[str, Any]) -> Group:
    """The page with as many engines as the screen has lines for, those that need a look first."""
    room = max(screen.height, LEAST_HEIGHT) - 1
    page = _page(found)
    if len(screen.render_lines(page, pad=False)) <= room:
        return page
    engines = by_trouble(found["engines"])
    for shown in range(min(len(engines), room), 0, -1):
        page = _page({**found, "engines": engines[:shown]}, left_out=len(engines) - shown)
        if len(screen.render_lines(page, pad=False)) <= room:
            return page
    return page


def by_trouble(engines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Engines by how much they need a look: kept out by something, full, at work, and the rest in their order."""

    def rank(engine: Mapping[str, Any]) -> int:
        # What keeps an engine out is both its detail and its remark; other details are nobody's trouble.
        is_kept_out = bool(engine["detail"]) and engine["detail"] == engine["remark"]
        if engine["circuit"] != "closed" or engine["paused"] or (is_kept_out and engine["worker"]):
            return 0
        if not engine["worker"]:
            return 1
        if engine["in_use"] >= engine["slots"]:
            return 2
        return 3 if engine["in_use"] else 4

    return sorted(engines, key=rank)


def _page(found: Mapping[str, Any], left_out: int = 0, pages: str = "") -> Group:
    from rich.console import Group
    from rich.text import Text

    alive = [worker["name"] for worker in found["workers"] if worker["alive"]]
    rows = [
        ("mode", f"{found['mode']} ({found['mode_source']}): {found['mode_reason']}"),
        ("jobs", ", ".join(f"{found[name]:,} {name}" for name in ("queued", "held", "granted", "running"))),
        ("cap", output.cap(found["cap"])),
        *([("outside", words)] if (words := output.outside_cap(found)) else []),
        ("workers", ", ".join(alive) or "none alive; run: vibey up"),
        *(("", problem) for problem in _problems(found)),
        ("config", _configuration(found)),
        ("database", output.database(found["database"])),
        *([("pages", pages)] if pages else []),
    ]
    rest = f"; {output.many(left_out, 'engine')} more: vibey engines" if left_out else ""
    as_of = Text(f"project {found['project']}, as of {output.clock(found['as_of'])} UTC{rest}", style="dim")
    fleet = table(found["engines"]) if found["engines"] else Text("no engine is configured")
    return Group(output.facts(rows), Text(), fleet, Text(), as_of)
