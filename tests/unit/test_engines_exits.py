"""The table of ends, row by row."""

from __future__ import annotations

import errno

import pytest

from vibey.domain.outcome import CapacityKind, FailureClass
from vibey.engines.contract import Exit, StopReason
from vibey.engines.exits import failure_of_exit

SPECIAL = {
    69: FailureClass.CAPACITY,
    75: FailureClass.HANDOFF,
    78: FailureClass.MISCONFIGURED,
    124: FailureClass.ENGINE,
    137: FailureClass.ENGINE,
}


@pytest.mark.parametrize("code", range(1, 256))
def test_every_exit_code_has_its_class(code: int) -> None:
    """Five codes mean something; every other one is the work's own failure."""
    failure = failure_of_exit(Exit(code), "prog", "why")
    assert failure is not None
    assert failure.failure_class is SPECIAL.get(code, FailureClass.WORK)
    assert failure.capacity_kind is (CapacityKind.BUSY if code == 69 else None)
    assert failure.detail == f"exit {code}: why"


def test_exit_0_is_no_failure() -> None:
    """Exit 0 is success."""
    assert failure_of_exit(Exit(0), "prog") is None


@pytest.mark.parametrize(
    ("ending", "failure_class", "detail"),
    [
        (Exit(-9), FailureClass.ENGINE, "killed by SIGKILL"),
        (Exit(-64), FailureClass.ENGINE, "killed by SIGRTMAX"),
        (Exit(-99), FailureClass.ENGINE, "killed by signal 99"),
        (
            Exit(None, errno=errno.ENOENT),
            FailureClass.MISCONFIGURED,
            "prog cannot be started: No such file or directory",
        ),
        (Exit(None, errno=errno.EACCES), FailureClass.MISCONFIGURED, "prog cannot be started: Permission denied"),
        (Exit(None, errno=errno.ENOMEM), FailureClass.ENGINE, "prog cannot be started: Cannot allocate memory"),
        (Exit(None, errno=errno.ETXTBSY), FailureClass.ENGINE, "prog cannot be started: Text file busy"),
        (Exit(None, errno=errno.EIO), FailureClass.ENGINE, "prog cannot be started: Input/output error"),
        (Exit(None, guard_lost=True), FailureClass.VIBEY, "the supervisor of prog died"),
        (Exit(None), FailureClass.VIBEY, "the supervisor of prog died"),
        (Exit(-15, stopped=StopReason.STALL), FailureClass.ENGINE, "prog was ended: stall"),
        (Exit(0, stopped=StopReason.TIMEOUT), FailureClass.ENGINE, "prog was ended: timeout"),
    ],
)
def test_other_ends(ending: Exit, failure_class: FailureClass, detail: str) -> None:
    """Signals, failed starts, lost supervisors and our own stops each have their class."""
    failure = failure_of_exit(ending, "prog")
    assert failure is not None
    assert (failure.failure_class, failure.detail) == (failure_class, detail)
