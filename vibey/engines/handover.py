"""Handover: how a job reaches the program that does it, and how the program's words come back.

The job is one JSON object, on the program's standard input and in the file `VIBEY_JOB_FILE` names:
`{"job_id", "run_id", "engine", "attempt", "effort", "project", "session", "capabilities", "payload"}`.
`VIBEY_RESULT_FILE` names the file where the program may leave its report (`vibey.engines.results`). Nothing
of the job is in the arguments.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.domain.errors import InvalidInput
from vibey.domain.outcome import Failure, FailureClass, Outcome, one_line
from vibey.engines.contract import Context, EngineConfig, Exit, Job, Progress, RunningProcess
from vibey.engines.environment import allowed
from vibey.engines.exits import failure_of_exit
from vibey.engines.keys import confided
from vibey.engines.results import Report, read_report

if TYPE_CHECKING:
    from pathlib import Path

JOB_FILE = "job.json"
RESULT_FILE = "result.json"
PROGRESS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Handover:
    """One job handed to one program: where it reads, where it answers, and the environment that says so."""

    job_file: Path
    result_file: Path
    environment: dict[str, str]
    secrets: tuple[str, ...]

    @classmethod
    def prepare(cls, config: EngineConfig, job: Job, directory: Path) -> Handover:
        """Write the job into the run's folder."""
        job_file = directory / JOB_FILE
        result_file = directory / RESULT_FILE
        job_file.write_text(json.dumps(job_document(job, config.name)), encoding="utf-8")
        passed = allowed(os.environ, config.env)
        files = {"VIBEY_JOB_FILE": str(job_file), "VIBEY_RESULT_FILE": str(result_file)}
        return cls(job_file, result_file, {**passed, **files}, confided(config))

    def spawn(self, context: Context, argv: tuple[str, ...]) -> RunningProcess:
        """Start the program with the job on its input."""
        return context.spawn(argv, environment=self.environment, stdin=self.job_file, secrets=self.secrets)

    def report(self) -> Report | Failure:
        """The program's own words; a failure of the work if they cannot be understood."""
        try:
            return read_report(self.result_file) or Report()
        except InvalidInput as error:
            return Failure(FailureClass.WORK, one_line(str(error)))


def job_document(job: Job, engine: str) -> dict[str, object]:
    """The job as its program gets it; without the token, which is nobody's business there."""
    return {
        "job_id": job.job_id,
        "run_id": job.run_id,
        "engine": engine,
        "attempt": job.attempt,
        "effort": job.effort.label,
        "project": job.project,
        "session": job.session,
        "capabilities": sorted(job.capabilities),
        "payload": dict(job.payload),
    }


class LastLine:
    """The last line that says something, and a progress report of it at most once a second."""

    def __init__(self) -> None:
        self.text = ""
        self._reported = time.monotonic()

    def take(self, line: str) -> Progress | None:
        """Remember the line; a report when one is due."""
        if not line or line.isspace():
            return None
        self.text = line
        now = time.monotonic()
        if now - self._reported < PROGRESS_SECONDS:
            return None
        self._reported = now
        return Progress(one_line(line))


def outcome_of(ending: Exit, program: str, last_line: str, report: Report | Failure) -> Outcome:
    """What the program declared, else what its exit means; an unusable report spoils a success only."""
    failure = failure_of_exit(ending, program, last_line)
    if isinstance(report, Failure):
        return failure or report
    return report.outcome(failure)
