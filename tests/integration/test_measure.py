"""Measuring on a real database: one event however many ask, used while current, and singleton whenever in doubt."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.history import crowded, ran, settle
from tests.support.installation import Bench, noop
from vibey.domain.errors import Refused, UnknownName
from vibey.domain.offer import Fallback, Mode
from vibey.services import control, measure, modes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vibey.services.modes import Resolved

ENGINES = {"near": noop(capabilities=["web"]), "far": noop(), "bought": noop("paid")}
AUTO = {"mode": "auto"}
PROJECTS = ("default",)


@pytest.fixture
def bench(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Bench]:
    """Two local engines and a paid one, in mode auto."""
    made = Bench(database_url, redis_url, tmp_path, {"engine": dict(ENGINES), "engines": AUTO})
    yield made
    made.close()


@pytest.fixture
def single(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Bench]:
    """One local engine with one slot and a paid one, in mode auto."""
    made = Bench(
        database_url, redis_url, tmp_path, {"engine": {"near": noop(), "bought": noop("paid")}, "engines": AUTO}
    )
    yield made
    made.close()


def resolved(bench: Bench, project: str = "default", **environ: str) -> Resolved:
    """The rules in force for a project."""
    found = bench.installation.database.run(
        lambda connection: modes.resolve(connection, bench.installation, [project], environ)
    )
    return found[project]


def events(bench: Bench) -> list[dict[str, Any]]:
    """Every recorded measurement, oldest first."""
    return [data for (data,) in bench.rows("select data from ledger where kind = 'EngineDispatchMeasured' order by id")]


def age(bench: Bench, hours: float) -> None:
    """Make the recorded measurements older, past the ledger's own guard."""
    query(bench.url, "alter table ledger disable trigger user")
    query(bench.url, f"update ledger set at = at - interval '{hours} hours' where kind = 'EngineDispatchMeasured'")
    query(bench.url, "alter table ledger enable trigger user")


def test_crowded_history_chooses_hybrid(single: Bench) -> None:
    """Unmeasured auto is singleton and stale; measured, it is what the evidence says."""
    crowded(single)
    before = resolved(single)
    assert (before.policy.mode, before.source, before.stale) == (Mode.SINGLETON, "fallback", True)
    assert before.reason == "auto is configured, but nothing has been measured yet"
    measure.refresh(single.installation, PROJECTS)
    after = resolved(single)
    assert (after.policy.mode, after.source, after.stale) == (Mode.HYBRID, "measured", False)
    (event,) = events(single)
    assert (event["winner"], event["demand"], event["contended"], event["contention"]) == ("hybrid", 20, 10, 0.5)
    assert event["median_wait_seconds"] == pytest.approx(59 * 60, abs=0.1)
    assert (event["algorithm"], event["mode_before"]) == ("local-demand-replay/1", "singleton")
    assert after.reason == event["reason"]


def test_a_second_idle_engine_leaves_singleton(bench: Bench) -> None:
    """The same history on two local engines is contended nowhere."""
    crowded(bench)
    measure.refresh(bench.installation, PROJECTS)
    after = resolved(bench)
    assert (after.policy.mode, after.source) == (Mode.SINGLETON, "measured")
    assert events(bench)[0]["contended"] == 0


def test_measuring_at_once_records_one_event(single: Bench) -> None:
    """However many routers find a project stale, one measurement is recorded."""
    crowded(single)
    line = threading.Barrier(8)

    def work() -> None:
        line.wait(300)
        measure.refresh(single.installation, PROJECTS)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(events(single)) == 1
    assert resolved(single).source == "measured"


def test_a_current_measurement_is_used_again(single: Bench) -> None:
    """Refreshing measures what is not current, and nothing else; force measures in any case."""
    measure.refresh_all(single.installation)
    measure.refresh_all(single.installation)
    assert len(events(single)) == 1
    assert not measure.measure(single.installation, "default")["recorded"]
    assert measure.measure(single.installation, "default", force=True)["recorded"]
    assert len(events(single)) == 2


