"""The page on ledger events, held against a ledger: every kind is on it, with the data that is really written."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from docs.generate.events import DATA
from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.services import adjust, backup, control, fleet
from vibey.services.measure import measure
from vibey.services.route import route
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.store.ledger import Event

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vibey.domain.outcome import Outcome

# A fallback takes no unit here; the ends of runs leave out what does not apply; the rest is not brought about.
SOMETIMES = {
    Event.CONFIGURATION_APPLIED,
    Event.PROJECT_CHANGED,
    Event.JOB_REQUEUED,
    Event.JOB_SUCCEEDED,
    Event.JOB_FAILED,
    Event.JOB_CANCELLED,
    Event.PAID_FALLBACK_SELECTED,
    Event.ENGINE_CHANGED,
    Event.EXCLUSION_WAIVED,
}


def _end(bench: Bench, engine: str, outcome: Outcome) -> None:
    run, token, _ = next(each for each in bench.live() if each[2] == engine)
    started = _start(bench.installation, run, token)
    assert started is not None
    settle(bench.installation, Held.of(started, token), outcome)


def _eventful(bench: Bench) -> None:
    """A day on which nearly everything happens."""
    control.new_project(bench.installation, "website")
    control.set_project(bench.installation, "website", {"paid_daily_cap": "5", "paid_daily_cap_covers": "all"})
    bench.enqueue(1, project="website", pool="bought")
    route(bench.installation, "bought")
    jobs = bench.enqueue(4)
    route(bench.installation, "main")
    query(bench.url, "update jobs set held_at = held_at - interval '20 seconds' where held_at is not null")
    route(bench.installation, "main")
    refused = Failure(FailureClass.CAPACITY, "spent", CapacityKind.WINDOW, resets_in_ms=3_600_000)
    _end(bench, "p", refused)
    _end(bench, "p", Failure(FailureClass.WORK, "it does not build"))
    _end(bench, "l", Success(near_quota_ms=60_000))
    control.cancel(bench.installation, jobs[-1])
    route(bench.installation, "main")
    control.retry(bench.installation, jobs[-1])
    control.reset_engine(bench.installation, "p")
    control.pause_engine(bench.installation, "l", paused=True)
    adjust.prefer(bench.installation, "p", "0.5", 60, "a test")
    adjust.demote(bench.installation, "p", 60)
    bench.enqueue(1, priority=9)
    route(bench.installation, "main")
    fleet.examine(bench.installation, ("l", "p"))
    measure(bench.installation, "default", force=True)


def _ignore(doing: str, done: int, total: int | None) -> None:
    """Progress that nobody reads."""


def _restore_backup(bench: Bench, file: Path) -> None:
    """Back the installation up, and put the backup in its place."""
    settings = bench.installation.settings
    backup.back_up(settings, file, _ignore)
    bench.close()
    backup.restore(settings, file, replace_jobs=True, confirm=lambda _target: True, progress=_ignore)


def test_every_kind_has_its_line() -> None:
    """In the order of the code."""
    assert list(DATA) == list(Event)


def test_data_are_what_the_page_says(open_bench: Callable[..., Bench], tmp_path: Path) -> None:
    """Nothing is written that the page does not name, and what it names is written."""
    rules = {"mode": "hybrid", "overflow_after_seconds": 10, "paid_daily_cap": 3, "slots": {"l": 1, "p": 5}}
    pools = {"main": {"members": ["l", "p"]}, "bought": {"members": ["p"]}}
    bench = open_bench(engine={"l": noop(), "p": noop("paid")}, engines=rules, pool=pools)
    _eventful(bench)
    _restore_backup(bench, tmp_path / "day.backup")
    written: dict[str, set[str]] = defaultdict(set)
    for kind, data in bench.rows("select kind, data from ledger"):
        written[kind].update(data)
    for kind, (_, named) in DATA.items():
        assert written.get(kind.value, set()) <= set(named), kind
        if kind not in SOMETIMES:
            assert kind.value in written, f"{kind} was not brought about"
            assert written[kind.value] == set(named), kind
