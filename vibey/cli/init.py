"""`vibey init`: write a starter configuration from the engines found on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import click

from vibey.cli.command import Command, json_option
from vibey.cli.output import note, plain, print_json


@click.command(
    cls=Command,
    examples=(
        "vibey init                       write ./vibey.toml",
        "vibey --config team.toml init    write it elsewhere",
        "vibey init --force               replace the one that is there",
    ),
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@json_option
def init(*, force: bool, as_json: bool) -> None:
    """Write a starter vibey.toml for the engines found here.

    Looks for model servers on the usual loopback ports (Ollama, llama.cpp, vLLM) and for coding clients on PATH. What
    this version cannot run yet is written as a comment.
    """
    from vibey.engines.registry import known_kinds
    from vibey.services import starter
    from vibey.services.discovery import discover

    path = Path(os.environ.get("VIBEY_CONFIG", "").strip() or "vibey.toml").absolute()
    found, kinds = discover(), known_kinds()
    starter.write(path, found, kinds, force=force)
    runnable = [engine for engine in found if starter.is_usable(engine, kinds)]
    if as_json:
        engines = [
            {
                "name": each.name,
                "kind": each.kind,
                "where": each.where,
                "model": each.model,
                "runnable": each in runnable,
            }
            for each in found
        ]
        print_json({"path": str(path), "engines": engines})
        return
    click.echo(f"wrote {path}")
    for engine in found:
        lacking = "has no model yet" if engine.kind in kinds else f"kind {engine.kind} comes in a later version"
        remark = "" if engine in runnable else f" ({lacking}: written as a comment)"
        click.echo(f"  {engine.name:<10} {plain(engine.where)}{remark}")
    if runnable:
        click.echo("next: vibey up")
    else:
        note("no engine that this version can run was found; any program can be one:")
        note(f"  make the [engine.agent] block of {path} yours, then run: vibey up")
