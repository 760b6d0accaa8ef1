"""`vibey bench --quick --json`: every row can be measured on this machine; how quick it is, is not judged here."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.wait import until
from vibey.bench.reasons import REASONS
from vibey.bench.suite import FAMILIES
from vibey.cli.bench import ROWS

ROOT = Path(__file__).parents[2]
# It waits for workers to start, on whatever machine this is.
pytestmark = [pytest.mark.timeout(700), pytest.mark.slow]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder the bench works under."""
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder the bench writes into."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def report(scratch: Path, results: Path) -> dict[str, Any]:
    """What one quick bench reported."""
    command = [
        sys.executable, "-m", "vibey.cli.main", "bench", "--quick", "--json", "--directory", str(scratch),
        "--write", str(results),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=680, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_row_has_figures_that_are_finite_and_positive(report: dict[str, Any]) -> None:
    """Each family reports, and no figure of any is zero, negative or not a number."""
    assert {row["row"] for row in report["rows"]} == set(FAMILIES)
    for row in report["rows"]:
        for sample in row["samples"]:
            assert math.isfinite(sample), row
            assert sample > 0, row


def test_the_machine_is_named(report: dict[str, Any]) -> None:
    """A figure means nothing without the machine it was measured on."""
    assert report["machine"]["cores"] >= 1
    assert all(report["machine"][part] for part in ("cpu", "memory_gib", "python", "postgres", "redis", "celery"))


def test_peers_that_are_not_there_are_named(report: dict[str, Any]) -> None:
    """Without an environment of peers each is missing, with what mends it, and no figure is told of it."""
    assert set(report["missing"]) == {"litellm", "procrastinate", "celery"}
    assert all("make bench" in reason for reason in report["missing"].values())
    assert not any("LiteLLM" in row["what"] or "Procrastinate" in row["what"] for row in report["rows"])


def test_reasons_are_of_bars_that_there_are(report: dict[str, Any]) -> None:
    """A figure that was renamed would leave its reason behind."""
    barred = {(row["row"], row["what"]) for row in report["rows"] if row["bar"]}
    ours = {key for key in REASONS if not any(name in key[1] for name in ("LiteLLM", "Procrastinate"))}
    assert ours
    assert ours <= barred


def test_page_and_numbers_are_written(report: dict[str, Any], results: Path) -> None:
    """The page has a line for each figure and names what is missing; the numbers are those reported."""
    page = (results / "bench.md").read_text(encoding="utf-8")
    assert all(f"| {row['row']} | {row['what']} |" in page for row in report["rows"])
    assert all(f"Missing: {name}" in page for name in report["missing"])
    assert json.loads((results / "bench.json").read_text(encoding="utf-8")) == report
    assert (results / "bench.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_nothing_is_left_behind(report: dict[str, Any], scratch: Path) -> None:
    """The scratch folder is gone, and with it servers and workers."""
    assert report["quick"]
    assert list(scratch.iterdir()) == []


@pytest.mark.usefixtures("ctrl_c_heeded")
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    """Ctrl-C in the midst of workers, proxies and peers ends all of them and removes the scratch folder."""
    command = [
        sys.executable,
        "-m",
        "vibey.cli.main",
        "bench",
        "--quick",
        "--row",
        "delay",
        "--directory",
        str(tmp_path),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as bench:
        until(lambda: list(tmp_path.glob("*/build.log")), what="the workers to be started")
        started = [each for each in psutil.Process(bench.pid).children(recursive=True) if each.is_running()]
        bench.send_signal(signal.SIGINT)
        _, said = bench.communicate(timeout=300)
    assert bench.returncode == 130
    assert "interrupted" in said
    assert list(tmp_path.iterdir()) == []
    assert started
    until(lambda: not any(each.is_running() for each in started), what="its processes to be gone")


def test_the_command_offers_every_family() -> None:
    """The rows that can be asked for by name are the ones there are."""
    assert tuple(FAMILIES) == ROWS
