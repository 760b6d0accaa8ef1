"""The demo's data: its jobs are orders the service takes, and the project they work on is sound."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from vibey.demo.conduct import orders
from vibey.services.enqueue import orders_of, validate

DEMO = Path(str(resources.files("vibey.demo")))
LINES = (DEMO / "jobs.jsonl").read_text(encoding="utf-8").splitlines()
PAYLOADS: list[dict[str, Any]] = [json.loads(line)["payload"] for line in LINES]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project the jobs work on."""
    return shutil.copytree(DEMO / "project", tmp_path / "shop", ignore=shutil.ignore_patterns("__pycache__"))


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this Python in a folder, as the engine does."""
    command = [sys.executable, "-I", "-B", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_forty_orders() -> None:
    """The file holds forty jobs, and each is an order the service accepts."""
    found = orders_of(LINES, {})
    assert len(found) == 40
    for order in found:
        validate(order)


def test_variety() -> None:
    """The jobs differ in capability, effort, priority, branch and kind of change."""
    found = orders_of(LINES, {})
    assert Counter("private" in order.capabilities for order in found) == {False: 32, True: 8}
    assert {order.effort for order in found} == {"low", "high"}
    assert len({order.priority for order in found}) > 2
    assert {payload["ref"] for payload in PAYLOADS} == {"main", "release-1"}
    assert {payload["change"]["kind"] for payload in PAYLOADS} == {"flag", "price", "discount", "conversion"}


def test_a_short_demo_shows_every_ending() -> None:
    """The first eight jobs hold one whose tests fail at first, one that is handed over, and one that is private."""
    first = PAYLOADS[:8]
    assert sum("first_try" in payload for payload in first) == 1
    assert sum("hand_over" in payload for payload in first) == 1
    assert any("private" in order.capabilities for order in orders(8))


def test_more_jobs_than_lines() -> None:
    """A longer demo begins again with the first line, all in one project."""
    assert {order.project for order in orders(90, "demo-7")} == {"demo-7"}
    assert len(orders(90)) == 90
    assert orders(41)[40] == orders(1)[0]


def test_changes_name_what_exists() -> None:
    """Flags and prices change entries the project has."""
    flags = json.loads((DEMO / "project/shop/flags.json").read_text(encoding="utf-8"))
    prices = json.loads((DEMO / "project/shop/catalog.json").read_text(encoding="utf-8"))
    for change in (payload["change"] for payload in PAYLOADS):
        if change["kind"] == "flag":
            assert flags[change["name"]] is not change["value"]
        if change["kind"] == "price":
            assert prices[change["article"]] != change["cents"]


def test_project_passes_its_tests(project: Path) -> None:
    """The project's own tests pass before any job has touched it."""
    done = python(project, "-m", "unittest", "discover", "-s", "tests", "-t", ".")
    assert done.returncode == 0, done.stderr
    assert "Ran 10 tests" in done.stderr


def test_project_builds(project: Path, tmp_path: Path) -> None:
    """The build makes an archive that runs by itself."""
    built = python(project, "build.py", "--out", str(tmp_path / "out"))
    made = json.loads(built.stdout.splitlines()[-1])
    path, size = made["archive"], made["bytes"]
    assert Path(path).stat().st_size == int(size)
    assert python(tmp_path, path, "tea", "mug").stdout.splitlines()[-1].startswith("total")
