"""What if: `vibey replay --what-if`, the recorded past on other settings, beside what happened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vibey.cli import output, session
from vibey.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_SECONDS = 7 * 86_400
ROWS = (
    ("runs granted", "granted", str),
    ("wait, median", "wait_p50", output.lasting),
    ("wait, 95 of 100", "wait_p95", output.lasting),
    ("wait, longest", "wait_max", output.lasting),
    ("paid runs", "paid", str),
    ("overflows", "overflows", str),
    ("fallbacks", "fallbacks", str),
    ("starved", "starved", str),
    ("never ran", "never_run", str),
)


def compare(changes: str, seconds: float | None) -> dict[str, Any]:
    """What happened in the last so many seconds, what a simulation makes of it, and what it makes of the changes."""
    from vibey.services.history import history_of
    from vibey.services.wording import instant
    from vibey.settings.source import read
    from vibey.simulate.run import simulate
    from vibey.simulate.trace import parse
    from vibey.simulate.whatif import Outcome, changed

    settings = session.settings()
    other = changed(settings, read(None, os.environ), changes, os.environ)
    with session.installation() as installation:
        past = history_of(installation, seconds or DEFAULT_SECONDS)
    trace = parse(past.lines, "the recorded past", settings.engine, settings.capabilities)
    happened = past.happened
    found = Outcome(happened.waits_ms, happened.paid, happened.overflows, happened.fallbacks, happened.never_run)
    return {
        "changes": changes,
        "jobs": trace.jobs,
        "left_out": past.left_out,
        "record_begins": instant(past.begins),
        "happened": found.to_json(),
        "simulated": Outcome.of(simulate(settings, trace)).to_json(),
        "what_if": Outcome.of(simulate(other, trace)).to_json(),
    }


def show(found: Mapping[str, Any]) -> None:
    """Print a comparison for people."""
    screen = output.console()
    columns = (Column(""), *(Column(title, right=True) for title in ("HAPPENED", "SIMULATED", found["changes"])))
    kinds = ("happened", "simulated", "what_if")
    screen.print(
        output.table(columns, [(name, *(shown(found[kind][key]) for kind in kinds)) for name, key, shown in ROWS])
    )
    left_out = f"; {output.many(found['left_out'], 'job')} left out" if found["left_out"] else ""
    screen.print(f"{output.many(found['jobs'], 'job')} of the past{left_out}", style="dim")
    if found["record_begins"]:
        screen.print(f"jobs that ended before {output.clock(found['record_begins'])} UTC are removed", style="dim")
