"""`vibey init`: write a starter configuration from the engines found on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vibey.cli import output
from vibey.cli.command import Command, json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vibey.services.discovery import Found


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

    Looks for model servers on the usual loopback ports (Ollama, llama.cpp, vLLM) and for coding clients on PATH
    (claude, codex, opencode, gemini, qwen), and asks each for its version, its login or its models, never for work.
    What lacks only a login is written in full, anything else that cannot work yet as a comment, with what it needs.
    Inside a git repository the clients found may work in clones of it (workspace_roots). Without any engine nothing is
    written, and the exit code is 3.
    """
    from vibey.services import starter
    from vibey.services.discovery import discover, paid_access

    path = Path(os.environ.get("VIBEY_CONFIG", "").strip() or "vibey.toml").absolute()
    if not force:
        starter.require_free(path)
    found = discover(output.slow)
    starter.require_found(path, found)
    repository = starter.enclosing_repository(Path.cwd())
    starter.write(path, found, force=force, repository=repository)
    if as_json:
        keys, subscriptions = paid_access(found)
        output.print_json(
            {
                "path": str(path),
                "engines": [_as_json(each) for each in found],
                "api_keys": keys,
                "subscriptions": subscriptions,
                "paid_daily_cap": starter.paid_daily_cap(found),
            }
        )
        return
    click.echo(f"wrote {path}")
    for engine in found:
        _tell(engine)
    cap = starter.paid_daily_cap(found)
    click.echo(f"found {starter.paid_access_words(found)}: paid_daily_cap = {cap}, and every paid run takes a unit")
    _tell_workspaces(path, found, repository)
    for line in starter.not_found(found):
        click.echo(line)
    ready = sum(engine.is_usable and not starter.what_it_needs(engine) for engine in found)
    click.echo(f"{ready} of {output.many(len(found), 'engine')} can run jobs now")
    if ready:
        click.echo("next: vibey up")
    elif any(engine.is_usable for engine in found):
        click.echo("next: vibey up, once one of them has its login")
    else:
        output.note("no engine that can run jobs was found; any program can be one:")
        output.note(f"  make the [engine.agent] block of {path} yours, then run: vibey up")


def _tell_workspaces(path: Path, found: Sequence[Found], repository: Path | None) -> None:
    from vibey.services.starter import is_coding_client

    names = ", ".join(engine.name for engine in found if is_coding_client(engine) and engine.is_usable)
    if not names:
        return
    if repository is not None:
        click.echo(output.plain(f"jobs with --repo may work in clones of {repository} on: {names}"))
    else:
        click.echo(output.plain(f"for jobs with --repo, name folders in workspace_roots of: {names} (in {path})"))


def _as_json(engine: Found) -> dict[str, Any]:
    from vibey.services.starter import what_it_needs

    health = engine.health
    return {
        "name": engine.name,
        "kind": engine.kind,
        "tier": engine.tier,
        "where": engine.where,
        "model": engine.model,
        "version": health.version,
        "logged_in": health.logged_in,
        "needs": what_it_needs(engine),
        "runnable": engine.is_usable,
    }


def _tell(engine: Found) -> None:
    from vibey.services.starter import what_it_needs

    needed = what_it_needs(engine)
    health = engine.health
    lacking = f"no model at {engine.where}" if engine.kind == "openai" and engine.model is None else ""
    text = ", ".join(word for word in (health.version, health.detail, lacking) if word)
    state = "ok" if not needed else "warn"
    written = "" if engine.is_usable else "written as a comment; "
    output.check_line(f"{state:<4}", state, f"{engine.name}: {text}", written + needed)
