"""`vibey engine`: what a person does to one engine."""

from __future__ import annotations

import click

from vibey.cli import session
from vibey.cli.command import Command, Group, json_option
from vibey.cli.output import print_json


@click.group(cls=Group, examples=("vibey engine pause ollama", "vibey engine reset claude"))
def engine() -> None:
    """Pause, resume or reset one engine."""


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


def _tell(name: str, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"engine": name, "done": done})
    else:
        click.echo(f"engine {name}: {done}")
