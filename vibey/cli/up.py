"""`vibey up`: everything of an installation on this machine, started and watched."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output, session
from vibey.cli.command import Command, json_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.services.apply import Plan
    from vibey.services.doctor import Check
    from vibey.services.login import Pages
    from vibey.services.machine import Up
    from vibey.settings import Settings

LOOK_SECONDS = 1.0
MARKS = {"ok": "·", "warn": "!", "fail": "x"}


@click.command(
    cls=Command,
    examples=(
        "vibey up                 in the foreground; Ctrl-C stops everything",
        "vibey up --detach        return when the workers are ready",
        "vibey up --apply         apply the configuration where it differs",
        "vibey up --no-flower     without Flower's web page",
        "vibey up --install       write a systemd unit, for a start with the machine",
    ),
)
@click.option("-d", "--detach", is_flag=True, help="Return when everything is up.")
@click.option("--apply", "applies", is_flag=True, help="Apply the configuration where it differs, without asking.")
@click.option("--no-flower", is_flag=True, help="Leave Flower out.")
@click.option("--install", is_flag=True, help="Write a systemd unit that starts this at boot; start nothing now.")
@json_option
def up(*, detach: bool, applies: bool, no_flower: bool, install: bool, as_json: bool) -> None:
    """Start everything on this machine, and keep it running.

    Starts Postgres and a Redis-compatible server unless the configuration names some, migrates the database, checks
    services and engines, and runs a control worker, a build worker, beat and Flower; one that dies is started again.
    A first start applies the configuration; a later one shows what differs from what is in force and, at a terminal,
    asks whether to apply it. Repeating it is harmless. In the foreground, Ctrl-C takes everything down again.

    With --install, root gets a unit of the system that runs as the owner of the installation, anybody else one of their
    user manager; the commands that enable it are printed.
    """
    from vibey.services import machine

    if install:
        _install(as_json=as_json)
        return
    if as_json and not detach:
        raise click.UsageError("--json goes with --detach")
    chosen = session.settings()
    with _ending() as ended:
        agree = _agree(applies=applies, as_json=as_json)
        steps = machine.Steps(_step(as_json=as_json), _checked(as_json=as_json), ended.wait, agree)
        done = machine.up(chosen, steps, with_flower=not no_flower)
        if as_json:
            output.print_json(_as_json(done))
        else:
            _report(done)
        if not detach and done.started:
            _watch(chosen, ended)


def _install(*, as_json: bool) -> None:
    from vibey.services import machine, unit

    chosen = session.settings()
    made = unit.install(chosen, os.environ)
    running = bool(machine.processes(chosen))
    commands = [*(["vibey down"] if running else []), *made.commands]
    if as_json:
        output.print_json({"unit": str(made.path), "user": made.user, "commands": commands, "missing": made.missing})
        return
    click.echo(f"wrote {made.path}, which runs as {made.user}")
    if made.missing:
        click.echo(f"not in it, as values may be secret: {', '.join(made.missing)}; add them: systemctl edit")
    click.echo("put it in force:")
    for line in commands:
        click.echo(f"  {line}")


@contextmanager
def _ending() -> Iterator[threading.Event]:
    """An event that never comes by itself; TERM and HUP interrupt like Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield threading.Event()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _step(*, as_json: bool) -> Any:  # noqa: ANN401  what machine.Steps takes
    return lambda words: output.note(words) if as_json else click.echo(words)


def _checked(*, as_json: bool) -> Any:  # noqa: ANN401  what machine.Steps takes
    def tell(check: Check) -> None:
        if as_json:
            output.note(output.plain(f"  {MARKS[check.state]} {check.name}: {check.detail}; {check.fix}".rstrip("; ")))
        else:
            output.check_line(f"  {MARKS[check.state]}", check.state, f"{check.name}: {check.detail}", check.fix)

    return tell


def _agree(*, applies: bool, as_json: bool) -> Any:  # noqa: ANN401  what machine.Steps takes
    """What asks whether a difference from what is in force is to be applied: --apply says so, else a person does."""

    def agree(found: Plan) -> bool:
        from vibey.services.apply import DIFFERS

        say = output.note if as_json else click.echo
        say(f"{DIFFERS} (generation {found.generation}):")
        for line in (*found.changes, *(f"* {effect}" for effect in found.effects)):
            say(output.plain(f"  {line}"))
        if applies:
            return True
        if not as_json and sys.stdin.isatty() and click.confirm("Apply this?", default=False):
            return True
        say(f"generation {found.generation} stays in force; to apply the file: vibey apply")
        return False

    return agree


def _as_json(done: Up) -> dict[str, Any]:
    processes = [{"name": each.name, "state": each.state, "pid": each.pid} for each in done.processes]
    return {
        "running": True,
        "started": done.started,
        "processes": processes,
        "flower": done.flower and done.flower.address,
        "flower_login": done.flower and done.flower.login,
        "metrics": done.metrics,
    }


def _report(done: Up) -> None:
    names = ", ".join(f"{each.name} (pid {each.pid})" for each in done.processes)
    click.echo(f"{'up' if done.started else 'running already'}: {names}")
    if done.flower:
        click.echo(f"Flower: {_where(done.flower)}")
    if done.metrics:
        click.echo(f"metrics: {done.metrics}")
    click.echo("look: vibey status --watch; stop: vibey down")


def _where(found: Pages) -> str:
    """Where the pages are. The link that logs in is printed to a person alone, not to what may be a log."""
    if found.link and sys.stdout.isatty():
        return f"{found.link}\n  the link logs a browser in; again: vibey pages"
    return found.words


def _watch(chosen: Settings, ended: threading.Event) -> None:
    """Show a live line until interrupted, then take everything down; leave when somebody else did."""
    from vibey.services import machine
    from vibey.services.installation import Installation

    installation = Installation.open(chosen)
    screen = output.console()
    try:
        click.echo("Ctrl-C stops everything")
        if screen.is_terminal:
            with screen.status("") as live:
                while machine.processes(chosen):
                    live.update(_line(installation))
                    ended.wait(LOOK_SECONDS)
        else:
            while machine.processes(chosen):
                ended.wait(LOOK_SECONDS)
        click.echo("stopped by somebody else")
    except KeyboardInterrupt:
        machine.down(chosen, click.echo)
        click.echo("down")
    finally:
        installation.close()


def _line(installation: Any) -> str:  # noqa: ANN401  an installation
    from vibey.domain.errors import VibeyError
    from vibey.services import views

    try:
        now = views.status(installation)
    except VibeyError as error:
        return str(error)
    engines = "  ".join(f"{each['name']} {each['in_use']}/{each['slots']}" for each in now["engines"])
    return f"queued {now['queued']:,}  running {now['running']}  {engines}"
