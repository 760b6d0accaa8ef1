"""Kit: everything a package with an engine kind of its own imports; `vibey.engines.contract` says what it is for.

Names here stay. docs/how-to/add-an-engine-kind.md builds a kind from them.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from vibey.domain.effort import Effort
from vibey.domain.errors import InvalidInput
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Outcome, Success, one_line
from vibey.engines.contract import (
    Context,
    Description,
    Engine,
    EngineConfig,
    Health,
    Job,
    Progress,
    RunSteps,
    RunStopped,
)
from vibey.engines.environment import allowed
from vibey.engines.exits import failure_of_exit
from vibey.engines.handover import Handover, outcome_of
from vibey.engines.looking import NoAnswer, late, output_of
from vibey.engines.process import find_program
from vibey.engines.results import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CapacityKind",
    "Context",
    "Description",
    "Effort",
    "Engine",
    "EngineConfig",
    "Failure",
    "FailureClass",
    "Handover",
    "Health",
    "InvalidInput",
    "Job",
    "NoAnswer",
    "Outcome",
    "Progress",
    "Report",
    "RunSteps",
    "RunStopped",
    "Success",
    "event_of",
    "failure_of_exit",
    "late",
    "look_at",
    "one_line",
    "outcome_of",
]


def event_of(line: str) -> dict[str, Any]:
    """The JSON object that a line of output is; an empty one if it is none."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def look_at(config: EngineConfig, argv: Sequence[str], fix: str) -> Health:
    """The health of a program that answers this command, as `("scribe", "--version")`, with exit 0 and a line.

    That line is the version. The program is looked for where jobs would find it; `fix` tells how to get it.
    """
    environment = allowed(os.environ, config.env)
    program = find_program(argv[0], environment)
    if program is None:
        return Health(installed=False, detail=f"{argv[0]} is not an executable on the PATH jobs get", fix=fix)
    try:
        code, said = output_of((program, *argv[1:]), environment)
    except NoAnswer as silence:
        return late(silence)
    first = one_line(said.partition("\n")[0], 100)
    if code != 0:
        return Health(installed=False, detail=f"{' '.join(argv)}: {first or f'exit {code}'}", fix=fix)
    return Health(installed=True, version=first or None)
