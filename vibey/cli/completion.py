"""`vibey completion`: let the shell complete commands and options."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from vibey.cli.command import Command

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_VIBEY_COMPLETE"


@click.command(
    cls=Command,
    examples=(
        "vibey completion bash > ~/.local/share/bash-completion/completions/vibey",
        "vibey completion zsh > ~/.zfunc/_vibey      with fpath+=~/.zfunc before compinit in ~/.zshrc",
        "vibey completion fish > ~/.config/fish/completions/vibey.fish",
        'eval "$(vibey completion bash)"             for this shell alone',
    ),
)
@click.argument("shell", required=False, type=click.Choice(SHELLS))
def completion(shell: str | None) -> None:
    """Print a script with which SHELL completes Vibey's commands and options; default: the shell that $SHELL names."""
    from vibey.cli.main import cli

    chosen = shell or Path(os.environ.get("SHELL", "")).name
    completer = get_completion_class(chosen) if chosen in SHELLS else None
    if completer is None:
        raise click.UsageError(f"name a shell: {', '.join(SHELLS)}")
    # The script itself, without click's own check of bash's version, which starts a bash.
    script = completer(cli, {}, "vibey", VARIABLE)
    click.echo(script.source_template % script.source_vars())
