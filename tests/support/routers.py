"""Routers as processes of their own, for tests of what several of them, or a killed one, do to each other."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from tests.support import warm
from vibey.services.installation import Installation
from vibey.services.route import run_pass
from vibey.settings import Source, settings_of
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path


class Router:
    """A process that makes one routing pass of `main` each time it is asked, and returns how many runs it granted."""

    def __init__(self, tables: dict[str, Any], folder: Path, *, dies_at: int = 0) -> None:
        """Start it on an installation's settings; with `dies_at` it kills itself before that statement of its life."""
        self._connection, theirs = warm.context.Pipe()
        self._process = warm.context.Process(target=_serve, args=(theirs, tables, folder, dies_at))
        self._process.start()
        theirs.close()
        self.answer()

    def ask(self) -> None:
        """Have it make a pass, without waiting."""
        self._connection.send("route")

    def answer(self) -> int | None:
        """How many runs its pass granted; None when it is dead."""
        try:
            return int(self._connection.recv())
        except EOFError:
            return None

    def close(self) -> None:
        """End it."""
        self._connection.close()
        self._process.join()
        self._process.close()


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


def _serve(connection: Connection, tables: dict[str, Any], folder: Path, dies_at: int) -> None:
    installation = Installation.open(settings_of(Source(None, folder, tables), {}))
    if dies_at:
        _dying_at(dies_at)
    connection.send(0)
    try:
        while connection.recv():
            passed = run_pass(installation, "main")
            connection.send(len(passed.granted) if passed else 0)
    except EOFError:
        installation.close()
