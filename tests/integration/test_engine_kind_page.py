"""The how-to page on engine kinds, followed to the letter: its package is installed and given jobs."""

from __future__ import annotations

import configparser
import os
import re
import sys
import tomllib
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.cli import Cli
from tests.support.fleet import ROOT, Fleet
from vibey import embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PAGE = ROOT / "docs" / "how-to" / "add-an-engine-kind.md"
BLOCK = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def blocks() -> dict[str, str]:
    """The page's code, by the name that stands before each block."""
    return dict(BLOCK.findall(PAGE.read_text(encoding="utf-8")))


def install(blocks: dict[str, str], site: Path) -> None:
    """Put the package where an installer would, from what its pyproject.toml says."""
    described = tomllib.loads(blocks["pyproject.toml"])
    for module in described["tool"]["setuptools"]["py-modules"]:
        (site / f"{module}.py").write_text(blocks[f"{module}.py"], encoding="utf-8")
    project = described["project"]
    metadata = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(head, encoding="utf-8")
    points = configparser.ConfigParser(interpolation=None)
    points.read_dict(project["entry-points"])
    with (metadata / "entry_points.txt").open("w", encoding="utf-8") as file:
        points.write(file)


@pytest.fixture
def installed(blocks: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's package where our processes and their children import from, and its client on their PATH."""
    site, programs = tmp_path / "site", tmp_path / "bin"
    site.mkdir()
    programs.mkdir()
    install(blocks, site)
    (programs / "scribe").write_text(blocks["scribe"], encoding="utf-8")
    (programs / "scribe").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "vibey_scribe", raising=False)


@pytest.fixture
def fleet(
    installed: None,  # noqa: ARG001  (before the workers are started)
    blocks: dict[str, str],
    database_url: str,
    redis_url: str,
    tmp_path: Path,
    unique_name: Callable[[str], str],
) -> Iterator[Fleet]:
    """Workers that serve the page's engine."""
    servers = embedded.Services(database_url, redis_url)
    made = Fleet(tmp_path, servers, f"{unique_name('test')}:", tomllib.loads(blocks["vibey.toml"]))
    try:
        made.muster()
        yield made
    finally:
        made.close()


def first_run(fleet: Fleet, job: int) -> dict[str, Any]:
    """A job's first run, once it has ended."""
    fleet.until(f"select count(*) > 0 from runs where job_id = {job} and ended_at is not null")
    names = ("state", "failure_class", "detail", "cost_usd", "tokens_in", "tokens_out")
    return dict(
        zip(
            names,
            fleet.rows(f"select {', '.join(names)} from runs where job_id = {job} order by id limit 1")[0],
            strict=True,
        )
    )


def test_the_page_is_short(blocks: dict[str, str]) -> None:
    """The class is about thirty lines, as a page one follows has to be."""
    body = blocks["vibey_scribe.py"].partition("class ")[2]
    assert len([line for line in body.splitlines() if line.strip()]) <= 30


def test_jobs_run_on_the_pages_engine(fleet: Fleet) -> None:
    """Answer, progress, tokens and their price; a refusal takes the account out until its reset."""
    [job] = fleet.enqueue(payload={"prompt": "count these four words"}, effort="high")
    run = first_run(fleet, job)
    assert (run["state"], run["tokens_in"], run["tokens_out"]) == ("succeeded", 4, 2)
    assert run["cost_usd"] == Decimal(4 * 3 + 2 * 15) / 1_000_000
    assert fleet.value(f"select result->>'text' from jobs where id = {job}") == "4 words, counted twice"
    assert '"text": "these"' in Cli(fleet.config)("logs", job).out

    [refused] = fleet.enqueue(payload={"prompt": "refuse this"})
    run = first_run(fleet, refused)
    assert (run["failure_class"], run["detail"]) == ("capacity", "the hour's words are spent")
    opened = "select open_reason, extract(epoch from probe_at - clock_timestamp())::float from accounts"
    [(reason, seconds)] = fleet.rows(opened)
    assert reason == "window_exhausted"
    assert 3000 < seconds <= 3700
    assert fleet.value(f"select state from jobs where id = {refused}") == "queued"


def test_the_pages_engine_is_looked_at(fleet: Fleet) -> None:
    """`config check` builds it, and the doctor tells its client's version; without the client, how to get it."""
    vibey = Cli(fleet.config)
    assert vibey("config", "check").code == 0
    assert "engine scribe: scribe 1.0\n" in vibey("doctor").out
    missing = vibey("doctor", PATH=os.defpath)
    assert "engine scribe: scribe is not an executable" in missing.out
    assert "install scribe on the workers' PATH" in missing.out
