"""Jobs carried out on an engine as a worker does it, by a holder whose lease is never in danger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibey.domain.outcome import Failure, Success
from vibey.engines.contract import Renewal
from vibey.engines.runner import execute

if TYPE_CHECKING:
    from pathlib import Path

    from vibey.domain.outcome import Outcome
    from vibey.engines.contract import Engine, Job, Stopped


def carried_out(
    engine: Engine, job: Job, folder: Path, seconds: int = 60, stall_seconds: float | None = None
) -> Outcome | Stopped:
    """Run it to its end; its own folder is made below this one."""
    return execute(
        engine,
        job,
        directory_root=folder,
        lease_seconds=60,
        renew=lambda: Renewal.KEPT,
        timeout_seconds=seconds,
        stall_seconds=stall_seconds,
        grace_seconds=1.0,
    )


def outcome_of(engine: Engine, job: Job, folder: Path) -> Outcome:
    """Run it to an end of its own, and no other."""
    outcome = carried_out(engine, job, folder)
    assert isinstance(outcome, Success | Failure)
    return outcome
