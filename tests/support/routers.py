"""Routers as processes of their own, for tests of what several of them, or a killed one, do to each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibey.services.installation import Installation
from vibey.services.route import run_pass
from vibey.settings import Source, settings_of
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]


class Router:
    """A process that makes one routing pass of `main` for every line it is sent, and says how many it granted."""

    def __init__(self, tables: dict[str, Any], folder: Path, *, dies_at: int = 0) -> None:
        """Start it on an installation's settings; with `dies_at` it kills itself before that statement of its life."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.routers", json.dumps(tables), str(folder), str(dies_at)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.answer()

    def ask(self) -> None:
        """Have it make a pass, without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write("route\n")
        self._process.stdin.flush()

    def answer(self) -> int | None:
        """How many runs its pass granted; None when it is dead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return int(line) if line else None

    def close(self) -> int:
        """End it, and return how it ended."""
        self._process.communicate()
        return self._process.returncode


def _dying_at(number: int) -> None:
    """Have this process killed, as by `kill -9`, right before it sends its n-th statement."""
    sent = Statement._sent  # noqa: SLF001  the one place every statement passes
    count = 0

    def counted(self: Statement, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return sent(self, *arguments)

    Statement._sent = counted  # type: ignore[method-assign]  # noqa: SLF001


def _main(arguments: Sequence[str]) -> None:
    tables, folder, dies_at = json.loads(arguments[0]), Path(arguments[1]), int(arguments[2])
    installation = Installation.open(settings_of(Source(None, folder, tables), {}))
    if dies_at:
        _dying_at(dies_at)
    print(0, flush=True)  # noqa: T201  the answer its starter waits for
    for _ in sys.stdin:
        passed = run_pass(installation, "main")
        print(len(passed.granted) if passed else 0, flush=True)  # noqa: T201


if __name__ == "__main__":
    _main(sys.argv[1:])
