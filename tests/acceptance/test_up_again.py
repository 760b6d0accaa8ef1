"""`vibey up` on an installation at work whose file was edited, or that another version runs: what it says and does."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import vibey
from tests.acceptance.test_up_down import Machine
from tests.support.shell import ROOT
from vibey.store import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

DIFFERS = "vibey.toml differs from what is in force (generation {}):"
KEPT = "generation {} stays in force; to apply the file: vibey apply"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine on which everything but Flower runs."""
    made = Machine(tmp_path)
    try:
        made.run("up", "--detach", "--no-flower")
        yield made
    finally:
        made.clear()


def edit(machine: Machine, cap: int) -> None:
    """Have the file say another cap."""
    lines = machine.config.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("paid_daily_cap = ")]
    at = kept.index("[engines]") + 1
    machine.config.write_text("\n".join([*kept[:at], f"paid_daily_cap = {cap}", *kept[at:], ""]), encoding="utf-8")


def generation(machine: Machine) -> int:
    """The number in force."""
    return int(machine.json("status")["generation"])


@pytest.mark.timeout(300)
def test_up_asks_at_a_terminal_whether_to_apply_a_file_that_differs(machine: Machine) -> None:
    """No keeps what is in force and yes applies; --apply does not ask; without a terminal nothing is applied."""
    edit(machine, 7)
    said = machine.run("up", "--detach")
    assert DIFFERS.format(1) in said
    assert "~ paid_daily_cap: 10 → 7" in said
    assert KEPT.format(1) in said
    assert generation(machine) == 1
    refused = machine.at_terminal("up", "--detach", answers={"Apply this? [y/N]: ": "n"})
    assert DIFFERS.format(1) in refused
    assert KEPT.format(1) in refused
    assert generation(machine) == 1
    agreed = machine.at_terminal("up", "--detach", answers={"Apply this? [y/N]: ": "y"})
    assert "applied: generation 2 is in force" in agreed
    assert generation(machine) == 2
    edit(machine, 8)
    unasked = machine.run("up", "--detach", "--apply")
    assert DIFFERS.format(2) in unasked
    assert "applied: generation 3 is in force" in unasked
    assert "differs" not in machine.run("up", "--detach")
    assert generation(machine) == 3


@pytest.mark.timeout(300)
def test_up_after_a_stop_shows_a_file_that_was_edited_meanwhile(machine: Machine) -> None:
    """What is in force stays so and everything starts; with --apply the file is applied first. Beat is at work at once.

    The first tick has been done when `up` returns, so `doctor` does not ask for the command that was just run.
    """
    assert beat(machine) == "ok"
    machine.run("down")
    edit(machine, 7)
    said = machine.run("up", "--detach", "--no-flower")
    assert DIFFERS.format(1) in said
    assert "~ paid_daily_cap: 10 → 7" in said
    assert KEPT.format(1) in said
    assert said.index(KEPT.format(1)) < said.index("\nup: ")
    assert (generation(machine), machine.json("status")["cap"]["limit"]) == (1, 10)
    assert beat(machine) == "ok"
    machine.run("down")
    applied = machine.run("up", "--detach", "--no-flower", "--apply")
    assert applied.index(DIFFERS.format(1)) < applied.index("applied: generation 2 is in force")
    assert (generation(machine), machine.json("status")["cap"]["limit"]) == (2, 7)


def beat(machine: Machine) -> str:
    """What doctor finds of beat."""
    [state] = [each["state"] for each in machine.json("doctor")["checks"] if each["name"] == "beat"]
    return str(state)


@pytest.mark.timeout(300)
def test_up_of_another_version_says_what_runs(machine: Machine, tmp_path: Path) -> None:
    """Programs of another version are named with what to do; of another schema, nothing is touched beside them."""
    newer = tmp_path / "newer"
    shutil.copytree(ROOT / "vibey", newer / "vibey", ignore=shutil.ignore_patterns("__pycache__"))
    _replace(newer / "vibey" / "__init__.py", f'"{vibey.__version__}"', '"9.9"')
    said = machine.run("up", "--detach", PYTHONPATH=str(newer))
    assert f"is of version {vibey.__version__}; this is 9.9" in said
    assert "run: vibey down, then: vibey up" in said
    assert "running already" in said
    _replace(newer / "vibey" / "store" / "migrate.py", f'HEAD = "{migrate.HEAD}"', 'HEAD = "9999"')
    process = machine.start("up", "--detach", PYTHONPATH=str(newer))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 3
    assert f"the schema is at {migrate.HEAD}, and this version (9.9) has 9999" in err
    assert machine.pid("build")


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")
