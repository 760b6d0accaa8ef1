"""`vibey engine`: what a person does to one engine."""

from __future__ import annotations

import click

from vibey.cli import session
from vibey.cli.command import Command, Group, json_option, seconds
from vibey.cli.output import clock, print_json


@click.group(
    cls=Group,
    examples=("vibey engine pause ollama", "vibey engine reset claude", "vibey engine prefer ollama 2 --for 4h"),
)
def engine() -> None:
    """Pause, resume or reset one engine; prefer or demote it for a while."""


@engine.command(cls=Command, examples=("vibey engine reset claude",))
@click.argument("name")
@json_option
def reset(name: str, *, as_json: bool) -> None:
    """Close the circuit of engine NAME, and forget what else keeps it out; its account's other engines included."""
    from vibey.services import control

    with session.installation() as installation:
        control.reset_engine(installation, name)
    _tell(name, "reset", as_json=as_json)


@engine.command(cls=Command, examples=("vibey engine pause ollama",))
@click.argument("name")
@json_option
def pause(name: str, *, as_json: bool) -> None:
    """Grant engine NAME no further run; those at work go on to their end."""
    from vibey.services import control

    with session.installation() as installation:
        control.pause_engine(installation, name, paused=True)
    _tell(name, "paused", as_json=as_json)


@engine.command(cls=Command, examples=("vibey engine resume ollama",))
@click.argument("name")
@json_option
def resume(name: str, *, as_json: bool) -> None:
    """Let engine NAME be picked again after a pause."""
    from vibey.services import control

    with session.installation() as installation:
        control.pause_engine(installation, name, paused=False)
    _tell(name, "resumed", as_json=as_json)


@engine.command(
    cls=Command,
    examples=(
        "vibey engine prefer ollama 2 --for 4h    twice its weight until then",
        "vibey engine prefer claude 0.1 --for 1d --why 'month end'",
        "vibey engine prefer claude 1             its own weight again",
    ),
)
@click.argument("name")
@click.argument("factor")
@click.option("--for", "length", default="4h", show_default=True, callback=seconds, help="How long it holds.")
@click.option("--why", default="", help="A note for whoever looks at it.")
@json_option
def prefer(name: str, factor: str, length: float, why: str, *, as_json: bool) -> None:
    """Let the weight of NAME, an engine or a pool within a pool, take FACTOR for a while; 1 takes that back.

    It moves shares, and tiers where they follow from weights; the order of an ordered pool stands.
    """
    from vibey.services import adjust

    with session.installation() as installation:
        now = adjust.prefer(installation, name, factor, length, why)
    if as_json:
        print_json(now)
    elif now["until"] is None:
        click.echo(f"{name}: its own weight again")
    else:
        click.echo(f"{name}: weight × {now['factor']:g} until {clock(now['until'])} UTC")


@engine.command(cls=Command, examples=("vibey engine demote claude --for 2h",))
@click.argument("name")
@click.option("--for", "length", default="1h", show_default=True, callback=seconds, help="How long it holds.")
@json_option
def demote(name: str, length: float, *, as_json: bool) -> None:
    """Let engine NAME serve after all others of its pool for a while, as when its quota is nearly spent."""
    from vibey.services import adjust

    with session.installation() as installation:
        until = adjust.demote(installation, name, length)
    if as_json:
        print_json({"engine": name, "done": "demoted", "demoted_until": until})
    else:
        click.echo(f"engine {name}: demoted until {clock(until)} UTC")


@engine.command(cls=Command, examples=("vibey engine restore claude",))
@click.argument("name")
@json_option
def restore(name: str, *, as_json: bool) -> None:
    """Let engine NAME serve in its place again after a demotion."""
    from vibey.services import adjust

    with session.installation() as installation:
        adjust.restore(installation, name)
    _tell(name, "restored", as_json=as_json)


def _tell(name: str, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"engine": name, "done": done})
    else:
        click.echo(f"engine {name}: {done}")
