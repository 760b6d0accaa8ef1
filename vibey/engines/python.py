"""Kind `python`: a dotted callable in a supervised process; `vibey.engines.calling` is its contract."""

from __future__ import annotations

import os
import subprocess
import sys

from vibey.domain.errors import InvalidInput
from vibey.domain.outcome import Failure, FailureClass, Outcome, one_line
from vibey.engines.contract import Context, Description, EngineConfig, Exit, Health, Job, RunSteps
from vibey.engines.environment import allowed, check_extras
from vibey.engines.handover import Handover, LastLine, outcome_of
from vibey.engines.ours import import_path, program
from vibey.engines.results import Report

_CHECK_SECONDS = 25
_MODULE = "vibey.engines.pycall"


class PythonEngine:
    """An adapter for a Python callable. Every run has a fresh interpreter with the worker's import path."""

    def __init__(self, config: EngineConfig) -> None:
        if not config.callable or ":" not in config.callable:
            raise InvalidInput(f"engine.{config.name}.callable", config.callable, "pkg.module:function")
        check_extras(config.name, config.env)
        self._config = config
        self._callable = config.callable

    def describe(self) -> Description:
        """What the operator declared."""
        return Description.declared(self._config)

    def doctor(self) -> Health:
        """Whether the callable can be imported, tried in a process of its own: an import may have effects."""
        fix = f"correct engine.{self._config.name}.callable, or install the package it is in"
        try:
            tried = subprocess.run(
                program(_MODULE, "--check", self._callable),
                env={**allowed(os.environ, self._config.env), **import_path()},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_CHECK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            detail = f"importing {self._callable}: not done within {_CHECK_SECONDS} s"
            return Health(installed=True, late=True, detail=detail, fix="see what its module does when it is imported")
        if tried.returncode == 0:
            return Health(installed=True, version=sys.version.split()[0], detail=self._callable)
        last = (tried.stdout.strip() or tried.stderr.strip() or f"exit {tried.returncode}").splitlines()[-1]
        return Health(installed=False, detail=one_line(last), fix=fix)

    def run(self, job: Job, context: Context) -> RunSteps:
        """Call it, in a child process."""
        handover = Handover.prepare(self._config, job, context.directory)
        handover.environment.update(import_path())
        process = handover.spawn(context, program(_MODULE, self._callable))
        last = LastLine()
        for line in process.lines():
            progress = last.take(line)
            if progress is not None:
                yield progress
        return self._outcome(process.wait(), last.text, handover)

    def _outcome(self, ending: Exit, last_line: str, handover: Handover) -> Outcome:
        report = handover.report()
        if ending.code == 0 and ending.stopped is None and report == Report() and not handover.result_file.exists():
            return Failure(FailureClass.WORK, f"{self._callable} ended its process without returning")
        return outcome_of(ending, self._callable, last_line, report)
