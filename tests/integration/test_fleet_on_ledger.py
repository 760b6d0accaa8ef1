"""Whatever changes the fleet is on the ledger: who did what, and what it was before.

The fleet is what the rows of these tables say. Every statement that writes any of them is enumerated from the code and
brought about here; the tables are read before and after, and where they differ there is an event. What runs teach about
engines and accounts (counts, averages, a busy server) is told by the events of those runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from tests.support.statements import statements
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.engines.contract import Health
from vibey.services import adjust, control, fleet, pulse
from vibey.services.apply import apply
from vibey.services.measure import measure
from vibey.services.route import route
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.services.tick import tick
from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from vibey.domain.outcome import Outcome

WRITES = re.compile(
    r"(?:insert into|update|delete from)\s+"
    r"(accounts|engines|pools|projects|installation|generations|adjustments|workers)\b"
)
# What of a table is the fleet: a worker's pulse and its canary are no change of it, nor are ticks.
TABLES = {
    "accounts": "*",
    "engines": "*",
    "pools": "*",
    "projects": "*",
    "generations": "number, who, content",
    "installation": "age_ms, generation",
    "adjustments": "member, kind, factor, note",
    "workers": "name, engines, slots, concurrency, generation, version, problems",
}
CLOCK = "an instant further ahead than it can have been written, since the clock was set back"
NO_CHANGE = {
    "worker-canary": "a proof that a worker consumes",
    "installation-tick": "a tick was made",
    "installation-cleaned": "a clean-up was made",
    "adjustment-forget": "a factor that is over counted no more before it was removed",
    "instant-probes": CLOCK,
    "instant-busy": CLOCK,
    "instant-learned": CLOCK,
    "age-set": "by `vibey apply`, below",
}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The names of the statements that were sent."""
    names: set[str] = set()
    original = Statement._sent  # noqa: SLF001  the one place every statement passes

    def noted(self: Statement, *arguments: Any) -> Any:
        names.add(self.name)
        return original(self, *arguments)

    monkeypatch.setattr(Statement, "_sent", noted)
    return names


def _fleet(bench: Bench) -> dict[str, list[tuple[Any, ...]]]:
    """The fleet as the tables have it."""
    force = {"adjustments": " where expires_at > clock_timestamp()"}
    return {
        table: bench.rows(f"select {columns} from {table}{force.get(table, '')} order by 1, 2")
        for table, columns in TABLES.items()
    }


def _end(bench: Bench, outcome: Outcome) -> None:
    """Have a new job granted, started, and ended so."""
    bench.enqueue(1)
    route(bench.installation, "main")
    run, token, _ = bench.live()[-1]
    started = _start(bench.installation, run, token)
    assert started is not None
    assert settle(bench.installation, Held.of(started, token), outcome) is not None


def _configure(bench: Bench, **tables: Any) -> None:
    """Apply the configuration with these tables in place of its own."""
    from vibey.settings import Source, settings_of

    bench.tables = {**bench.tables, **tables}
    source = Source(None, bench.installation.file.services.data_dir.parent, bench.tables)
    bench.installation = bench.installation.reread(settings_of(source, {}))
    apply(bench.installation, by="ann")


def _probe(bench: Bench) -> None:
    """The trial of a half-open account is granted."""
    query(bench.url, "update accounts set probe_at = clock_timestamp() - interval '1 second' where name = 'p'")
    bench.enqueue(1)
    route(bench.installation, "main")
    assert bench.value("select probe_run_id from accounts where name = 'p'") is not None


def _since(bench: Bench) -> datetime:
    """Since when the worker that is to leave lives."""
    since: datetime = bench.value("select started_at from workers where name = 'new'")
    return since


def _forget(bench: Bench) -> None:
    """A tick that cleans up finds a worker unseen for two days."""
    query(bench.url, "update workers set seen_at = seen_at - interval '2 days' where name = 'old'")
    query(bench.url, "update installation set last_clean_at = last_clean_at - interval '1 day'")
    tick(bench.installation)


def _learn(bench: Bench) -> None:
    """The last hour's runs on an engine nearly all failed by its doing."""
    query(
        bench.url,
        "update runs set state = 'failed', failure_class = 'engine', ended_at = clock_timestamp() where engine = 'l'",
    )
    query(
        bench.url,
        "insert into runs (job_id, engine, account, attempt, state, failure_class, lease_expires_at, started_at, "
        "ended_at) select -n, 'l', 'l', 1, 'failed', 'engine', clock_timestamp(), clock_timestamp(), "
        "clock_timestamp() from generate_series(1, 40) n",
    )
    assert adjust.review(bench.installation) == 1