def test_declared_modes_are_not_measured(single: Bench) -> None:
    """Singleton and hybrid are as declared; only somebody who asks has them measured."""
    single.set_default(mode="hybrid")
    found = resolved(single)
    assert (found.policy.mode, found.source, found.stale) == (Mode.HYBRID, "declared", False)
    measure.refresh_all(single.installation)
    assert events(single) == []
    assert measure.measure(single.installation, "default")["recorded"]
    assert resolved(single).source == "declared"


@pytest.mark.parametrize(
    "change", [{"overflow_after_seconds": 601}, {"auto_window_hours": 100}, {"auto_min_contention": 0.2}]
)
def test_changed_rules_outdate_a_measurement(single: Bench, change: dict[str, object]) -> None:
    """A measurement by other thresholds is none."""
    measure.refresh_all(single.installation)
    single.set_default(**change)
    found = resolved(single)
    assert found.stale
    assert "of other engines, slots or thresholds" in found.reason
    measure.refresh_all(single.installation)
    assert (len(events(single)), resolved(single).source) == (2, "measured")


def test_changed_slots_outdate_a_measurement(single: Bench) -> None:
    """So is one of other slots; a change of what is paid does not matter."""
    measure.refresh_all(single.installation)
    query(single.url, "update engines set slots = 5 where tier = 'paid'")
    assert resolved(single).source == "measured"
    query(single.url, "update engines set slots = 2 where tier = 'local'")
    assert resolved(single).stale


@pytest.mark.parametrize(("hours", "reason"), [(24.1, "too old"), (-1.0, "in the future")])
def test_age_outdates_a_measurement(single: Bench, hours: float, reason: str) -> None:
    """A measurement is current from its instant to its greatest age."""
    measure.refresh_all(single.installation)
    age(single, 23.9)
    assert resolved(single).source == "measured"
    age(single, hours - 23.9)
    found = resolved(single)
    assert found.stale
    assert found.reason.endswith(reason)
    measure.refresh_all(single.installation)
    assert resolved(single).source == "measured"


@pytest.mark.parametrize("data", ["[]", "{}", '{"winner": "both", "fingerprint": "x", "reason": ""}', '"hybrid"'])
def test_an_unreadable_measurement_is_none(single: Bench, data: str, caplog: pytest.LogCaptureFixture) -> None:
    """What this version cannot read leaves singleton in force, is logged, and is measured anew."""
    query(
        single.url,
        "insert into ledger (kind, project_id, data) "
        f"select 'EngineDispatchMeasured', id, '{data}' from projects where name = 'default'",
    )
    found = resolved(single)
    assert (found.policy.mode, found.source, found.stale) == (Mode.SINGLETON, "fallback", True)
    assert "cannot be read" in found.reason
    assert "cannot be read" in caplog.text
    assert measure.mode(single.installation, "default")["evidence"] is None
    measure.refresh_all(single.installation)
    assert resolved(single).source == "measured"


def test_hybrid_holds_on_with_evidence_that_would_not_choose_it(single: Bench) -> None:
    """While the last measurement chose hybrid, six tenths of the thresholds keep it."""
    crowded(single)
    measure.refresh_all(single.installation)
    for number, job in enumerate(single.enqueue(40)):
        ran(single, job, due=4000 - number * 70, minutes=60)
    settle(single)
    kept = measure.measure(single.installation, "default", force=True)
    assert kept["mode"] == "hybrid"
    assert 0.15 <= kept["evidence"]["contention"] < 0.25
    assert kept["evidence"]["thresholds"]["contention"] == 0.15


