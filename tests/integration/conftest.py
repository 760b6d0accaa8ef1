"""Fixtures that several files here share; a file's own come first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.commandline import CommandLine
from tests.support.repositories import Repository, Studio
from vibey.engines.contract import Check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def vibey(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[CommandLine]:
    """The command line on this test's own installation."""
    line = CommandLine(database_url, redis_url, tmp_path)
    yield line
    line.bench.close()


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    """Where scripts run."""
    return Studio(tmp_path, checks={"unit": Check(("true",), 30)})


@pytest.fixture
def site(studio: Studio) -> Repository:
    """The repository most jobs name."""
    return Repository.made(studio.roots / "site", readme="hello\n", keep="same\n")
