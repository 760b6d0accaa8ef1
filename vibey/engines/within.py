"""Within: a run's context as its engine and its check see it, with processes that start in the run's tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibey.engines.contract import Context, Log, RunningProcess, StopReason
from vibey.engines.git import ISOLATION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class TreeContext:
    """A run's context, for work in its tree."""

    def __init__(self, context: Context, folder: Path) -> None:
        self._context = context
        self._folder = folder
        self._processes: list[RunningProcess] = []

    @property
    def directory(self) -> Path:
        """The run's own folder, which holds the tree and is no part of it."""
        return self._context.directory

    @property
    def output(self) -> Log:
        """The run's log."""
        return self._context.output

    @property
    def timeout_seconds(self) -> float:
        """How long the run may take in all."""
        return self._context.timeout_seconds

    @property
    def stopped(self) -> StopReason | None:
        """Why the run has to end, once it has to."""
        return self._context.stopped

    def spawn(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        stdin: Path | None = None,
        directory: Path | None = None,
        secrets: Sequence[str] = (),
        is_step: bool = False,
    ) -> RunningProcess:
        """Start a process in the tree; a git that has lost its repository finds none further up."""
        isolated = {**environment, **ISOLATION, "GIT_CEILING_DIRECTORIES": str(self.directory)}
        where = directory or self._folder
        process = self._context.spawn(
            argv, environment=isolated, stdin=stdin, directory=where, secrets=secrets, is_step=is_step
        )
        self._processes.append(process)
        return process

    def end(self) -> None:
        """Have nothing of the work go on: what it left running would write while we read."""
        for process in self._processes:
            process.stop(StopReason.CANCEL, 0.0)
            process.wait()
