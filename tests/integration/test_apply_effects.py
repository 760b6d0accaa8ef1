"""What a preview reports of queued jobs: those that no engine could serve any more, and those that would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.test_apply import changed
from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.services import control
from vibey.services.apply import apply, plan
from vibey.services.route import route

if TYPE_CHECKING:
    from collections.abc import Callable

LOCAL_OUT = {"l": noop(enabled=False), "p": noop("paid")}
COUNTED = {"mode": "hybrid", "overflow_after_seconds": 600, "paid_daily_cap": 1, "paid_fallback": "count"}


def about_queued(bench: Bench, **tables: Any) -> list[str]:
    """The effects of a changed file on queued jobs, but for the line that there always is."""
    return [each for each in plan(changed(bench, **tables)).effects if "looked at again" not in each]


def test_jobs_pinned_to_an_engine_that_is_removed_or_renamed_are_counted(open_bench: Callable[..., Bench]) -> None:
    """How many, which engine they need, and one of them to look at; also when the change is carried out."""
    bench = open_bench(engine={"desk": noop(), "spare": noop()}, engines={"slots": {"desk": 1}})
    bench.enqueue(2)
    first, *_ = bench.enqueue(3, engines=["desk"])
    told = (
        f"3 queued (such as job {first}) can run only on desk, and on no engine that this leaves: they wait until one "
    )
    renamed = {"bench": noop(), "spare": noop()}
    assert about_queued(bench, engine=renamed, engines={}) == [f"{told}is configured again that can take them"]
    assert about_queued(bench, engine={"desk": noop(weight=2), "spare": noop()}) == []
    assert any(each.startswith(told) for each in apply(changed(bench, engine=renamed, engines={})).plan.effects)
    back = changed(bench, engine={"desk": noop(), "spare": noop()})
    assert not any("can run only" in each for each in plan(back).effects)


@pytest.mark.parametrize(
    ("asked", "engine"),
    [
        ({"engines": ["gone", "other"]}, {"gone": noop(), "other": noop()}),
        ({"capabilities": ("web",)}, {"gone": noop(capabilities=["web"])}),
        ({"exclude": ["stays"]}, {"gone": noop()}),
        ({"payload": {"repo": "/src/site"}}, {"gone": noop(workspace_roots=["/src"])}),
        ({"pool": "side"}, {"gone": noop()}),
    ],
)
def test_whatever_an_engine_was_needed_for_is_found(
    open_bench: Callable[..., Bench], asked: dict[str, Any], engine: dict[str, Any]
) -> None:
    """Pins to several, a capability, an exclusion, a repository, a pool: nothing is left that could serve the job."""
    stays = noop(workspace_roots=["/elsewhere"]) if "payload" in asked else noop()
    side = {"side": {"members": ["gone"]}} if "pool" in asked else {}
    bench = open_bench(engine={"stays": stays, **engine}, pool=side)
    [job] = bench.enqueue(1, **asked)
    left = {"side": {"members": ["stays"]}} if side else {}
    names = ", ".join(engine)
    expected = [] if side else [f"1 queued (job {job}) can run only on {names}, and on no engine that this leaves: it "]
    found = about_queued(bench, engine={"stays": stays}, pool=left)
    assert [each[: len(line)] for each, line in zip(found, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("before", "after", "unit"),
    [
        ({**COUNTED, "paid_daily_cap": 0}, COUNTED, "each takes a unit of the cap"),
        ({**COUNTED, "paid_fallback": "never"}, COUNTED, "each takes a unit of the cap"),
        (
            {**COUNTED, "paid_daily_cap": 0},
            {**COUNTED, "paid_fallback": "allow"},
            "none of them takes a unit of the cap",
        ),
        (
            {**COUNTED, "paid_daily_cap": 0, "paid_fallback": "allow", "paid_daily_cap_covers": "all"},
            {**COUNTED, "paid_daily_cap": 0, "paid_fallback": "allow"},
            "none of them takes a unit of the cap",
        ),
    ],
)
def test_rules_that_let_waiting_jobs_run_paid_are_reported(
    open_bench: Callable[..., Bench], before: dict[str, Any], after: dict[str, Any], unit: str
) -> None:
    """A cap, a fallback rule or what the cap covers: what the router then does is what was said; back says nothing."""
    bench = open_bench(engine=LOCAL_OUT, engines=before)
    first, *_ = bench.enqueue(3)
    route(bench.installation, "main")
    assert bench.live() == []
    rooms = 1 if unit.startswith("each") else 2
    at_once = f"at once, {rooms} of them at the same time"
    told = f"3 queued (such as job {first}) may run on paid engines (p) {at_once}; {unit}"
    assert about_queued(bench, engines=after) == [told]
    assert told in apply(changed(bench, engines=after)).plan.effects
    assert about_queued(bench, engines=before) == []
    bench.staff()
    route(bench.installation, "main")
    assert len(bench.live()) == rooms


def test_a_mode_or_threshold_that_lets_held_jobs_overflow_is_reported(open_bench: Callable[..., Bench]) -> None:
    """From singleton to hybrid after the hold; a shorter threshold at once, where they have been held that long."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid")}, engines={**COUNTED, "mode": "singleton"})
    bench.enqueue(1)
    route(bench.installation, "main")
    [job] = bench.enqueue(1)
    paid = f"1 queued (job {job}) may run on paid engines (p)"
    assert about_queued(bench, engines=COUNTED) == [f"{paid} once held for 600 s; each takes a unit of the cap"]
    apply(changed(bench, engines=COUNTED))
    bench.staff()
    route(bench.installation, "main")
    query(bench.url, "update jobs set held_at = held_at - interval '90 seconds' where held_at is not null")
    sooner = {**COUNTED, "overflow_after_seconds": 60}
    at_once = "at once, 1 of them at the same time"
    assert about_queued(bench, engines=sooner) == [f"{paid} {at_once}; each takes a unit of the cap"]
    assert about_queued(bench, engines={**COUNTED, "overflow_after_seconds": 900}) == []


def test_engines_that_turn_waiting_jobs_to_paid_ones_are_reported(open_bench: Callable[..., Bench]) -> None:
    """The last local engine is taken out; a project that keeps its own rules is judged by those."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid")}, engines={**COUNTED, "mode": "singleton"})
    control.new_project(bench.installation, "web")
    control.set_project(bench.installation, "web", {"paid_fallback": "never"})
    bench.enqueue(1)
    route(bench.installation, "main")
    bench.enqueue(1, project="web")
    [job] = bench.enqueue(1)
    found = about_queued(bench, engine={"l": noop(enabled=False), "p": noop("paid")})
    at_once = "at once, 1 of them at the same time"
    assert found == [f"1 queued (job {job}) may run on paid engines (p) {at_once}; each takes a unit of the cap"]
