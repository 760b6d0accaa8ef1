"""The command line as a program sees it: arguments in; exit code, output and errors out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from vibey.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Said:
    """What a command left with."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output, which holds nothing else."""
        assert self.out.count("\n") == 1, self
        value: dict[str, Any] = json.loads(self.out)
        return value

    @property
    def complaint(self) -> str:
        """The one line on standard error; nothing was printed besides."""
        assert self.out == "", self
        assert self.err.count("\n") == 1, self
        assert self.err.startswith("vibey: "), self
        return self.err.strip()


class Cli:
    """`vibey` with a configuration file."""

    def __init__(self, config: Path | None = None, **environment: str) -> None:
        """Remember the file, and variables set for every command."""
        self._environment: dict[str, str | None] = {
            "VIBEY_CONFIG": str(config) if config else None,
            "VIBEY_DEBUG": None,
            **environment,
        }

    def __call__(self, *arguments: object, stdin: str | bytes | None = None, **environment: str) -> Said:
        """Run a command to its end."""
        values = {**self._environment, **environment}
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin, env=values)
        return Said(result.exit_code, result.stdout, result.stderr)


def write_config(path: Path, services: Mapping[str, object], more: str = "") -> Path:
    """Write a configuration with these services and further text; returns its path."""
    lines = ["[services]", *(f"{key} = {json.dumps(value)}" for key, value in services.items())]
    path.write_text("\n".join([*lines, more]), encoding="utf-8")
    return path