def test_a_measurement_that_fails_leaves_singleton(single: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A failure is logged, raises nothing, and does not ask the router to measure again at once."""
    query(single.url, "alter table runs rename to gone")
    measure.refresh_all(single.installation)
    found = resolved(single)
    assert (found.policy.mode, found.source, found.stale) == (Mode.SINGLETON, "fallback", False)
    assert "measuring failed" in found.reason
    assert "could not measure default" in caplog.text
    query(single.url, "alter table gone rename to runs")
    assert measure.measure(single.installation, "default")["recorded"]
    assert resolved(single).source == "measured"


def test_a_measurement_that_cannot_be_recorded_leaves_singleton(single: Bench) -> None:
    """What is not on the ledger is not used."""
    crowded(single)
    query(single.url, "alter table ledger add constraint full_up check (kind <> 'EngineDispatchMeasured')")
    measure.refresh_all(single.installation)
    found = resolved(single)
    assert (found.policy.mode, found.source) == (Mode.SINGLETON, "fallback")


def test_rules_that_cannot_be_read_spend_nothing(single: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A malformed variable or stored policy is singleton without paid exceptions, with the error as the reason."""
    over = resolved(single, VIBEY_ENGINES_PAID_DAILY_CAP="many")
    assert (over.policy.mode, over.policy.cap, over.policy.fallback) == (Mode.SINGLETON, 0, Fallback.NEVER)
    assert (over.source, over.stale) == ("fallback", False)
    assert "VIBEY_ENGINES_PAID_DAILY_CAP" in over.reason
    caplog.clear()
    for _ in range(3):
        assert resolved(single, VIBEY_ENGINES_PAID_DAILY_CAP="many") == over
    assert caplog.text == ""
    query(single.url, """update projects set policy = '{"mode": "both"}'""")
    stored = resolved(single)
    assert (stored.policy.mode, stored.policy.cap, stored.source) == (Mode.SINGLETON, 0, "fallback")
    with pytest.raises(Refused, match="cannot be read"):
        measure.measure(single.installation, "default")


def test_the_environment_overlays_a_project(single: Bench) -> None:
    """Mode, threshold, cap and fallback are the environment's where it speaks."""
    over = {
        "VIBEY_ENGINES_MODE": "hybrid",
        "VIBEY_ENGINES_OVERFLOW_AFTER_SECONDS": "7",
        "VIBEY_ENGINES_PAID_DAILY_CAP": "3",
        "VIBEY_ENGINES_PAID_FALLBACK": "count",
    }
    found = resolved(single, **over)
    assert (found.policy.mode, found.source, found.scope) == (Mode.HYBRID, "declared", "project")
    assert (found.policy.overflow_after_ms, found.policy.cap, found.policy.fallback) == (7000, 3, Fallback.COUNT)
    assert found.policy.poll_ms == 30_000


def test_without_a_local_engine_there_is_nothing_to_measure(database_url: str, redis_url: str, tmp_path: Path) -> None:
    """Auto is singleton then, and no reason to measure."""
    made = Bench(database_url, redis_url, tmp_path, {"engine": {"bought": noop("paid")}, "engines": AUTO})
    found = resolved(made)
    assert (found.policy.mode, found.source, found.stale) == (Mode.SINGLETON, "fallback", False)
    with pytest.raises(Refused, match="no local engine"):
        measure.measure(made.installation, "default")
    with pytest.raises(UnknownName):
        measure.measure(made.installation, "nobody")
    made.close()


def test_projects_share_demand_and_are_judged_apart(single: Bench) -> None:
    """One reading serves all; each is judged by its own attempts and its own window."""
    for name in ("first", "second", "brief"):
        control.new_project(single.installation, name)
    control.set_project(single.installation, "brief", {"auto_window_hours": "2"})
    crowded(single, "first")
    measure.refresh_all(single.installation)
    told = dict(
        single.rows(
            "select p.name, l.data->>'demand' from ledger l join projects p on p.id = l.project_id "
            "where l.kind = 'EngineDispatchMeasured'"
        )
    )
    assert told == {"default": "0", "first": "20", "second": "0", "brief": "0"}
    assert {event["replayed"] for event in events(single)} == {20, 0}
    assert (resolved(single, "first").policy.mode, resolved(single, "second").policy.mode) == (
        Mode.HYBRID,
        Mode.SINGLETON,
    )


def test_measuring_is_told_in_the_log(single: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Who reads the log learns what was measured."""
    caplog.set_level(logging.INFO, "vibey.measure")
    measure.refresh(single.installation, ["default", "nobody"])
    assert "measured project default: 0 attempts wanted a local engine, fewer than 20" in caplog.text
