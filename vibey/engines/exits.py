"""Exits: what the end of a process means. One table, for every kind that runs a program.

| the end | class |
|---|---|
| exit 0 | success |
| exit 69 (EX_UNAVAILABLE) | CAPACITY, busy |
| exit 75 (EX_TEMPFAIL) | HANDOFF |
| exit 78 (EX_CONFIG) | MISCONFIGURED |
| exit 124 (`timeout`), exit 137 (a shell's word for KILL), death by any signal | ENGINE |
| any other exit | WORK |
| no such program, not executable, not a program | MISCONFIGURED |
| could not be started for want of memory or processes, while its file is replaced, or by a failing disk | ENGINE |
| its supervisor was killed | VIBEY |
| ended by us for a timeout or a stall | ENGINE |
"""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING

from vibey.domain.outcome import CapacityKind, Failure, FailureClass, one_line

if TYPE_CHECKING:
    from vibey.engines.contract import Exit

_CLASS_OF_CODE = {
    69: FailureClass.CAPACITY,
    75: FailureClass.HANDOFF,
    78: FailureClass.MISCONFIGURED,
    124: FailureClass.ENGINE,
    137: FailureClass.ENGINE,
}
# Why a program cannot be started at this moment, which says nothing against how its engine is configured.
_PASSING = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.EMFILE, errno.ETXTBSY, errno.EIO, errno.ESTALE, errno.EINTR}
)


def failure_of_exit(ending: Exit, program: str, last_line: str = "") -> Failure | None:
    """The failure an end means, None for success; `last_line` of the output explains it to people."""
    if ending.errno is not None:
        return _not_started(ending.errno, program)
    if ending.stopped is not None:
        return Failure(FailureClass.ENGINE, f"{program} was ended: {ending.stopped.value}")
    if ending.guard_lost or ending.code is None:
        return Failure(FailureClass.VIBEY, f"the supervisor of {program} died")
    if ending.code == 0:
        return None
    failure_class = _class_of(ending.code)
    kind = CapacityKind.BUSY if failure_class is FailureClass.CAPACITY else None
    return Failure(failure_class, _detail(ending.code, last_line), kind)


def _class_of(code: int) -> FailureClass:
    if code < 0:
        return FailureClass.ENGINE
    return _CLASS_OF_CODE.get(code, FailureClass.WORK)


def _detail(code: int, last_line: str) -> str:
    how = f"killed by {_signal_name(-code)}" if code < 0 else f"exit {code}"
    return one_line(f"{how}: {last_line}" if last_line.strip() else how)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _not_started(number: int, program: str) -> Failure:
    failure_class = FailureClass.ENGINE if number in _PASSING else FailureClass.MISCONFIGURED
    return Failure(failure_class, one_line(f"{program} cannot be started: {os.strerror(number)}"))
