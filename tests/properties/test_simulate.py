"""Simulations against one that takes no short cuts, and the promises read off their decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.plain_simulation import PlainSimulation
from tests.support.promises import broken
from vibey.settings import Settings, Source, settings_of
from vibey.simulate.run import simulate
from vibey.simulate.trace import Trace, parse

HERE = Path(__file__).parent
ENGINES = {
    "near": {"kind": "noop", "tier": "local"},
    "desk": {"kind": "noop", "tier": "local", "weight": 2, "capabilities": ["web"], "account": "home"},
    "plan": {"kind": "noop", "account": "vendor", "weight": 3},
    "api": {"kind": "noop", "account": "vendor", "capabilities": ["web"], "price_in": 3.0},
}
TIERED: dict[str, Any] = {
    "main": {"select": "ordered", "members": [{"pool": "mine"}, {"pool": "bought"}]},
    "mine": {"select": "tiered", "members": [{"engine": "near", "tier": 1}, {"engine": "desk", "tier": 2}]},
    "bought": {"select": "tiered", "tier_by": "weight", "when_full": "wait", "members": ["plan", "api"]},
}
moments = st.integers(0, 40) | st.integers(0, 4000) | st.sampled_from([86_399, 86_400, 90_000])

arrivals = st.fixed_dictionaries(
    {"at": moments},
    optional={
        "project": st.sampled_from(["shop", "site", "lab"]),
        "priority": st.integers(-1, 1),
        "effort": st.sampled_from(["low", "high", "max"]),
        "requires": st.sampled_from([[], ["web"]]),
        "exclude": st.sampled_from([[], ["near"], ["plan", "api"]]),
        "session": st.sampled_from(["talk", "walk"]),
        "seconds": st.dictionaries(st.sampled_from([*ENGINES, "*"]), st.integers(0, 900), max_size=3),
    },
)
mishaps = st.builds(
    lambda at, engine, event, slots, failure, resets: (
        {"at": at, "engine": engine, "event": event}
        | ({"value": slots} if event == "slots" else {})
        | ({"value": failure, "resets_in": resets} if event == "fail" else {})
    ),
    moments,
    st.sampled_from(list(ENGINES)),
    st.sampled_from(["up", "up", "down", "demote", "restore", "slots", "fail", "fail"]),
    st.integers(1, 3),
    st.sampled_from(["engine", "window", "credits", "login", "busy"]),
    st.sampled_from([0, 60, 3600]),
)
policies = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["singleton", "hybrid", "hybrid", "auto"]),
        "overflow_after_seconds": st.sampled_from([0, 5, 60, 600]),
        "paid_daily_cap": st.integers(0, 4),
        "paid_daily_cap_scope": st.sampled_from(["project", "installation"]),
        "paid_daily_cap_covers": st.sampled_from(["exceptions", "all"]),
        "paid_fallback": st.sampled_from(["allow", "count", "never"]),
        "slot_poll_seconds": st.sampled_from([1, 30]),
        "recheck_seconds": st.sampled_from([0, 0, 900, 1800]),
        "auto_min_sessions": st.sampled_from([1, 5]),
        "session_ttl_seconds": st.sampled_from([10, 3600]),
        "max_attempts": st.sampled_from([2, 7]),
        "fair_share": st.booleans(),
        "fair_weights": st.sampled_from([{}, {"shop": 2}, {"shop": 3, "lab": 2}]),
        "priority_age_seconds": st.sampled_from([0, 0, 7, 300]),
        "slots": st.fixed_dictionaries({}, optional={"desk": st.integers(1, 2), "plan": st.integers(1, 3)}),
    }
)
schedules = st.sampled_from([{}, {"noon": {"member": "near", "factor": 3, "from": "00:10", "to": "00:40"}}])


@st.composite
def settings_and_traces(draw: st.DrawFn) -> tuple[Settings, Trace]:
    """A small fleet with some policy and tree, and a short, busy trace for it."""
    tables = {
        "engines": draw(policies),
        "engine": ENGINES,
        "pool": draw(st.sampled_from([{}, TIERED])),
        "schedule": draw(schedules),
    }
    settings = settings_of(Source(None, HERE, tables), {})
    lines = [*draw(st.lists(arrivals, max_size=14)), *draw(st.lists(mishaps, max_size=6))]
    lines.sort(key=lambda line: line["at"])
    named = [line | ({"job": f"j{n}"} if "event" not in line else {}) for n, line in enumerate(lines)]
    return settings, parse([json.dumps(line) for line in named], "drawn", ENGINES, {"web"})


def decided(settings: Settings, trace: Trace) -> list[dict[str, Any]]:
    """What a simulation decides."""
    out: list[str] = []
    simulate(settings, trace, out.append)
    return [json.loads(line) for line in out]


@given(settings_and_traces())
def test_it_decides_as_one_without_short_cuts(drawn: tuple[Settings, Trace]) -> None:
    """Line by line, whatever happens to fleet, caps, circuits, sessions and clock."""
    settings, trace = drawn
    out: list[str] = []
    simulate(settings, trace, out.append)
    assert "".join(out) == PlainSimulation(settings, trace).play()


@given(settings_and_traces())
def test_the_same_trace_gives_the_same_bytes(drawn: tuple[Settings, Trace]) -> None:
    """Decisions and summary alike."""
    settings, trace = drawn
    first: list[str] = []
    second: list[str] = []
    one, two = simulate(settings, trace, first.append), simulate(settings, trace, second.append)
    assert first == second
    assert json.dumps(one.to_json()) == json.dumps(two.to_json())


@given(settings_and_traces())
def test_promises_are_kept(drawn: tuple[Settings, Trace]) -> None:
    """Slots, one run a job, the cap of each day, and no overflow beside a free local slot, read off the decisions."""
    settings, trace = drawn
    lines = decided(settings, trace)
    assert not broken(settings, trace, lines)
    for line in lines:
        assert line["outcome"] != "fallback" or settings.engines.paid_fallback != "never"
        assert (line["engine"] is None) == (line["outcome"] in {"hold", "wait"}) == (line["reason"] is not None)


def test_a_broken_promise_is_seen() -> None:
    """The reader of promises is no rubber stamp."""
    settings = settings_of(Source(None, HERE, {"engines": {"paid_daily_cap": 0}, "engine": ENGINES}), {})
    trace = parse(['{"at": 0, "job": "a"}', '{"at": 0, "job": "b"}', '{"at": 0, "job": "c"}'], "t", ENGINES, set())
    granted = {"at": 0, "attempt": 1, "outcome": "assign", "engine": "near"}
    told = broken(
        settings,
        trace,
        [
            {**granted, "job": "a"},
            {**granted, "job": "b"},
            {**granted, "job": "a", "engine": "desk"},
            {**granted, "job": "a", "engine": "plan", "outcome": "overflow", "at": 61},
        ],
    )
    assert [each[:3] for each in told] == ["I1:", "I2:", "I5:", "I5:", "I4:", "I3:"]
