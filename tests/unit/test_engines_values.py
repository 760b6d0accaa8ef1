"""Small values of supervision: moments, leases, marks, launches, outcomes."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.domain.outcome import CapacityKind, Failure, FailureClass
from vibey.engines import proctable
from vibey.engines.launch import Launch, receive
from vibey.engines.marks import Marks
from vibey.engines.moment import Moment
from vibey.engines.watch import Limits

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


def test_lease_arithmetic_leaves_a_margin() -> None:
    """The tree's end lies a tenth of the lease before the lease's, the next renewal a third after the last."""
    sent = Moment(1_000_000_000, 5_000_000_000)
    limits = Limits(lease_seconds=60, timeout_seconds=1)
    assert limits.safe_end(sent) == Moment(55_000_000_000, 59_000_000_000)
    assert limits.next_due(sent) == Moment(21_000_000_000, 25_000_000_000)


def test_moment_comes_by_either_clock() -> None:
    """A moment has come when the clock that counts sleep says so, even if the other does not."""
    now = Moment.now()
    assert not now.plus(100).has_come()
    assert Moment(now.plus(100).monotonic_ns, now.boot_ns).has_come()
    assert Moment(now.monotonic_ns, now.plus(100).boot_ns).seconds_left() == 0
    assert 99 < now.plus(100).seconds_left() <= 100


def test_marks_survive_the_environment() -> None:
    """Marks are read back as written, and foreign or broken ones are none."""
    marks = Marks("site-1", 7, 70, 9)
    assert Marks.found_in(marks.variables()) == marks
    assert Marks.found_in({"VIBEY_RUN": "1"}) is None
    assert Marks.found_in({**marks.variables(), "VIBEY_JOB": "x"}) is None


@given(
    argv=st.lists(texts, min_size=1, max_size=5),
    values=st.dictionaries(texts.map(lambda t: "N" + t.replace("=", "")), texts),
)
def test_launch_crosses_the_socket_unchanged(argv: list[str], values: dict[str, str]) -> None:
    """Arguments and variables with any characters, empty ones included, arrive as they were sent."""
    sent = Launch(
        holder=1, lease_end=2, lease_end_boot=3, directory="/d", stdin="/i", program="/p", argv=argv, environment=values
    )
    ours, theirs = os.pipe()
    os.write(theirs, sent.packed())
    received = receive(ours)
    os.close(theirs)
    os.close(ours)
    assert received is not None
    assert vars(received) == vars(sent)


def test_launch_cut_short_is_none() -> None:
    """A sender that dies halfway starts nothing."""
    ours, theirs = os.pipe()
    os.write(theirs, b"100\nonly this")
    os.close(theirs)
    assert receive(ours) is None
    os.close(ours)


def test_process_table_knows_us() -> None:
    """The table shows this process below its parent; a signal for an earlier owner of a number is not sent."""
    rows = proctable.table()
    us = rows[os.getpid()]
    assert us.parent == os.getppid()
    assert us.alive
    assert us.pid in {row.pid for row in proctable.descendants(rows, [os.getppid()])}
    stranger = proctable.Process(us.pid, "S", us.parent, us.group, us.started - 1)
    assert not proctable.send(stranger, 9)
    assert proctable.send(us, 0)


def test_capacity_and_its_kind_go_together() -> None:
    """A capacity failure without a kind, or a kind without one, cannot be made."""
    with pytest.raises(ValueError, match="capacity"):
        Failure(FailureClass.CAPACITY, "x")
    with pytest.raises(ValueError, match="work"):
        Failure(FailureClass.WORK, "x", CapacityKind.BUSY)


def test_wait_becomes_an_instant_by_the_given_clock() -> None:
    """A wait is dated once; an instant the provider named stays."""
    waiting = Failure(FailureClass.CAPACITY, "x", CapacityKind.WINDOW, resets_in_ms=500)
    assert waiting.dated(1000).resets_at_ms == 1500
    assert waiting.dated(1000).dated(9000) == waiting.dated(1000)
    assert waiting.did_no_work
