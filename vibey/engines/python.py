"""Kind `python`: a dotted callable in a supervised process; `vibey.engines.calling` is its contract.

`ChildProgram` is what it is made of: a module of ours, run in a fresh interpreter with the worker's import path, which
imports an object of the operator's and leaves a report.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vibey.domain.errors import InvalidInput
from vibey.domain.outcome import Failure, FailureClass, Outcome, one_line
from vibey.engines.contract import Context, Description, EngineConfig, Exit, Health, Job, RunSteps
from vibey.engines.environment import allowed, check_extras, secrets_in
from vibey.engines.handover import Handover, LastLine, outcome_of
from vibey.engines.ours import import_path, program
from vibey.engines.results import Report

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHECK_SECONDS = 25
_MODULE = "vibey.engines.pycall"


@dataclass(frozen=True, slots=True)
class ChildProgram:
    """A module of ours with the `pkg.module:name` it works on, which the engine's `key` says.

    Its processes have the allow-listed environment, the import path and `environment`.
    """

    config: EngineConfig
    key: str
    module: str
    dotted: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        """What its processes see beside the allow-list."""
        return {**import_path(), **self.environment}

    def check(self) -> Health:
        """Whether the object can be imported, tried in a process of its own: an import may have effects."""
        table = f"engine.{self.config.name}"
        fix = f"correct {table}.{self.key}, install the package it is in, or name the variables it needs in {table}.env"
        try:
            tried = subprocess.run(
                program(self.module, "--check", self.dotted),
                env={**allowed(os.environ, self.config.env), **self.variables()},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_CHECK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            detail = f"importing {self.dotted}: not done within {_CHECK_SECONDS} s"
            return Health(installed=True, late=True, detail=detail, fix="see what its module does when it is imported")
        if tried.returncode == 0:
            return Health(installed=True, version=sys.version.split()[0], detail=self.dotted)
        last = (tried.stdout.strip() or tried.stderr.strip() or f"exit {tried.returncode}").splitlines()[-1]
        return Health(installed=False, detail=one_line(last), fix=fix)

    def run(self, job: Job, context: Context) -> RunSteps:
        """Have it do the job, in a child process."""
        handover = Handover.prepare(self.config, job, context.directory)
        handover.environment.update(self.variables())
        handover = replace(handover, secrets=(*handover.secrets, *secrets_in(self.environment)))
        process = handover.spawn(context, program(self.module, self.dotted))
        last = LastLine()
        for line in process.lines():
            progress = last.take(line)
            if progress is not None:
                yield progress
        return self._outcome(process.wait(), last.text, handover)

    def _outcome(self, ending: Exit, last_line: str, handover: Handover) -> Outcome:
        report = handover.report()
        if ending.code == 0 and ending.stopped is None and report == Report() and not handover.result_file.exists():
            return Failure(FailureClass.WORK, f"{self.dotted} ended its process without returning")
        return outcome_of(ending, self.dotted, last_line, report)


class PythonEngine:
    """An adapter for a Python callable. Every run has a fresh interpreter with the worker's import path."""

    def __init__(self, config: EngineConfig) -> None:
        if not config.callable or ":" not in config.callable:
            raise InvalidInput(f"engine.{config.name}.callable", config.callable, "pkg.module:function")
        check_extras(config.name, config.env)
        self._config = config
        self._program = ChildProgram(config, "callable", _MODULE, config.callable)

    def describe(self) -> Description:
        """What the operator declared."""
        return Description.declared(self._config)

    def doctor(self) -> Health:
        """Whether the callable can be imported."""
        return self._program.check()

    def run(self, job: Job, context: Context) -> RunSteps:
        """Call it, in a child process."""
        return self._program.run(job, context)
