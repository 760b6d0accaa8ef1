"""Kind `command`: the operator's program, started without a shell, the job as data on its input.

Arguments may hold `{effort}` (the effort really achieved), `{model}` and `{run_directory}`; `{{name}}` stands
for a literal
`{name}`. Nothing of a job can get among them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from vibey.domain.errors import InvalidInput
from vibey.engines.contract import Context, Description, EngineConfig, Health, Job, RunSteps
from vibey.engines.environment import allowed, check_extras
from vibey.engines.handover import Handover, LastLine, outcome_of
from vibey.engines.process import find_program

if TYPE_CHECKING:
    from vibey.domain.effort import Effort

PLACEHOLDERS = ("effort", "model", "run_directory")
_BRACED = re.compile(r"\{\{([a-z_]+)\}\}|\{([a-z_]+)\}")


class CommandEngine:
    """An adapter for any program."""

    def __init__(self, config: EngineConfig) -> None:
        if not config.argv:
            raise InvalidInput(f"engine.{config.name}.argv", config.argv, "a program and its arguments")
        for argument in (*config.argv, *(extra for extras in config.efforts.values() for extra in extras)):
            _check_placeholders(config.name, argument)
        check_extras(config.name, config.env)
        self._config = config

    def describe(self) -> Description:
        """The efforts and prices the operator declared."""
        return Description.declared(self._config)

    def doctor(self) -> Health:
        """Whether the program is there and executable; it is not started."""
        name = self._config.argv[0]
        found = find_program(name, allowed(os.environ, self._config.env))
        if found is not None:
            return Health(installed=True, detail=found)
        key = f"engine.{self._config.name}.argv"
        if os.path.isabs(name):  # noqa: PTH117
            is_there = os.path.exists(name)  # noqa: PTH110
            detail = f"{name} is not executable" if is_there else f"there is no program {name}"
            return Health(installed=False, detail=detail, fix=f"install it there, or correct the path in {key}")
        return Health(
            installed=False,
            detail=f"{name} is not an executable on the PATH jobs get",
            fix=f"install {name}, or give its absolute path in {key}",
        )

    def run(self, job: Job, context: Context) -> RunSteps:
        """Run the program to its end."""
        config = self._config
        effort = config.achieved(job.effort)
        argv = command_line(config, effort, str(context.directory))
        handover = Handover.prepare(config, job, context.directory)
        process = handover.spawn(context, argv)
        last = LastLine()
        for line in process.lines():
            progress = last.take(line)
            if progress is not None:
                yield progress
        return outcome_of(process.wait(), config.argv[0], last.text, handover.report())


def command_line(config: EngineConfig, effort: Effort, run_directory: str) -> tuple[str, ...]:
    """The operator's arguments with the placeholders filled in, and those this effort adds."""
    values = {"effort": effort.label, "model": config.model or "", "run_directory": run_directory}

    def filled(match: re.Match[str]) -> str:
        literal, name = match.groups()
        return f"{{{literal}}}" if literal else values[name]

    return tuple(_BRACED.sub(filled, argument) for argument in (*config.argv, *config.efforts.get(effort, ())))


def _check_placeholders(engine: str, argument: str) -> None:
    for match in _BRACED.finditer(argument):
        name = match.group(2)
        if name is not None and name not in PLACEHOLDERS:
            known = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            raise InvalidInput(
                f"engine.{engine}.argv", f"{{{name}}}", f"{known}, or {{{{{name}}}}} for the text itself"
            )
