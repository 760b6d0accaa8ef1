"""Enqueueing: whole batches or nothing, duplicates return the first job, and every bad input has its own clear line."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.depth import MOST_LEVELS
from vibey.domain.errors import InvalidInput, UnknownName, VibeyError
from vibey.services import views
from vibey.services.enqueue import PAYLOAD_LIMIT, Order, Placed, order_of, orders_of, place, place_in
from vibey.services.explain import explain
from vibey.services.route import route
from vibey.services.run import carry_out

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """An installation with one local engine that can do `web`."""
    return open_bench(engine={"a": noop(capabilities=["web"])})


def test_a_batch_keeps_its_order_and_its_values(bench: Bench) -> None:
    """Jobs get growing numbers in the order they were given, with everything they asked for."""
    orders = [Order(payload={"n": n}, priority=n % 3, effort="high", capabilities=["web"]) for n in range(2500)]
    placed = place(bench.installation, orders)
    assert [each.job_id for each in placed] == list(range(placed[0].job_id, placed[0].job_id + 2500))
    kept = bench.rows("select payload, priority, effort, effort_now, capabilities, state from jobs order by id")
    assert kept == [({"n": n}, n % 3, 3, 3, ["web"], "queued") for n in range(2500)]
    assert bench.value("select count(*) from ledger where kind = 'JobEnqueued'") == 2500


def test_a_duplicate_returns_the_first_job(bench: Bench) -> None:
    """A repeated idempotency key makes no second job, in a later call or in the same batch."""
    first = place(bench.installation, [Order(idempotency_key="k", payload={"n": 1})])[0]
    again = place(bench.installation, [Order(idempotency_key="k"), Order(), Order(idempotency_key="k")])
    assert first.created
    assert [(each.job_id == first.job_id, each.created) for each in again] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert bench.value("select count(*) from jobs") == 2


def test_twice_in_one_new_batch_is_one_job(bench: Bench) -> None:
    """The first of two equal keys in a batch makes the job, the second finds it."""
    placed = place(bench.installation, [Order(idempotency_key="k")] * 2)
    assert [each.created for each in placed] == [True, False]
    assert placed[0].job_id == placed[1].job_id


def test_racing_duplicates_make_one_job(bench: Bench) -> None:
    """Eight producers with the same key at once: one job, and all of them are told its number."""
    with ThreadPoolExecutor(8) as threads:
        placed = list(threads.map(lambda _: place(bench.installation, [Order(idempotency_key="k")])[0], range(8)))
    assert len({each.job_id for each in placed}) == 1
    assert sum(each.created for each in placed) == 1


def test_a_batch_with_keys_keeps_its_order(bench: Bench) -> None:
    """Numbers, places in the queue and answers follow the batch, also over several statements and with ageing."""
    bench.set_default(priority_age_seconds=60)
    random.Random(4).shuffle(keys := [f"k{n}" for n in range(2500)])
    orders = [Order(payload={"n": n}, idempotency_key=key if n % 5 else None) for n, key in enumerate(keys)]
    placed = place(bench.installation, orders)
    assert all(each.created for each in placed)
    assert [each.job_id for each in placed] == sorted(each.job_id for each in placed)
    kept = bench.rows("select payload ->> 'n', idempotency_key from jobs order by standing, id")
    assert kept == [(str(n), order.idempotency_key) for n, order in enumerate(orders)]
    again = place(bench.installation, orders[1:5])
    assert again == [Placed(each.job_id, created=False) for each in placed[1:5]]


def test_batches_of_the_same_keys_in_any_order_wait_for_one_another(bench: Bench) -> None:
    """No two batches wait for one another in a circle, however their keys overlap: each goes through, once."""
    keys = [f"k{n}" for n in range(1500)]

    def enqueue(seed: int) -> list[Placed]:
        chance = random.Random(seed)
        mine = chance.sample(keys, 1200)
        # In a transaction that is not tried again, as `place` would after a deadlock.
        with bench.installation.database.begin() as connection:
            return place_in(connection, bench.installation, [Order(idempotency_key=key) for key in mine])

    with ThreadPoolExecutor(6) as threads:
        batches = list(threads.map(enqueue, range(12)))
    assert sum(each.created for batch in batches for each in batch) == bench.value("select count(*) from jobs")
    assert bench.value("select count(distinct idempotency_key) = count(*) from jobs")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"payload": [1]}, "payload: .* expected a JSON object"),
        ({"payload": {"x": float("nan")}}, "payload: .* expected JSON values only"),
        ({"payload": {"x": "a\x00b"}}, "payload: .* without NUL"),
        ({"payload": {"x": "\ud800"}}, "payload: .* valid Unicode"),
        (
            {"payload": {"x": "y" * PAYLOAD_LIMIT}},
            "payload: .* expected at most 262144 bytes; put large input in a file",
        ),
        ({"project": "nope"}, "unknown project 'nope'; known: default"),
        ({"project": 7}, "project: 7 is not usable"),
        ({"pool": "nope"}, "unknown pool 'nope'; known: main"),
        ({"exclude": ["zzz"]}, "unknown engine 'zzz'; known: a"),
        ({"exclude": "a"}, "exclude: 'a' is not usable; expected a list"),
        ({"capabilities": ["fly"]}, "unknown capability 'fly'; known: web"),
        ({"effort": "extreme"}, "effort: .* expected one of trivial, low, standard, high, max, ultra"),
        ({"priority": 1.5}, "priority: 1.5 is not usable; expected a whole number"),
        ({"priority": True}, "priority: True is not usable"),
        ({"priority": 10**9}, "priority: .* from -1000000 to 1000000"),
        ({"max_attempts": 0}, "max_attempts: 0 is not usable; expected a whole number from 1 to 100"),
        ({"deadline_seconds": -1}, "deadline_seconds: -1 is not usable"),
        ({"idempotency_key": ""}, "idempotency_key: '' is not usable"),
        ({"session": "a\nb"}, "session: .* printable"),
        ({"colour": "red"}, "job: 'colour' is not usable; expected one of the keys"),
    ],
)
def test_bad_input_is_named_and_writes_nothing(bench: Bench, values: dict[str, Any], message: str) -> None:
    """Each mistake is told by field, value and what would do; the good job beside it is not enqueued either."""
    with pytest.raises(VibeyError, match=message):
        place(bench.installation, [Order(), order_of(values)])
    assert bench.value("select count(*) from jobs") == 0
    assert bench.value("select count(*) from ledger where job_id is not null") == 0


def test_text_that_only_looks_like_nul_is_fine(bench: Bench) -> None:
    """A backslash followed by u0000 is ordinary text."""
    place(bench.installation, [Order(payload={"x": "\\u0000 \\\\u0000 ü ☂ 🛠"})])
    assert bench.value("select payload from jobs") == {"x": "\\u0000 \\\\u0000 ü ☂ 🛠"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{oops", "line 3: .* expected one JSON object"),
        ("[1]", r"line 3: \[1\] is not usable"),
        ('{"payload": 3}', "line 3: payload: 3 is not usable"),
        ('{"payloud": {}}', "line 3: job: 'payloud'"),
        ('{"prompt": "a"}', r"""line 3: job: 'prompt' .*; a prompt stands under payload, {"payload": "…"}, and"""),
    ],
)
def test_a_broken_line_is_named_by_its_number(line: str, message: str) -> None:
    """The first bad line of a batch file is told by number; empty lines count but are no jobs."""
    good = json.dumps({"payload": {"n": 1}})
    with pytest.raises(InvalidInput, match=message):
        orders_of([good, "", line, good], asdict(Order()))


def test_a_job_may_name_the_engines_that_may_run_it(open_bench: Callable[..., Bench]) -> None:
    """By name, beside what it excludes itself; the others are not excluded."""
    app = {"kind": "celery", "app": "pkg.module:app", "tier": "local"}
    bench = open_bench(engine={"a": noop(), "b": noop(), "c": noop(), "press": app})
    place(bench.installation, [Order(), Order(engines=["c", "a"]), Order(engines=["a", "c"], exclude=["c"])])
    kept = bench.rows("select pinned, excluded, capabilities from jobs order by id")
    assert kept == [([], [], []), (["a", "c"], [], []), (["a", "c"], ["c"], [])]
    with pytest.raises(UnknownName, match="unknown engine 'zzz'"):
        place(bench.installation, [Order(engines=["zzz"])])


def test_an_unknown_name_is_found_only_once_per_batch(bench: Bench) -> None:
    """Names are looked up for the batch, whatever its size."""
    with pytest.raises(UnknownName):
        place(bench.installation, [Order()] * 5000 + [Order(project="nope")])
    assert bench.value("select count(*) from jobs") == 0


def nested(levels: int) -> dict[str, Any]:
    """A payload with so many levels of lists and objects."""
    value: Any = "x"
    for _ in range(levels - 1):
        value = [value]
    return {"x": value}


def test_a_payload_has_as_many_levels_as_every_reader_takes(bench: Bench) -> None:
    """The deepest that is taken can be run, shown and explained; one level more is refused, as is any number more."""
    (job,) = bench.enqueue(1, payload=nested(MOST_LEVELS))
    route(bench.installation, "main")
    ((run, token, _),) = bench.live()
    assert views.job(bench.installation, job)["payload"] == nested(MOST_LEVELS)
    assert explain(bench.installation, job)
    assert carry_out(bench.installation, run, token) == "succeeded"
    for levels in (MOST_LEVELS + 1, 900, 5000):
        with pytest.raises(InvalidInput, match=f"at most {MOST_LEVELS} levels"):
            bench.enqueue(1, payload=nested(levels))


def test_a_payload_that_cannot_be_read_ends_its_run_at_once(bench: Bench) -> None:
    """One that is in the table all the same is a failure of the job's own, and its slot is free again."""
    (job,) = bench.enqueue(1, max_attempts=1)
    deep = "[" * 2000 + "]" * 2000
    query(bench.url, f"update jobs set payload = '{{\"x\": {deep}}}' where id = {job}")
    route(bench.installation, "main")
    ((run, token, _),) = bench.live()
    assert carry_out(bench.installation, run, token) == "failed"
    assert bench.rows("select failure_class, state from runs") == [("work", "failed")]
    assert bench.live() == []
