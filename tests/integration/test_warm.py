"""Processes that are forked from a warm one, and those that must not be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.warm import Started, start

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import os, sys
print(sys.argv, os.getcwd(), os.environ["WORD"], os.getsid(0) == os.getpid(), flush=True)
sys.exit(3)
"""


def test_a_forked_process_is_one_of_its_own(tmp_path: Path) -> None:
    """Arguments, folder, environment, session, output and exit status are those it was given."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    log = tmp_path / "log"
    for is_fresh in (False, True):
        environment = {**os.environ, "WORD": f"fresh {is_fresh}"}
        started = start(["program", "one"], folder=tmp_path, environment=environment, log=log, is_fresh=is_fresh)
        assert started.wait(300) == 3, log.read_text(encoding="utf-8")
    for is_fresh, line in zip((False, True), log.read_text(encoding="utf-8").splitlines(), strict=True):
        assert line.endswith(f"'one'] {tmp_path} fresh {is_fresh} True"), line


def test_what_only_a_start_reads_needs_one(tmp_path: Path) -> None:
    """A variable of the loader or of the interpreter is in force in the process, or the process is not started."""
    program = "raise SystemExit(0 if __debug__ else 5)\n"
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    environment, log = {**os.environ, "PYTHONOPTIMIZE": "1"}, tmp_path / "log"
    assert start(["program"], folder=tmp_path, environment=environment, log=log).wait(300) == 5
    with pytest.raises(AssertionError, match="has started already"):
        Started(["program"], folder=tmp_path, environment={**os.environ, "LD_PRELOAD": "/lib.so"}, log=log)
