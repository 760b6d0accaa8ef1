"""Routed: any engine with an `app` also runs calls of that Celery app's tasks; kind `celery` runs nothing else.

The essay is in `vibey.routed`. Here is the worker's side, which knows of Celery no more than that a program of ours
does the work: `vibey.routed.child` carries out one call in a supervised process, and `vibey.routed.tell` tells a result
backend of ends that no such process could tell it of.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from vibey.domain.call import CALL, ROUTED_TASKS
from vibey.domain.errors import InvalidInput, VibeyError
from vibey.domain.outcome import Failure, FailureClass
from vibey.engines.contract import Context, Description, Engine, EngineConfig, Health, Job, Progress, RunSteps
from vibey.engines.environment import allowed, check_extras
from vibey.engines.ours import program
from vibey.engines.python import ChildProgram

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

CHILD, TELLER = "vibey.routed.child", "vibey.routed.tell"
CONFIG_VARIABLE = "VIBEY_CONFIG"
SERVICE_VARIABLES = (CONFIG_VARIABLE, "VIBEY_DATABASE_URL", "VIBEY_REDIS_URL", "VIBEY_DATA_DIR")
TELL_SECONDS = 45


class CeleryEngine:
    """Kind `celery`: slots for routed tasks alone. A job enqueued before there was such an engine is handed off."""

    def __init__(self, config: EngineConfig) -> None:
        if not config.app:
            raise InvalidInput(f"engine.{config.name}.app", config.app, "a Celery app written pkg.module:app")
        self._config = config

    def describe(self) -> Description:
        """What the operator declared."""
        return Description.declared(self._config)

    def doctor(self) -> Health:
        """Well: whether its app can be imported, `RoutedTasks` finds out."""
        return Health(installed=True)

    def run(self, job: Job, context: Context) -> RunSteps:  # noqa: ARG002  the contract's
        """Not a call of a task: somebody else's."""
        yield from _nothing()
        return Failure(FailureClass.HANDOFF, f"engine {self._config.name} runs only tasks of {self._config.app}")


class RoutedTasks:
    """An engine that runs calls of a Celery app's tasks beside its own jobs, in the same slots."""

    def __init__(self, engine: Engine, config: EngineConfig, app: str) -> None:
        check_extras(config.name, config.env)
        self._engine = engine
        self._program = _program(config, app, CHILD)

    def describe(self) -> Description:
        """The engine's own, with one capability more."""
        described = self._engine.describe()
        return replace(described, capabilities=described.capabilities | {ROUTED_TASKS})

    def doctor(self) -> Health:
        """The engine's own, unless the app cannot be imported."""
        health = self._engine.doctor()
        if not health.good:
            return health
        found = self._program.check()
        return health if found.good else found

    def run(self, job: Job, context: Context) -> RunSteps:
        """Run the task that the job is a call of, or leave the job to the engine."""
        runner = self._program if CALL in job.payload else self._engine
        return (yield from runner.run(job, context))


def tell(config: EngineConfig, endings: Sequence[dict[str, Any]]) -> list[int]:
    """Have the app of an engine tell its result backend of these ends of jobs; the ids of those that were told.

    Runs a program for at most `TELL_SECONDS`; VibeyError, with its last words, when it failed.
    """
    teller = _program(config, str(config.app), TELLER)
    with TemporaryDirectory(prefix="vibey-tell-") as folder:
        asked, answer = Path(folder, "endings.json"), Path(folder, "told.json")
        asked.write_text(json.dumps(list(endings)), encoding="utf-8")
        files = {"VIBEY_JOB_FILE": str(asked), "VIBEY_RESULT_FILE": str(answer)}
        try:
            done = subprocess.run(
                program(TELLER, teller.dotted),
                cwd=folder,
                env={**allowed(os.environ, config.env), **teller.variables(), **files},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TELL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise VibeyError(f"{config.app} did not tell its result backend within {TELL_SECONDS} s") from error
        if not answer.exists():
            words = (done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}").splitlines()[-1]
            raise VibeyError(f"{config.app} could not tell its result backend: {words}")
        told: list[int] = json.loads(answer.read_text(encoding="utf-8"))["told"]
        return told


def _program(config: EngineConfig, app: str, module: str) -> ChildProgram:
    """A routed task is the operator's own code and a producer: it must find this installation, as its worker does.

    So our services' addresses are no secret to it: a variable the engine names passes even if it holds one.
    """
    passed = {name: os.environ[name] for name in SERVICE_VARIABLES if os.environ.get(name)}
    passed.update({name: os.environ[name] for name in config.env if os.environ.get(name) in passed.values()})
    file = Path(passed.get(CONFIG_VARIABLE, "vibey.toml"))
    if CONFIG_VARIABLE in passed or file.exists():
        passed[CONFIG_VARIABLE] = str(file.absolute())
    return ChildProgram(config, "app", module, app, passed)


def _nothing() -> Generator[Progress]:
    yield from ()
