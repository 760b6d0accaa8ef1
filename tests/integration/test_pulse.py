"""Workers' names: one live worker's each, so that no worker answers for another that consumes nothing."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.support.installation import Bench, noop
from vibey.domain.errors import Refused
from vibey.services import pulse

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "build@test"


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """An installation with one engine."""
    return open_bench(engine={"a": noop()})


def beat(bench: Bench, since: pulse.Presence | None = None) -> pulse.Presence | None:
    """A beat of a worker of that name, the first one without the answer to an earlier one."""
    return pulse.appear(bench.installation, pulse.Worker(NAME, ("a",), 2), since and since.started_at)


def age(bench: Bench, column: str, seconds: int) -> None:
    """Make an instant of the row older."""
    bench.rows(f"update workers set {column} = {column} - interval '{seconds} s' where name = '{NAME}' returning name")


def test_of_two_live_workers_with_one_name_the_one_that_began_first_keeps_it(bench: Bench) -> None:
    """The other is given no answer; and the first one's canary stays as silent as it was."""
    first = beat(bench)
    assert first is not None
    age(bench, "canary_at", 60)
    assert (silent := beat(bench, first)) is not None
    assert silent.silent_ms >= 60_000
    second = beat(bench)
    assert second is not None
    assert second.started_at > first.started_at
    assert beat(bench, first) is not None
    assert beat(bench, second) is None
    again = beat(bench, first)
    assert again is not None
    assert again.started_at == first.started_at
    age(bench, "canary_at", 60)
    assert beat(bench, second) is None
    assert (still := beat(bench, first)) is not None
    assert still.silent_ms >= 60_000


def test_a_worker_takes_the_name_of_one_that_has_ended(bench: Bench) -> None:
    """Killed and started again, it needs no patience; nor does one that was cut off while another came and went."""
    first = beat(bench)
    second = beat(bench)
    assert second is not None
    assert second != first
    assert beat(bench, second) is not None
    pulse.leave(bench.installation, pulse.Worker(NAME, (), 2), second.started_at)
    assert beat(bench, first) is not None
    age(bench, "seen_at", 3600)
    assert beat(bench, second) is not None


def test_a_worker_that_leaves_takes_no_row_of_another_away(bench: Bench) -> None:
    """Two workers of one name, host and process number: containers may look like that."""
    first, second = beat(bench), beat(bench)
    assert first is not None
    assert second is not None
    pulse.leave(bench.installation, pulse.Worker(NAME, (), 2), first.started_at)
    assert bench.rows(f"select started_at from workers where name = '{NAME}'") == [(second.started_at,)]


def test_a_name_on_another_machine_is_refused_as_long_as_its_worker_lives(bench: Bench) -> None:
    """The message says where that one is and what to do."""
    beat(bench)
    pulse.require_name(bench.installation, NAME)
    bench.rows(f"update workers set host = 'far', pid = 7 where name = '{NAME}' returning name")
    assert socket.gethostname() != "far"
    with pytest.raises(Refused, match=r"build@test lives already: process 7 on far, seen \d+ s ago; .*--hostname"):
        pulse.require_name(bench.installation, NAME)
    age(bench, "seen_at", 3600)
    pulse.require_name(bench.installation, NAME)