REFUSED = Failure(FailureClass.CAPACITY, "spent", CapacityKind.WINDOW, resets_in_ms=60_000)
OLD = pulse.Worker("old", ("l",), 1)
NEW = pulse.Worker("new", ("l",), 1)
UNFIT = {"l": Health(installed=False, detail="there is no program l")}
LOGGED_OUT = {"p": Health(installed=True, logged_in=False)}
LOGGED_IN = {"p": Health(installed=True, logged_in=True)}
# In turn: each begins with what those before it have left. With each the kinds of events that it writes.
CHANGES: list[tuple[str, Callable[[Bench], object], set[str]]] = [
    (
        "a new account and engine",
        lambda b: _configure(b, engine=ENGINES | {"m": noop(account="x")}),
        {"ConfigurationApplied"},
    ),
    ("other slots", lambda b: _configure(b, engines=RULES | {"slots": {"l": 3, "p": 9}}), {"ConfigurationApplied"}),
    ("an engine less", lambda b: _configure(b, engine=ENGINES), {"ConfigurationApplied"}),
    ("a pool more", lambda b: _configure(b, pool={"own": {"members": ["l"]}}), {"ConfigurationApplied"}),
    ("no pool", lambda b: _configure(b, pool={}), {"ConfigurationApplied"}),
    ("ageing", lambda b: _configure(b, engines=RULES | {"priority_age_seconds": 60}), {"ConfigurationApplied"}),
    (
        "the cap",
        lambda b: _configure(b, engines=RULES | {"paid_daily_cap": 7}),
        {"ConfigurationApplied", "ProjectChanged"},
    ),
    ("going back", lambda b: apply(b.installation, undo=True, by="ann"), {"ConfigurationApplied", "ProjectChanged"}),
    ("a project", lambda b: control.new_project(b.installation, "web", by="ann"), {"ProjectCreated"}),
    (
        "its mode",
        lambda b: control.set_project(b.installation, "web", {"mode": "singleton"}, by="ann"),
        {"ProjectChanged"},
    ),
    (
        "its measurement",
        lambda b: (
            control.set_project(b.installation, "web", {"mode": "auto"}, by="ann"),
            measure(b.installation, "web", force=True),
        ),
        {"ProjectChanged", "EngineDispatchMeasured"},
    ),
    ("a worker", lambda b: pulse.appear(b.installation, OLD), {"WorkerChanged"}),
    ("what it serves", lambda b: pulse.appear(b.installation, pulse.Worker("old", ("l", "p"), 1)), {"WorkerChanged"}),
    (
        "why it does not",
        lambda b: pulse.appear(b.installation, pulse.Worker("old", ("l",), 1, problems={"p": "x"})),
        {"WorkerChanged"},
    ),
    ("it is forgotten", _forget, {"WorkerChanged"}),
    ("another worker", lambda b: pulse.appear(b.installation, NEW), {"WorkerChanged"}),
    ("it leaves", lambda b: pulse.leave(b.installation, NEW, _since(b)), {"WorkerChanged"}),
    ("a pause", lambda b: control.pause_engine(b.installation, "l", paused=True, by="ann"), {"EngineChanged"}),
    ("its end", lambda b: control.pause_engine(b.installation, "l", paused=False, by="ann"), {"EngineChanged"}),
    ("a preference", lambda b: adjust.prefer(b.installation, "l", "2", 60, "why", by="ann"), {"EngineChanged"}),
    ("no preference", lambda b: adjust.prefer(b.installation, "l", "1", 60, by="ann"), {"EngineChanged"}),
    ("a demotion", lambda b: adjust.demote(b.installation, "l", 60, by="ann"), {"EngineChanged"}),
    ("no demotion", lambda b: adjust.restore(b.installation, "l", by="ann"), {"EngineChanged"}),
    ("an unfit engine", lambda b: fleet.record(b.installation, UNFIT), {"EngineChanged"}),
    ("a fit one", lambda b: fleet.record(b.installation, {"l": Health(installed=True)}), {"EngineChanged"}),
    ("no login", lambda b: fleet.record(b.installation, LOGGED_OUT), {"EngineChanged"}),
    ("a login", lambda b: fleet.record(b.installation, LOGGED_IN), {"EngineChanged"}),
    ("a success", lambda b: _end(b, Success()), {"JobSucceeded"}),
    ("a quota nearly spent", lambda b: _end(b, Success(near_quota_ms=60_000)), {"EngineChanged"}),
    ("a busy server", lambda b: _end(b, Failure(FailureClass.CAPACITY, "full", CapacityKind.BUSY)), {"JobRequeued"}),
    ("an engine that cannot work", lambda b: _end(b, Failure(FailureClass.MISCONFIGURED, "no key")), {"EngineChanged"}),
    ("it can again", lambda b: fleet.record(b.installation, {"p": Health(installed=True)}), {"EngineChanged"}),
    ("what was learned", _learn, {"EngineChanged"}),
    (
        "only paid engines",
        lambda b: control.pause_engine(b.installation, "l", paused=True, by="ann"),
        {"EngineChanged"},
    ),
    ("a refusal", lambda b: _end(b, REFUSED), {"CircuitChanged"}),
    ("a trial", _probe, {"RunGranted"}),
    ("a reset", lambda b: control.reset_engine(b.installation, "p", by="ann"), {"CircuitChanged"}),
]
ENGINES = {"l": noop(), "p": noop("paid")}
RULES = {"mode": "hybrid", "overflow_after_seconds": 0, "paid_daily_cap": 50, "slots": {"l": 2, "p": 9}}


