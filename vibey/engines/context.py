"""RunContext: what a run has at hand, each part made when it is first touched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vibey.domain.outcome import Failure, Outcome
from vibey.engines import orphans
from vibey.engines.contract import Job, RunStopped, StopReason
from vibey.engines.marks import Marks
from vibey.engines.output import OutputLog
from vibey.engines.process import Order, SupervisedProcess
from vibey.engines.stream import masked, masked_line, masked_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from vibey.engines.watch import Limits, Watch

TRACE_VARIABLE = "TRACEPARENT"
LOG_NAME = "output.log"


def run_directory(root: Path, run_id: int) -> Path:
    """The folder of a run below the installation's folder of runs."""
    return root / f"run-{run_id}"


def run_log(root: Path, run_id: int) -> Path:
    """The log of a run; it does not exist if the run never printed or never began."""
    return run_directory(root, run_id) / LOG_NAME


class RunContext:
    """The contract's Context over a watch; `close` ends everything it began."""

    def __init__(self, job: Job, root: Path, watch: Watch, secrets: Callable[[], Sequence[str]] = tuple) -> None:
        self._job = job
        self._known = secrets
        self._root = root
        self._watch = watch
        self._directory: Path | None = None
        self._output: OutputLog | None = None
        self._refused: StopReason | None = None
        self._secrets: tuple[str, ...] = ()
        self._work: list[SupervisedProcess] = []

    @property
    def has_worked(self) -> bool:
        """Whether any process of the engine's was started; one whose program could not be executed was not."""
        return any(process.exit is None or process.exit.errno is None for process in self._work)

    @property
    def limits(self) -> Limits:
        """The limits the run is under."""
        return self._watch.limits

    @property
    def timeout_seconds(self) -> float:
        """How long the run may take in all."""
        return self._watch.limits.timeout_seconds

    @property
    def stopped(self) -> StopReason | None:
        """Why the run has to end, once it has to."""
        return self._watch.stopped

    @property
    def directory(self) -> Path:
        """The run's own folder, for its user only; one left from an earlier database is moved aside."""
        if self._directory is None:
            self._watch.begin()
            self._directory = _fresh(run_directory(self._root.absolute(), self._job.run_id))
        return self._directory

    @property
    def output(self) -> OutputLog:
        """The run's log."""
        if self._output is None:
            self._output = OutputLog(self.directory / LOG_NAME)
        return self._output

    def spawn(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        stdin: Path | None = None,
        directory: Path | None = None,
        secrets: Sequence[str] = (),
        is_step: bool = False,
    ) -> SupervisedProcess:
        """Start a supervised process; RunStopped once the run has to end."""
        job = self._job
        marks = Marks(job.installation, job.job_id, job.run_id, job.token)
        # What one process was told in confidence, a later one of the run may find and print; and so may any with
        # what lies about on the worker's machine.
        self._secrets = tuple(dict.fromkeys((*self._confided(), *secrets)))
        traced = {TRACE_VARIABLE: job.traceparent} if job.traceparent else {}
        order = Order(tuple(argv), {**environment, **traced}, directory or self.directory, stdin, self._secrets)
        log = self.output
        try:
            process = self._watch.start(
                lambda lease_end: SupervisedProcess(order, marks=marks, lease_end=lease_end, log=log)
            )
        except RunStopped as stop:
            self._refused = stop.reason
            raise
        if not is_step:
            self._work.append(process)
        return process

    def masked(self, outcome: Outcome) -> Outcome:
        """The outcome without any secret a process of the run was given or may have found."""
        if isinstance(outcome, Failure):
            return replace(outcome, detail=masked_line(outcome.detail, self._confided()))
        if not outcome.result:
            return outcome
        result = masked_tree(outcome.result, self._confided())
        return replace(outcome, result=result if isinstance(result, dict) else None)

    def hidden(self, text: str) -> str:
        """A text of Vibey's own about the run, without these secrets."""
        return masked(text, self._confided())

    def ended_for(self) -> StopReason | None:
        """Why the run was ended; None when its work ended by itself and the lease is not known to be lost.

        Ask before `close`, which ends what the adapter has left behind, and that is no reason.
        """
        # A process that its adapter stopped, such as a check that took too long, is not the end of the run.
        told = {self._watch.stopped, StopReason.LEASE_LOST}
        reasons = {ending.stopped for ending in self._watch.endings() if ending.stopped in told} | {self._refused}
        if StopReason.LEASE_LOST in reasons or self._watch.stopped is StopReason.LEASE_LOST:
            return StopReason.LEASE_LOST
        return next((reason for reason in StopReason if reason in reasons), None)

    def close(self) -> None:
        """Kill what still lives, what has lost its supervisor included, stop watching, close the log."""
        reason = self.ended_for()
        self._watch.end()
        killed = orphans.end_orphans()
        if self._output is not None:
            if killed:
                self._output.note(f"processes that had left the run were killed: {killed}")
            if reason is not None:
                self._output.note(f"the run was ended: {reason.value}")
            self._output.close()

    def _confided(self) -> tuple[str, ...]:
        return self._secrets or tuple(self._known())


def _fresh(path: Path) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        number = next(n for n in range(1, 1_000_000) if not path.with_name(f"{path.name}.old-{n}").exists())
        path.rename(path.with_name(f"{path.name}.old-{number}"))
        path.mkdir(mode=0o700)
    return path
