"""Shell: a command as a person can paste it, whatever the values in it are.

Names, models and texts come from users, files and servers; one that held `$(...)` unquoted would be run by the shell it
is pasted into. Every command that a message names with such a value in it is made here.
"""

from __future__ import annotations

import shlex


def command(fixed: str, *values: str, **options: str) -> str:
    """The command `fixed` with options (`--name=value`) and values, each quoted for a POSIX shell.

    A value that begins with a dash comes after `--`, so that no program takes it for an option.
    """
    named = [shlex.quote(f"--{name.replace('_', '-')}={value}") for name, value in options.items()]
    guard = ["--"] if any(value.startswith("-") for value in values) else []
    return " ".join([fixed, *named, *guard, *map(shlex.quote, values)])
