"""Routed tasks under fire: slots and the cap hold, a killed process runs again, and nothing is run or told twice."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest
from celery import Celery

from tests.support import bookshop
from tests.support.bookshop import Bookshop, most_at_once
from tests.support.wait import HANGING, until
from vibey.services.control import cancel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.fleet import Fleet

pytestmark = pytest.mark.slow

SECONDS = HANGING


@pytest.fixture
def open_shop(open_fleet: Callable[..., Fleet]) -> Iterator[Callable[..., Bookshop]]:
    """A function that opens the sample project beside a fleet of its own, mustered."""
    opened: list[Bookshop] = []

    def opener(**tables: object) -> Bookshop:
        fleet = open_fleet(**tables)
        opened.append(Bookshop(fleet))
        fleet.muster()
        return opened[-1]

    yield opener
    for shop in opened:
        shop.close()


def at_work(shop: Bookshop, count: int) -> list[int]:
    """Wait until so many books are in print; the processes that print them."""

    def printing() -> set[int]:
        return {line.pid for line in shop.diary("alive")} - {line.pid for line in shop.diary("end")}

    until(lambda: len(printing()) >= count, seconds=SECONDS, what=f"{count} bodies at work")
    return sorted(printing())


def test_slots_hold(open_shop: Callable[..., Bookshop], sound: Callable[[Fleet], None]) -> None:
    """However many calls there are, no more bodies are at work at once than the engine has slots."""
    shop = open_shop(engine={"press": bookshop.engine()}, engines={"slots": {"press": 2}})
    gate = shop.fleet.gate("slots")
    results = [shop.tasks.print_book.delay(f"book {number}", gate=str(gate)) for number in range(6)]
    at_work(shop, 2)
    gate.touch()
    assert all("printed by press" in result.get(timeout=SECONDS) for result in results)
    lines = shop.diary("start", "alive", "end")
    assert most_at_once(lines) == 2
    assert len([line for line in lines if line.word == "start"]) == 6
    assert shop.fleet.until_ended() == {"succeeded": 6}
    sound(shop.fleet)


def test_the_cap_holds(open_shop: Callable[..., Bookshop], sound: Callable[[Fleet], None]) -> None:
    """While the local slot is in use, as many calls overflow as the cap allows, and no more; the others wait."""
    tables = {"mode": "hybrid", "overflow_after_seconds": 0, "paid_daily_cap": 2, "slots": {"press": 1, "cloud": 5}}
    engines = {"press": bookshop.engine(), "cloud": bookshop.engine("paid")}
    shop = open_shop(engine=engines, engines=tables)
    gate = shop.fleet.gate("cap")
    wishes = {"engines": ["press", "cloud"]}
    for number in range(5):
        shop.tasks.print_book.apply_async((f"book {number}",), {"gate": str(gate)}, vibey=wishes)
    at_work(shop, 3)
    shop.fleet.until("select count(*) = 2 from jobs where state = 'queued'")
    gate.touch()
    assert shop.fleet.until_ended(seconds=SECONDS) == {"succeeded": 5}
    where = [line.engine for line in shop.diary("start")]
    assert (where.count("cloud"), where.count("press")) == (2, 3)
    assert shop.fleet.value("select count(*) from ledger where kind = 'EngineOverflowSelected'") == 2
    sound(shop.fleet)


def test_a_killed_body_runs_again(open_shop: Callable[..., Bookshop], sound: Callable[[Fleet], None]) -> None:
    """Kill -9 of the engine's process: the call runs again, never twice at once, and has one result."""
    shop = open_shop(engine={"press": bookshop.engine()})
    gate = shop.fleet.gate("kill")
    result = shop.tasks.print_book.delay("Emma", gate=str(gate))
    (first,) = at_work(shop, 1)
    os.kill(first, signal.SIGKILL)
    until(lambda: len({line.pid for line in shop.diary("start")}) == 2, seconds=SECONDS, what="the second body")
    assert result.state == "STARTED"
    gate.touch()
    assert result.get(timeout=SECONDS) == f"Emma printed by press for {result.id}"
    assert most_at_once(shop.diary()) == 1
    assert shop.fleet.until_ended() == {"succeeded": 1}
    sound(shop.fleet)


def test_a_killed_worker(open_shop: Callable[..., Bookshop], sound: Callable[[Fleet], None]) -> None:
    """Kill -9 of a whole worker of ours: its body dies with it, and another worker has the call done."""
    shop = open_shop(engine={"press": bookshop.engine()})
    gate = shop.fleet.gate("worker")
    result = shop.tasks.print_book.delay("Emma", gate=str(gate))
    at_work(shop, 1)
    shop.fleet.members[-1].kill()
    shop.fleet.until("select count(*) = 1 from runs where state = 'lost'", seconds=SECONDS)
    shop.fleet.build("again")
    gate.touch()
    assert result.get(timeout=SECONDS) == f"Emma printed by press for {result.id}"
    assert most_at_once(shop.diary()) == 1
    assert shop.fleet.until_ended() == {"succeeded": 1}
    sound(shop.fleet)


def test_an_end_is_told_by_the_next_worker(open_shop: Callable[..., Bookshop]) -> None:
    """A call cancelled while no worker lives is REVOKED as soon as one with the app is there."""
    shop = open_shop(engine={"press": bookshop.engine()})
    shop.fleet.members[-1].end(seconds=SECONDS)
    result = shop.tasks.print_book.delay("Emma")
    (job,) = shop.jobs(result.id, "id")
    cancel(shop.fleet.installation, job)
    assert result.state == "PENDING"
    shop.fleet.build("next")
    until(lambda: result.state == "REVOKED", seconds=SECONDS, what="the end to be told")


def test_any_celery_app_may_enqueue(open_fleet: Callable[..., Fleet], sound: Callable[[Fleet], None]) -> None:
    """`send_task("vibey.enqueue")` needs the broker's address and key prefix, and nothing of Vibey."""
    fleet = open_fleet(engine={"near": {}})
    fleet.muster()
    services = fleet.settings.services
    stranger = Celery("stranger", broker=services.redis_url, set_as_current=False)
    stranger.conf.broker_transport_options = {"global_keyprefix": services.redis_prefix}
    for priority in (1, 2):
        wishes = {"payload": {"seconds": 0}, "priority": priority, "idempotency_key": "once"}
        stranger.send_task("vibey.enqueue", kwargs=wishes, queue="vibey.enqueue")
    stranger.send_task("vibey.enqueue", kwargs={"payload": {}, "effort": "nonsense"}, queue="vibey.enqueue")
    stranger.close()
    fleet.until("select count(*) > 0 from jobs")
    assert fleet.until_ended(seconds=SECONDS) == {"succeeded": 1}
    control = fleet.members[0]
    until(lambda: "effort: 'nonsense' is not usable" in control.text(), what="the bad job's line in the log")
    assert fleet.value("select count(*) from jobs") == 1
    sound(fleet)


def test_a_program_that_only_knows_the_message(open_shop: Callable[..., Bookshop]) -> None:
    """The payload is the whole call: whoever enqueues it as a plain job has the task run, and its result stored."""
    shop = open_shop(engine={"press": bookshop.engine()})
    call = {
        "id": "from-elsewhere",
        "task": "bookshop.tasks.double",
        "headers": {"id": "from-elsewhere", "task": "bookshop.tasks.double", "retries": 0},
        "body": json.dumps([[21], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]),
        "content_type": "application/json",
        "content_encoding": "utf-8",
    }
    shop.fleet.enqueue(payload={"celery_task": call})
    assert shop.app.AsyncResult("from-elsewhere").get(timeout=SECONDS) == 42
