"""Chaos, the quick form: a minute of faults over a few hundred jobs; and bugs put in on purpose, each of them found.

The full form is `make chaos SEED=7`; see docs/how-to/chaos.md.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.chaos.plan import Plan
from tests.support.chaos.run import Chaos

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.chaos.run import Report

SEED = int(os.environ.get("VIBEY_CHAOS_SEED") or "1")
# Each bug with the invariant it breaks, and the faults under which it shows soon.
BUGS = {
    "slots_without_lock": ("I1", ["route twice without the lock"]),
    "settle_without_token": ("I6", ["stop a build worker past its leases"]),
    "leases_for_ever": ("I11", ["kill a build worker"]),
    "paid_without_unit": ("I4", ["kill a router"]),
    "requeue_dropped": ("I3", ["kill an engine's process"]),
    "started_by_anyone": ("I2", ["deliver messages again"]),
    "overflow_at_once": ("I5", ["kill a router"]),
}

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Callable[..., Report]]:
    """A function that carries out a plan and says what was found."""
    opened: list[Chaos] = []

    def run(plan: Plan, seconds: float, **spoiled: object) -> Report:
        opened.append(Chaos(plan, tmp_path, seconds, lambda line: print(line, file=sys.stderr), **spoiled))  # noqa: T201
        return opened[-1].go()

    yield run
    for each in opened:
        each.close()


def test_a_minute_of_faults_breaks_no_promise(chaos: Callable[..., Report]) -> None:
    """No job is lost or run twice at once, no slot or cap exceeded, nothing stuck."""
    plan = Plan.of(SEED, 300, 40)
    report = chaos(plan, 60)
    assert report.violations == []
    assert report.audited == []
    assert report.jobs == len(plan.jobs)


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_put_in_is_found(chaos: Callable[..., Report], bug: str) -> None:
    """The checker names the invariant that this bug breaks."""
    invariant, kinds = BUGS[bug]
    plan = Plan.of(SEED, 300, 8, kinds)
    report = chaos(plan, 15, application="tests.support.spoiled_tasks", bug=bug, patience=40)
    assert any(breach.startswith(f"{invariant}: ") for breach in report.violations), report.violations
