"""The checker of the fault tests is worth something only if it sees each kind of breach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.checker import CHECKS, Facts, judged, most_at_once, violations
from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.services.route import route
from vibey.services.run import carry_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECOND = 1_000_000_000

# Each breach with the words it is named by, led by its invariant.
UNIT = (
    "insert into ledger (kind, project_id, job_id, run_id, utc_day, data) "
    "select 'EngineOverflowSelected', project_id, job_id, 1, {day}, "
    "jsonb_build_object('paid_daily_cap', {cap}, 'utc_day', {day}) from ledger where run_id = 1 limit 1"
)
TODAY = "(clock_timestamp() at time zone 'utc')::date"
TAMPERED = {
    "I1: 3 runs at once on a": "update runs set granted_at = (select min(granted_at) from runs), "
    "ended_at = (select max(ended_at) from runs)",
    "I2: a job and its live run do not agree": "update jobs set state = 'running', run_id = 99, ended_at = null "
    "where id = 1",
    "I2: two runs of a job were live at once": "update runs set job_id = 1, granted_at = (select granted_at from runs "
    "where id = 1) where id = 2",
    "I3: a job is neither ended nor queued": "update jobs set state = 'queued', ended_at = null, reason = '' "
    "where id = 1",
    "I3: a job used more attempts than it has": "update jobs set max_attempts = 0 where id = 1",
    "I3: a job's attempts are not those of its runs": "update jobs set attempt = 2 where id = 1",
    "I3: a job failed though nothing": "update jobs set state = 'failed' where id = 1",
    "I4: a day's paid units were above the cap": UNIT.format(day=TODAY, cap=0),
    "I4: a run has not exactly the unit": "update runs set counted = true where id = 1",
    "I4: paid work of a counting project": "with p as (update projects set policy = policy || "
    "'{\"paid_fallback\": \"count\"}') update runs set why = 'fallback' where id = 1",
    "I4: a unit was given back by a run that may have worked": "insert into ledger (kind, run_id, utc_day) "
    f"values ('EngineOverflowReleased', 1, {TODAY})",
    "I5: run 1 (assign) went to paid while a had a free slot": "update runs set engine = 'b' where id = 1",
    "I6: a run's instants are out of order": "update runs set ended_at = granted_at - interval '1 second' where id = 1",
    "I6: a job succeeded more or less than once": "update runs set state = 'failed' where id = 1",
    "I6: a run's end was overwritten": "update runs set state = 'lost' where id = 1",
    "I6: a token did not grow": "update runs set token = 2 where id = 1",
    "I7: the credits of a pool do not sum to zero": "insert into credits values ('main', 'a', 5)",
    "I7: an engine's count of picks": "update engines set selected_count = selected_count + 1 where name = 'a'",
    "I8: the ledger's replay does not lead": "update jobs set state = 'failed' where id = 1",
    "I8: the ledger moves job 1": "insert into ledger (kind, job_id) values ('RunStarted', 1)",
    "I8: the ledger has (grants, ends)": "insert into ledger (kind, job_id, run_id) values ('JobFailed', 1, 1)",
    "I8: the ledger let itself be changed": "drop trigger ledger_append_only on ledger",
    "I9: a run has no decision": "delete from decisions where run_id = 1",
    "I9: a decision does not say what its run is": "update decisions set engine = 'b' where run_id = 1",
    "I9: a grant has no run": "update decisions set run_id = 99 where run_id = 1",
    "I10: job 3 stood": "update jobs set created_at = created_at - interval '9 minutes' where id = 3",
    "I11: the lease of run 1 is": "update runs set lease_expires_at = lease_expires_at + interval '1 hour' "
    "where id = 1",
    "I11: run 1 was lost": "update runs set state = 'lost', ended_at = ended_at + interval '1 hour' where id = 1",
    "I11: run 1 (running) holds its slot": "update runs set state = 'running', ended_at = null, "
    "lease_expires_at = lease_expires_at - interval '1 hour' where id = 1",
    "I12: a unit is counted for another day": UNIT.format(day="date '2020-02-29'", cap=5),
    "I12: a unit was given back to another day": "insert into ledger (kind, run_id, utc_day) "
    "values ('EngineOverflowReleased', 1, '2020-02-29')",
}
# The same of draws, which only a pool with two free members makes.
DRAWN = {
    "I7: decision 1: the shares of": "update passes set classes = jsonb_set(classes, '{0,4,0}', '1')",
    "I7: decision 2: a in": "update decisions set trace = jsonb_set(trace, '{steps,0,1,0}', '77') where id = 2",
    "I7: the credit of": "update credits set credit = credit + case member when 'a' then 5 else -5 end",
    "I9: decision 1: c was drawn in": "update decisions set trace = jsonb_set(trace, '{steps,0,2}', '\"c\"') "
    "where id = 1",
}


@pytest.fixture
def bench(open_bench: Callable[..., Bench], tmp_path: Path) -> Bench:
    """Three jobs done, one after the other, and what their programs would have written."""
    return _worked(open_bench(engine={"a": noop(), "b": noop("paid")}), tmp_path)


@pytest.fixture
def pair(open_bench: Callable[..., Bench], tmp_path: Path) -> Bench:
    """The same on two local engines with two slots each, so that the first jobs draw between them."""
    engines = {"slots": {"a": 2, "c": 2}}
    return _worked(open_bench(engine={"a": noop(weight=2), "c": noop()}, engines=engines), tmp_path)


def _facts(bench: Bench, folder: Path) -> Facts:
    """Everything can be judged: leases by their length, and all that is, as calm."""
    lease = bench.installation.timing.lease_ms / 1000
    return Facts(bench.url, folder / "labour.log", lease, calm_ns=1, at_rest=True)


def _worked(bench: Bench, folder: Path) -> Bench:
    bench.enqueue(3)
    route(bench.installation, "main")
    while live := bench.live():
        carry_out(bench.installation, *live[0][:2])
    lines = [
        f"{word} {run} {job} {engine} 7 {instant}"
        for run, job, engine, first, last in bench.rows(
            "select id, job_id, engine, (extract(epoch from started_at) * 1000000000)::bigint + 1, "
            "(extract(epoch from ended_at) * 1000000000)::bigint - 1 from runs order by id"
        )
        for word, instant in (("start", first), ("end", last))
    ]
    (folder / "labour.log").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return bench


def test_a_sound_installation_has_no_violations(bench: Bench, tmp_path: Path) -> None:
    """Jobs that simply ran break no rule."""
    assert violations(bench.url, tmp_path / "labour.log") == []


@pytest.mark.parametrize(("words", "tampering"), TAMPERED.items(), ids=TAMPERED)
def test_each_breach_in_the_tables_is_seen(bench: Bench, tmp_path: Path, words: str, tampering: str) -> None:
    """Each rule is broken by hand and named."""
    query(bench.url, tampering)
    found = judged(_facts(bench, tmp_path))
    assert any(violation.startswith(words) for violation in found), found


def test_each_invariant_has_its_breach() -> None:
    """None is left to trust."""
    assert {words.partition(":")[0] for words in TAMPERED} == set(CHECKS)


def test_sound_draws_have_no_violations(pair: Bench, tmp_path: Path) -> None:
    """Two engines in turn."""
    assert judged(_facts(pair, tmp_path)) == []


@pytest.mark.parametrize(("words", "tampering"), DRAWN.items(), ids=DRAWN)
def test_each_breach_in_a_draw_is_seen(pair: Bench, tmp_path: Path, words: str, tampering: str) -> None:
    """Each step of the rotation is made again."""
    query(pair.url, tampering)
    found = judged(_facts(pair, tmp_path))
    assert any(violation.startswith(words) for violation in found), found


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("run 1 was still at work when run 2 began", "alive 2 1 a 8 {first}"),
        ("was at work outside its time", "alive 1 1 a 7 {late}"),
        ("process trees at once on a", "alive 3 3 a 7 {first}"),
    ],
)
def test_each_breach_of_the_programs_is_seen(bench: Bench, tmp_path: Path, words: str, line: str) -> None:
    """A sign of life at the wrong time is enough."""
    log = tmp_path / "labour.log"
    first = int(log.read_text(encoding="utf-8").split()[5])
    with log.open("a", encoding="utf-8") as more:
        more.write(line.format(first=first, late=first + 3600 * SECOND) + "\n")
    found = violations(bench.url, log)
    assert any(words in violation for violation in found), found


def test_a_success_whose_program_never_ended_is_seen(bench: Bench, tmp_path: Path) -> None:
    """A run that claims more than its program did."""
    log = tmp_path / "labour.log"
    log.write_text(log.read_text(encoding="utf-8").replace("end 1 ", "alive 1 "), encoding="utf-8")
    assert violations(bench.url, log) == ["I2: run 1 succeeded, but its program never came to its end"]


def test_most_at_once() -> None:
    """Touching intervals share no instant; nested and crossing ones do."""
    assert most_at_once([(0, 2), (2, 4)]) == 1
    assert most_at_once([(0, 3), (2, 4), (3, 5)]) == 2
    assert most_at_once([(0, 9), (1, 2), (1, 8)]) == 3