def test_every_change_of_the_fleet_has_its_event(open_bench: Callable[..., Bench], sent: set[str]) -> None:
    """And every statement that writes a table of the fleet is among the changes."""
    bench = open_bench(engine=ENGINES, engines=RULES)
    for name, change, kinds in CHANGES:
        before, last = _fleet(bench), bench.value("select max(id) from ledger")
        change(bench)
        assert _fleet(bench) != before, f"{name}: nothing was changed"
        written = bench.rows(f"select kind, data from ledger where id > {last} order by id")
        assert kinds <= {kind for kind, _ in written}, name
        for kind, data in written:
            if kind in {"ProjectChanged", "EngineChanged", "CircuitChanged", "WorkerChanged"} and "by" in data:
                assert "was" in data, (name, kind)
    unseen = {*statements(WRITES)} - sent - {*NO_CHANGE}
    assert unseen == set()


def test_what_changes_nothing_writes_no_event(open_bench: Callable[..., Bench]) -> None:
    """A pulse, a doctor that finds what it found before, and applying what is in force."""
    bench = open_bench(engine=ENGINES, engines=RULES)
    fleet.record(bench.installation, UNFIT | LOGGED_OUT)
    pulse.appear(bench.installation, OLD)
    before, events = _fleet(bench), bench.value("select count(*) from ledger")
    fleet.record(bench.installation, UNFIT | LOGGED_OUT)
    pulse.appear(bench.installation, OLD)
    pulse.sing(bench.installation, OLD.name)
    apply(bench.installation)
    assert (_fleet(bench), bench.value("select count(*) from ledger")) == (before, events)


def test_before_and_after_are_told_in_the_same_words(open_bench: Callable[..., Bench]) -> None:
    """So that a change can be read, and taken back, from its event alone."""
    bench = open_bench(engine=ENGINES, engines=RULES)
    control.new_project(bench.installation, "web", by="ann")
    control.set_project(bench.installation, "web", {"mode": "hybrid", "paid_daily_cap": "3"}, by="bob")
    control.set_project(bench.installation, "web", {"mode": "singleton"}, by="ann")
    adjust.prefer(bench.installation, "l", "2", 60, "why", by="ann")
    adjust.prefer(bench.installation, "l", "0.5", 60, by="bob")
    control.pause_engine(bench.installation, "l", paused=True, by="ann")
    pulse.appear(bench.installation, OLD)
    pulse.appear(bench.installation, pulse.Worker("old", ("l", "p"), 1))
    found: dict[str, list[dict[str, Any]]] = {}
    for kind, data in bench.rows("select kind, data from ledger order by id"):
        found.setdefault(kind, []).append(data)
    first, second = found["ProjectChanged"][-2:]
    assert (first["mode"], first["by"], second["was"], second["by"]) == ("hybrid", "bob", {"mode": "hybrid"}, "ann")
    preferred, again, paused = found["EngineChanged"][-3:]
    assert preferred["was"] is None
    assert again["was"] == {key: preferred[key] for key in ("factor", "until", "note")}
    assert (paused["paused"], paused["was"], paused["by"]) == (True, {"paused": False}, "ann")
    came, more = found["WorkerChanged"][-2:]
    assert came["was"] is None
    assert more["was"] == {key: value for key, value in came.items() if key not in {"worker", "host", "was"}}
    assert (came["engines"], more["engines"]) == (["l"], ["l", "p"])
