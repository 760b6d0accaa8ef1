"""What a statement makes of a row that is not there: never that something still goes on.

Rows leave the record: `prune` removes jobs, runs, decisions and passes, the tick drops groups, sessions and workers,
and a restore brings back older ones. Every statement that asks for the absence of a row is named here, with what the
absence means, so that a new one cannot come without that question; and an installation whose whole past was removed
answers and works as a new one does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.support.ageing import forgetting, grow_old, sound, work
from tests.support.databases import query
from tests.support.installation import Bench, noop
from tests.support.statements import statements
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.services import control, explain, prune, views
from vibey.services.apply import apply
from vibey.services.audit import audit
from vibey.services.route import route
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.services.tick import forget
from vibey.settings import Source, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from vibey.domain.outcome import Outcome

ABSENCE = re.compile(r"not exists|\bnot in \(select|left join (?!lateral \(values)|full join", re.IGNORECASE)
CONFIGURED = "no engine of this name is configured"
WAITS = "the group has no reason to wait"
UNTOLD = "a breach, unless the job was removed"
# What the absence means, and the statements in which it does.
MEANINGS = {
    "the run was made by a pass that is newer than the snapshot: the foreign key keeps the run of a probe": {
        "engine-facts",
        "engine-glance",
    },
    "none of its runs is live": {"tally-fold-handovers", "view-engines", "summary-jobs"},
    "nothing is due in the group": {"group-forget"},
    "the pool or the member is configured no more": {"session-drop"},
    "nothing that has not been folded is about it, and no account points to its runs": {"horizon-remove"},
    "no job there is decided in it, and no group that waits": {"horizon-sweep"},
    CONFIGURED: {"view-jobs", "view-labelled-jobs", "view-job", "queue-groups", "queue-due", "queue-backing-off"},
    WAITS: {"job-groups"},
    "the outcome is about a group": {"run-grant"},
    "the job or run was removed, or the unit was not given back, which only the ledger says": {"cap-units"},
    "the day has no such spending": {"cost-spent"},
    "the worker is new": {"worker-see"},
    "no factor is in force": {"adjustment-learn"},
    "the event is about no project": {"ledger-read", "view-ledger"},
    "it was never measured": {"measurement-standings"},
    "no undo": {"generation-history"},
    "it has not succeeded, or was granted no run": {"history-arrivals", "history-outcomes"},
    "the engine was never known": {"view-output"},
    "nothing was enqueued since": {"view-jobs-since"},
    UNTOLD: {
        "audit-cap",
        "audit-chain",
        "audit-credits",
        "audit-days",
        "audit-decided",
        "audit-ends",
        "audit-exceptions",
        "audit-groups",
        "audit-guard",
        "audit-held-jobs",
        "audit-leads",
        "audit-overlaps",
        "audit-picks",
        "audit-references",
        "audit-slots",
        "audit-successes",
        "audit-unexplained",
        "audit-units",
    },
}


def test_every_absence_that_is_asked_for_has_a_meaning() -> None:
    """Each statement once."""
    named = [name for names in MEANINGS.values() for name in names]
    assert sorted(named) == sorted(statements(ABSENCE))


def _end(bench: Bench, engine: str, outcome: Outcome) -> None:
    """Have a new job run on this engine and end so."""
    bench.enqueue(1, engines=[engine], session="talk")
    route(bench.installation, "main")
    run, token, _ = next(each for each in bench.live() if each[2] == engine)
    started = _start(bench.installation, run, token)
    assert started is not None
    assert settle(bench.installation, Held.of(started, token), outcome) is not None


def test_an_installation_without_its_past_goes_on_as_a_new_one(open_bench: Callable[..., Bench]) -> None:
    """Trials, refusals, sessions, groups, labels, units and cancelled jobs: removed, and nothing waits for them."""
    bench = forgetting(open_bench)
    refused = Failure(FailureClass.CAPACITY, "spent", CapacityKind.WINDOW, resets_in_ms=1)
    for engine in ("l", "m", "p"):
        _end(bench, engine, refused)
        query(bench.url, "update accounts set probe_at = clock_timestamp() - interval '1 s', resets_at = null")
        _end(bench, engine, Success(tokens_in=1))
    bench.enqueue(9, labels={"team": "blue"}, session="talk")
    work(bench, 7)
    assert bench.value("select count(*) from accounts where probe_run_id is not null") == 3
    for job in (each for (each,) in bench.rows("select id from jobs where ended_at is null")):
        control.cancel(bench.installation, job)
    grow_old(bench)
    assert prune.prune(bench.installation).done
    query(bench.url, "update sessions set expires_at = clock_timestamp() - interval '1 hour'")
    forget(bench.installation)
    probed = "(select r.job_id from runs r join accounts a on a.probe_run_id = r.id)"
    assert bench.rows(f"select id from runs where job_id not in {probed}") == []
    assert [each["in_use"] for each in views.engines(bench.installation)["engines"]] == [0, 0, 0]
    assert bench.rows("select pool from group_states union select pool from sessions") == []
    sound(bench)
    query(bench.url, "update generations set at = at - interval '1 hour'")
    assert audit(bench.installation).violations == ()
    for engine in ("l", "m", "p"):
        _end(bench, engine, refused)
        query(bench.url, "update accounts set probe_at = clock_timestamp() - interval '1 s', resets_at = null")
        _end(bench, engine, Success(tokens_in=1))
        (job,) = bench.rows("select job_id from runs where state = 'succeeded' order by id desc limit 1")[0]
        assert explain.explain(bench.installation, job)["runs"]
    sound(bench)


def test_sessions_of_what_is_configured_no_more_are_dropped(open_bench: Callable[..., Bench]) -> None:
    """With their pool, or with the member that they remember; the others keep theirs."""
    pools = {"own": {"select": "weighted", "members": ["a", "b"]}, "two": {"select": "weighted", "members": ["b", "c"]}}
    bench = open_bench(engine={"a": noop(), "b": noop(), "c": noop()}, pool=pools)
    kept = "select pool, member from sessions order by 1, 2"
    for pool, member in (("own", "a"), ("own", "b"), ("two", "c"), ("main", "main.local"), ("main.local", "a")):
        values = f"'default/{pool}{member}', '{pool}', 'x', '{member}', now() + interval '1 hour'"
        query(bench.url, f"insert into sessions (session, pool, class, member, expires_at) values ({values})")
    assert audit(bench.installation).violations == ()
    bench.tables = {**bench.tables, "engine": {"b": noop(), "c": noop()}, "pool": {"two": pools["two"]}}
    source = Source(None, bench.installation.file.services.data_dir.parent, bench.tables)
    bench.installation = bench.installation.reread(settings_of(source, {}))
    apply(bench.installation)
    assert bench.rows(kept) == [("main", "main.local"), ("two", "c")]
    assert audit(bench.installation).violations == ()
