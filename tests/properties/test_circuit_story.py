"""Whole simulations of one account against its story: who may start when, from its first failure to its last slot."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.accounts import Account, tell
from tests.support.oracles import Guard
from vibey.settings import Source, settings_of
from vibey.simulate.run import simulate
from vibey.simulate.trace import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
Happening = tuple[int, str, str, int]
moments = st.integers(0, 60) | st.integers(0, 7200) | st.sampled_from([300, 600, 900, 1200])
jobs = st.builds(
    lambda at, seconds, count: [(at, "job", "", seconds)] * count,
    moments,
    st.sampled_from([0, 1, 60]) | st.integers(0, 1500),
    st.integers(1, 8),
)
failures = st.tuples(
    moments,
    st.sampled_from(["engine", "window", "credits", "login"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([0, 60, 3600, 18_000]),
)
recoveries = st.tuples(moments, st.just("up"), st.sampled_from(["a", "b"]), st.just(0))


def granted(happenings: Sequence[Happening], slots: dict[str, int], recheck: int) -> list[tuple[int, int, str]]:
    """What a simulation grants: milliseconds, the job's number and the engine."""
    tables = {
        "engines": {
            "mode": "singleton",
            "recheck_seconds": recheck,
            "retry_backoff_seconds": 0,
            "max_attempts": 100,
            "slots": slots,
        },
        "engine": {name: {"kind": "noop", "tier": "local", "account": "home"} for name in slots},
    }
    settings = settings_of(Source(None, HERE, tables), {})
    number, lines = 0, []
    for at, what, engine, value in happenings:
        line: dict[str, Any] = {"at": at, "engine": engine, "event": what}
        if what == "job":
            number += 1
            line = {"at": at, "job": str(number), "seconds": {"*": value}, "effort": "max"}
        elif what != "up":
            line |= {"event": "fail", "value": what, "resets_in": value}
        lines.append(json.dumps(line))
    out: list[str] = []
    simulate(settings, parse(lines, "drawn", slots, set()), out.append)
    told = [json.loads(line) for line in out]
    return [(round(line["at"] * 1000), int(line["job"]), line["engine"]) for line in told if line["engine"]]


@given(
    st.lists(jobs, min_size=1, max_size=6),
    st.lists(failures, max_size=5),
    st.lists(recoveries, max_size=5),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([0, 0, 45, 600, 1800]),
)
def test_an_account_s_runs_are_those_of_its_story(
    work: list[list[Happening]],
    failing: list[Happening],
    recovering: list[Happening],
    a: int,
    b: int,
    recheck: int,
) -> None:
    """No run that the circuit, the probe or the ramp forbids, and none left out that they allow, at any instant."""
    happenings = sorted([*(job for batch in work for job in batch), *failing, *recovering], key=lambda each: each[0])
    # In the end both are well, so that every story has one.
    last = happenings[-1][0]
    happenings += [(last + 1, "up", "a", 0), (last + 1, "up", "b", 0)]
    slots = {"a": a, "b": b}
    tell(Account(slots, Guard(recheck * 1000, jitter=0)), happenings, granted(happenings, slots, recheck))


def starts(happenings: Sequence[Happening], slots: dict[str, int], recheck: int = 0) -> list[float]:
    """The instants of a simulation's grants, in minutes."""
    return [at / 60_000 for at, _, _ in granted(happenings, slots, recheck)]


def test_a_window_with_a_reset_is_probed_there_and_nowhere_before() -> None:
    """Five hours, one job: at its refusal, and at the reset."""
    story: list[Happening] = [(0, "window", "a", 18_000), (0, "job", "", 1), (600, "up", "a", 0)]
    assert starts(story, {"a": 1}) == [0, 300]


def test_a_recheck_finds_a_window_that_was_reset_early() -> None:
    """Well again after two hours and ten minutes: found at the next half hour, one job at a time until then."""
    story: list[Happening] = [(0, "window", "a", 18_000), *[(0, "job", "", 60)] * 9, (7800, "up", "a", 0)]
    early = starts(story, {"a": 4}, 1800)
    assert early == [0, 0, 0, 0, 30, 60, 90, 120, 150, 151, 152, 152, 153, 153, 153, 153, 154]
    assert starts(story, {"a": 4})[4] == 300


def test_credits_and_failures_keep_their_schedule_under_a_recheck() -> None:
    """Every step of both, to the minute, while the account stays ill for three hours."""
    for kind, steps in (("credits", [0, 10, 30, 60, 90, 120, 150]), ("engine", [0, 0, 0, 5, 15, 35, 65, 95, 125, 155])):
        story: list[Happening] = [(0, kind, "a", 60), (0, "job", "", 1), (10_000, "up", "a", 0)]
        assert starts(story, {"a": 1}, 120)[: len(steps)] == steps


def test_engines_of_one_account_open_and_ramp_together() -> None:
    """One of them is refused; the other, well all the time, waits with it. Each has as many slots as successes."""
    story: list[Happening] = [(0, "window", "a", 300), (0, "job", "", 60), (61, "up", "a", 0)]
    story += [(200, "job", "", 60)] * 24
    told = [(at // 1000, engine) for at, _, engine in granted(story, {"a": 4, "b": 4}, 0)]
    widths = {at: Counter(engine for each, engine in told if each == at) for at, _ in told}
    assert list(widths) == [0, 300, 360, 420, 480, 540]
    assert [sum(each.values()) for each in widths.values()] == [1, 1, 2, 6, 8, 8]
    assert [widths[at] for at in (360, 420, 480)] == [{"a": 1, "b": 1}, {"a": 3, "b": 3}, {"a": 4, "b": 4}]


def test_a_run_begun_before_closes_the_circuit_of_its_account() -> None:
    """Long ahead of the reset: the success of the one engine is the end of the other's wait."""
    story: list[Happening] = [(0, "window", "a", 18_000), *[(0, "job", "", 60)] * 3, (30, "up", "a", 0)]
    told = sorted((at // 1000, engine) for at, _, engine in granted(story, {"a": 1, "b": 1}, 0))
    assert told == [(0, "a"), (0, "b"), (60, "a"), (60, "b")]
