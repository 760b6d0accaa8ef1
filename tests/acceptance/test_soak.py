"""Soak, the quick form: half a minute finds nothing in the product, and a leak of each kind that was put in.

The full form is `make soak`; see docs/how-to/soak.md.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.soak.flat import FILES, MEGABYTE, Bounds
from tests.support.soak.run import Length, Soak
from tests.support.soak.stored import Stored
from tests.support.soak.virtual import lived

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.soak.run import Report
    from vibey.embedded import Services

# Of 144 jobs.
BRIEF = Length(seconds=24, warm=10, pause=0.4, rate=6, warm_jobs=40, judged_jobs=70)
# Young processes still fill their caches, and the database's meet tables for the first time. A leak of two megabytes a
# run is a hundred and forty by then. A process of the build worker's pool has a few more files open while it has a run
# at work, which so short a time does not average out.
LOOSE = Bounds(
    warm=BRIEF.warm,
    settling=5,
    memory=8 * MEGABYTE,
    job=200_000,
    files=FILES | {"postgres, backends": 100.0, "build, pool": 10.0},
)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.fixture
def soaked(tmp_path: Path) -> Iterator[Callable[..., Report]]:
    """A function that carries out a brief soak and says what was found."""
    opened: list[Soak] = []

    def run(**spoiled: str) -> Report:
        opened.append(Soak(tmp_path, BRIEF, lambda line: print(line, file=sys.stderr), bounds=LOOSE, **spoiled))  # noqa: T201
        return opened[-1].go()

    yield run
    for each in opened:
        each.close()


def test_half_a_minute_is_flat_and_sound(soaked: Callable[..., Report]) -> None:
    """Nothing grows, nothing is lost, and every kind of process was looked at."""
    report = soaked()
    assert report.growing == []
    assert report.unsound == []
    assert report.audited == []
    judged = {each.subject for each in report.findings if each.measure == "memory" and each.verdict == "flat"}
    roles = {"control", "control, pool", "build", "build, pool", "beat", "flower", "metrics", "postgres", "redis"}
    assert judged > roles
    assert report.states["succeeded"] > 100


def test_leaks_put_in_are_found(soaked: Callable[..., Report]) -> None:
    """A file a routing pass, a connection and two megabytes a run."""
    leaks = "file_a_pass connection_a_run memory_a_run"
    report = soaked(application="tests.support.spoiled_tasks", bugs=leaks)
    growing = {(each.subject, each.measure) for each in report.growing}
    assert growing >= {("control, pool", "files"), ("redis", "clients"), ("build, pool", "memory")}
    assert not {subject for subject, _ in growing} & {"control", "beat", "flower", "metrics", "postgres"}


def test_twenty_virtual_minutes_keep_nothing_but_waits() -> None:
    """What a simulation keeps of a decision is the wait it will report."""
    hours = lived(1 / 3)
    assert [each.verdict for each in hours.findings] == ["flat", "flat"], hours


def test_some_virtual_minutes_on_the_tables_keep_nothing(
    database_url: str, redis_url: str, services: Services, tmp_path: Path
) -> None:
    """Routing, starting, settling and ticking, in one process."""
    stored = Stored(type(services)(database_url, redis_url), tmp_path)
    try:
        findings = stored.live(1 / 9)
    finally:
        stored.close()
    assert [each.verdict for each in findings] == ["flat"] * len(findings), findings
