"""What happens in a simulation and when, on traces so small that every line was worked out by hand."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.settings_support import settings_from
from vibey.simulate.run import simulate
from vibey.simulate.trace import parse

if TYPE_CHECKING:
    from types import FrameType

    from vibey.settings import Settings
    from vibey.simulate.report import Report

FLEET = """
[engines]
mode = "{mode}"
overflow_after_seconds = 10
paid_daily_cap = 1
paid_fallback = "count"
retry_backoff_seconds = 0
slot_poll_seconds = 30
session_ttl_seconds = 100
{more}
[engine.near]
kind = "noop"
tier = "local"
[engine.far]
kind = "noop"
{engines}
"""
TWO_LOCAL = '[engine.desk]\nkind = "noop"\ntier = "local"'
MIDNIGHT = 86_400


def fleet(mode: str = "hybrid", more: str = "", engines: str = "", local_slots: int = 1) -> Settings:
    """One local engine with a slot, one paid with two."""
    more = f"{more}\n[engines.slots]\nnear = {local_slots}"
    return settings_from(FLEET.format(mode=mode, more=more, engines=engines))


def lines_of(settings: Settings, *happenings: dict[str, Any]) -> tuple[list[str], Report]:
    """What a simulation writes, and its report."""
    out: list[str] = []
    trace = parse([json.dumps(each) for each in happenings], "by hand", settings.engine, {"web"})
    return out, simulate(settings, trace, out.append)


def played(
    *happenings: dict[str, Any], mode: str = "hybrid", more: str = "", engines: str = "", local_slots: int = 1
) -> tuple[list[str], Report]:
    """The decisions, as `at job attempt outcome engine-or-reason`, and the report."""
    out, report = lines_of(fleet(mode, more, engines, local_slots), *happenings)
    found = [json.loads(line) for line in out]
    told = [f"{x['at']:g} {x['job']} {x['attempt']} {x['outcome']} {x['engine'] or x['reason']}" for x in found]
    return told, report


def job(at: float, name: str, seconds: float = 60, **more: object) -> dict[str, Any]:
    """An arrival."""
    return {"at": at, "job": name, "seconds": {"*": seconds}, **more}


def event(at: float, name: str, engine: str = "near", **more: object) -> dict[str, Any]:
    """Something that happens to an engine."""
    return {"at": at, "engine": engine, "event": name, **more}


def test_a_held_job_overflows_at_the_threshold_and_takes_a_unit() -> None:
    """The second job is held; ten seconds later it is paid for; the third finds the cap spent and waits for local."""
    told, report = played(job(0, "a"), job(1, "b"), job(2.5, "c"))
    assert told == [
        "0 a 1 assign near",
        "1 b 1 hold held",
        "2.5 c 1 hold held",
        "11 b 1 overflow far",
        "11 c 1 wait slots_full",
        "60 c 1 assign near",
    ]
    found = report.to_json()
    assert (found["overflows"], found["cap"]["limit"], found["cap"]["used"]) == (1, 1, 1)
    assert found["waits"] == {"p50": 10.0, "p95": 57.5, "max": 57.5, "mean": 22.5}
    assert found["makespan"] == 120.0


def test_a_held_job_takes_a_slot_that_comes_free_first() -> None:
    """Local work is never passed over: at five seconds the slot is free, and nothing is paid."""
    told, report = played(job(0, "a", 5), job(1, "b"))
    assert told == ["0 a 1 assign near", "1 b 1 hold held", "5 b 1 assign near"]
    assert report.to_json()["overflows"] == 0


def test_a_slot_freed_at_an_instant_goes_to_who_arrives_at_it() -> None:
    """Completions come before arrivals."""
    told, _ = played(job(0, "a", 5), job(5, "b"))
    assert told == ["0 a 1 assign near", "5 b 1 assign near"]


def test_fleet_events_come_before_completions_and_arrivals() -> None:
    """Gone at the instant at which its run ends: the run ends well, the next job finds no local engine."""
    told, report = played(job(0, "a", 5), job(5, "b"), event(5, "down"))
    assert told == ["0 a 1 assign near", "5 b 1 fallback far"]
    assert report.to_json()["jobs"]["succeeded"] == 2


def test_the_queue_goes_by_priority_then_by_order_of_arrival() -> None:
    """One slot, freed every five seconds; the last to come is the first to go."""
    told, _ = played(job(0, "a", 5), job(1, "b", 5), job(1, "c", 5), job(2, "d", 5, priority=1))
    granted = [line for line in told if "assign" in line]
    assert granted == ["0 a 1 assign near", "5 d 1 assign near", "10 b 1 assign near"]
    assert "11 c 1 overflow far" in told


def test_a_cap_unit_comes_back_at_midnight() -> None:
    """With no local engine left each paid run takes a unit; the second job waits for the new day."""
    told, report = played(event(0, "down"), job(3600, "a"), job(3601, "b"))
    assert told == ["3600 a 1 fallback far", "3601 b 1 wait cap_spent", f"{MIDNIGHT} b 1 fallback far"]
    assert [(day["day"], day["used"]) for day in report.to_json()["cap"]["days"]] == [(0, 1), (1, 1)]


PAID_ALONE = """
[engines]
paid_daily_cap = 1
paid_daily_cap_covers = "{covers}"
[engine.far]
kind = "noop"
"""


def test_a_cap_that_covers_all_stops_a_fleet_without_local_engines() -> None:
    """The second job waits for the new day; a cap of exceptions lets it run, and the report counts both runs."""
    both = [job(3600, "a"), job(3601, "b")]
    out, report = lines_of(settings_from(PAID_ALONE.format(covers="all")), *both)
    assert [json.loads(line)["at"] for line in out if '"assign"' in line] == [3600, MIDNIGHT]
    assert json.loads(out[1])["reason"] == "cap_spent"
    cap = report.to_json()["cap"]
    assert ([day["used"] for day in cap["days"]], cap["outside"]) == ([1, 1], 0)
    out, report = lines_of(settings_from(PAID_ALONE.format(covers="exceptions")), *both)
    assert [json.loads(line)["at"] for line in out] == [3600, 3601]
    cap = report.to_json()["cap"]
    assert (cap["used"], cap["outside"], cap["days"]) == (0, 2, [])


def test_a_wait_is_told_again_only_when_its_reason_changes() -> None:
    """Between two and forty seconds nothing changes for the second job; then its engine goes."""
    told, report = played(
        job(0, "a", 100), job(2, "b", exclude=["far"]), job(20, "c", exclude=["far"]), event(40, "down")
    )
    assert told == [
        "0 a 1 assign near",
        "2 b 1 wait slots_full",
        "20 c 1 wait slots_full",
        "40 b 1 wait no_eligible_engine",
        "40 c 1 wait no_eligible_engine",
    ]
    assert report.to_json()["jobs"] == {
        "succeeded": 1,
        "failed": 0,
        "queued": 2,
        "reasons": {"no_eligible_engine": 2},
    }


def test_three_failures_open_a_circuit_which_probes_after_five_minutes_and_ramps_up() -> None:
    """Retries are immediate here; the fourth attempt is the probe; three slots come back one by one."""
    local_only = {"exclude": ["far"]}
    told, _ = played(
        event(0, "fail", value="engine"),
        job(1, "a", 10, **local_only),
        event(100, "up"),
        *(job(200, name, 10, **local_only) for name in "bcdefg"),
        local_slots=3,
    )
    assert told[:4] == [
        "1 a 1 assign near",
        "1 a 2 assign near",
        "1 a 3 assign near",
        "1 a 4 wait no_eligible_engine",
    ]
    granted = [line for line in told if "assign" in line][3:]
    assert granted == [
        "301 a 4 assign near",
        "311 b 1 assign near",
        "321 c 1 assign near",
        "321 d 1 assign near",
        "331 e 1 assign near",
        "331 f 1 assign near",
        "331 g 1 assign near",
    ]


def test_a_failing_probe_waits_twice_as_long() -> None:
    """Five minutes, then ten, while the engine stays ill."""
    told, _ = played(
        event(0, "fail", value="engine"), job(0, "a", exclude=["far"]), event(2000, "up"), more="max_attempts = 6"
    )
    assert [line for line in told if "assign" in line] == [
        "0 a 1 assign near",
        "0 a 2 assign near",
        "0 a 3 assign near",
        "300 a 4 assign near",
        "900 a 5 assign near",
        "2100 a 6 assign near",
    ]


def test_a_spent_window_opens_until_it_resets_and_counts_no_attempt() -> None:
    """The attempt is given back, and so is nothing else; at the reset the very same attempt is the probe."""
    told, _ = played(event(0, "fail", value="window", resets_in=40), job(1, "a", exclude=["far"]), event(30, "up"))
    assert told == ["1 a 1 assign near", "1 a 1 wait no_eligible_engine", "41 a 1 assign near"]


def test_spent_credits_are_probed_after_ten_minutes() -> None:
    """Whatever `resets_in` says: credits have no clock."""
    told, _ = played(event(0, "fail", value="credits", resets_in=5), job(0, "a", exclude=["far"]), event(1, "up"))
    assert told[-1] == "600 a 1 assign near"


def test_a_refused_login_waits_for_a_person() -> None:
    """No probe, however long; `up` is the repair."""
    told, _ = played(event(0, "fail", value="login"), job(0, "a", exclude=["far"]), event(5000, "up"))
    assert told == ["0 a 1 assign near", "0 a 1 wait no_eligible_engine", "5000 a 1 assign near"]
    _, report = played(event(0, "fail", value="login"), job(0, "a", exclude=["far"]))
    assert report.to_json()["jobs"]["reasons"] == {"no_eligible_engine": 1}


def test_a_busy_server_is_full_for_a_poll_and_its_circuit_stays_closed() -> None:
    """Full, not gone: no paid fallback; looked at again after thirty seconds."""
    told, _ = played(event(0, "fail", value="busy"), job(0, "a", exclude=["far"]), event(10, "up"))
    assert told == ["0 a 1 assign near", "0 a 1 wait slots_full", "30 a 1 assign near"]


def test_runs_under_way_end_when_their_engine_fails() -> None:
    """At the instant of the event, even where the engine is up again at the same one."""
    told, _ = played(
        job(0, "a", 100, exclude=["far"]), event(50, "fail", value="window", resets_in=20), event(50, "up")
    )
    assert told == ["0 a 1 assign near", "50 a 1 wait no_eligible_engine", "70 a 1 assign near"]


def test_a_refused_overflow_gives_its_unit_back() -> None:
    """It did no work: the next one may have the unit, though the cap is one."""
    told, report = played(
        job(0, "a", 500),
        event(1, "fail", "far", value="window", resets_in=30),
        job(2, "b", 100),
        event(13, "up", "far"),
    )
    assert told == [
        "0 a 1 assign near",
        "2 b 1 hold held",
        "12 b 1 overflow far",
        "12 b 1 wait slots_full",
        "42 b 1 overflow far",
    ]
    assert report.to_json()["cap"]["used"] == 1


def test_an_attempt_that_always_fails_ends() -> None:
    """As many as are allowed, at one instant, and the job has failed."""
    told, report = played(event(0, "fail", value="engine"), job(0, "a", exclude=["far"]), more="max_attempts = 2")
    assert told == ["0 a 1 assign near", "0 a 2 assign near"]
    assert report.to_json()["jobs"]["failed"] == 1


def test_a_session_stays_with_its_engine_until_it_is_forgotten() -> None:
    """Plain rotation would go near, desk, near, desk; the session keeps its own until a hundred seconds have passed."""
    told, _ = played(
        job(0, "a", 1, session="s"), job(10, "b", 1, session="s"), job(20, "c", 1), job(30, "d", 1, session="s"),
        engines=TWO_LOCAL,
    )  # fmt: skip
    assert told == ["0 a 1 assign near", "10 b 1 assign near", "20 c 1 assign desk", "30 d 1 assign near"]
    told, _ = played(job(0, "a", 1, session="s"), job(102, "b", 1, session="s"), engines=TWO_LOCAL)
    assert told == ["0 a 1 assign near", "102 b 1 assign desk"]


def test_a_demoted_engine_serves_last() -> None:
    """A hundredth of its weight, until it is restored."""
    told, _ = played(
        event(0, "demote"), *(job(10 * n, f"j{n}", 1) for n in range(3)), event(30, "restore"), job(30, "k", 1),
        engines=TWO_LOCAL,
    )  # fmt: skip
    assert [line.split()[-1] for line in told] == ["desk", "desk", "desk", "near"]


def test_slots_change_when_the_trace_says_so() -> None:
    """A second slot takes the waiting job at once; back to one, the third waits until both have ended."""
    told, _ = played(
        job(0, "a", 50, exclude=["far"]),
        job(1, "b", 60, exclude=["far"]),
        event(10, "slots", value=2),
        event(20, "slots", value=1),
        job(21, "c", exclude=["far"]),
    )
    assert told == [
        "0 a 1 assign near",
        "1 b 1 wait slots_full",
        "10 b 1 assign near",
        "21 c 1 wait slots_full",
        "70 c 1 assign near",
    ]


def test_an_idle_lower_tier_was_not_needed() -> None:
    """It was never offered anything, so nothing was to be expected of it."""
    _, report = played(job(0, "a", 30), job(100, "b", 30))
    near, far = report.to_json()["engines"]
    assert (near["picks"], near["share"], near["expected_share"], near["remark"]) == (2, 1.0, 1.0, "")
    assert (far["picks"], far["share"], far["expected_share"], far["busy"]) == (0, 0.0, 0.0, 0.0)
    assert far["remark"] == "not needed so far"
    assert near["busy"] == pytest.approx(60 / 130, abs=1e-6)


def test_auto_measures_the_simulated_past() -> None:
    """First there is none, and jobs wait for local. An hour later three were seen, of which two had waited: hybrid."""
    told, _ = played(
        *(job(0, name, 100) for name in "abc"),
        *(job(3601, name, 100) for name in "de"),
        mode="auto",
        more="auto_min_sessions = 3\nauto_max_age_hours = 1",
    )
    assert told == [
        "0 a 1 assign near",
        "0 b 1 wait slots_full",
        "0 c 1 wait slots_full",
        "100 b 1 assign near",
        "200 c 1 assign near",
        "3601 d 1 assign near",
        "3601 e 1 hold held",
        "3611 e 1 overflow far",
    ]


def test_the_decisions_file_has_one_form() -> None:
    """Compact, in one order of keys, instants as short as they can be."""
    out, _ = lines_of(fleet(), job(1.250, 'é"n'), {"at": 2, "job": 3})
    assert out[:2] == [
        '{"at":1.25,"job":"é\\"n","attempt":1,"outcome":"assign","engine":"near","tier":"local","reason":null}\n',
        '{"at":2,"job":"3","attempt":1,"outcome":"hold","engine":null,"tier":null,"reason":"held"}\n',
    ]


def test_a_deep_queue_costs_a_decision_no_more() -> None:
    """Calls for each line, with two hundred jobs queued and with two thousand: what waits costs nothing."""

    def calls_a_line(jobs: int) -> float:
        settings = fleet()
        lines = [json.dumps(job(0, str(number), 10, project="ab"[number % 2])) for number in range(jobs)]
        trace = parse(lines, "deep", settings.engine, set())
        out: list[str] = []
        count = 0

        def called(_frame: FrameType, kind: str, _argument: object) -> None:
            nonlocal count
            count += kind in {"call", "c_call"}

        sys.setprofile(called)
        try:
            simulate(settings, trace, out.append)
        finally:
            sys.setprofile(None)
        return count / len(out)

    assert calls_a_line(2000) < 1.15 * calls_a_line(200)


def test_a_job_that_is_refused_early_again_and_again_never_fails_of_it() -> None:
    """A window of a week, looked at every ten minutes: a thousand refusals, and it is still the first attempt."""
    week = 7 * 86_400
    told, report = played(
        event(0, "fail", value="window", resets_in=week),
        job(0, "a", exclude=["far"]),
        event(week - 60, "up"),
        more="recheck_seconds = 600",
    )
    granted = [line for line in told if "assign" in line]
    assert granted == [f"{600 * look} a 1 assign near" for look in range(week // 600 + 1)]
    assert report.to_json()["jobs"]["succeeded"] == 1
