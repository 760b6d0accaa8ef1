"""Looking: short commands that a doctor asks a program, bounded in time whatever the program does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from vibey.domain.outcome import one_line
from vibey.engines.contract import Health

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATIENCE_SECONDS = 10.0


class NoAnswer(Exception):
    """A program did not answer in time; the text says which, and how long it was waited for."""


def output_of(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[int | None, str]:
    """Exit code and output, both streams, of a short look; no code if the program cannot be started.

    Raises NoAnswer, once the program and what it started in its group are killed.
    """
    try:
        process = subprocess.Popen(
            tuple(argv),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return None, error.strerror or str(error)
    with process:
        try:
            said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            # The whole group: what the program has started would hold the pipe, and outlive every look.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise NoAnswer(one_line(f"{' '.join(argv)}: no answer within {PATIENCE_SECONDS:g} s")) from None
    return process.returncode, said.decode("utf-8", "replace")


def late(silence: NoAnswer) -> Health:
    """The health of an engine whose program does not answer."""
    return Health(installed=True, late=True, detail=str(silence), fix="run that command by hand to see where it hangs")
