"""The documentation is true: its commands are run as they stand, and what is made of the code is what the code says."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from docs.generate import pages as generated
from docs.generate.places import FILES
from tests.support.fleet import ROOT
from tests.support.pages import Excuse, Step, first_missing, follow, steps
from vibey import embedded
from vibey.embedded.binaries import postgres_binary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
# They start installations of their own.
SLOW = {"docs/tutorial.md", "docs/how-to/back-up.md"}


def name_of(page: Path) -> str:
    """A page by its path in the repository."""
    return page.relative_to(ROOT).as_posix()


def to_follow() -> Iterator[object]:
    """The pages with something to type."""
    for page in PAGES:
        if any(isinstance(step, Step) and not step.file for step in steps(page.read_text(encoding="utf-8"))):
            name = name_of(page)
            yield pytest.param(page, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """What a reader begins with: a folder with a copy of config/, and what `make install` put on the PATH."""
    place, programs = tmp_path / "reader", tmp_path / "bin"
    place.mkdir()
    programs.mkdir()
    (place / "config").symlink_to(ROOT / "config")
    (programs / "vibey").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vibey.cli.main "$@"\n', encoding="utf-8")
    (programs / "vibey").chmod(0o755)
    yield place
    environ = environment(tmp_path)
    for data in tmp_path.rglob(".vibey"):
        follow("```sh\nvibey down\n```", data.parent, environ)
        embedded.destroy(data)


def environment(tmp_path: Path) -> dict[str, str]:
    """A reader's environment: 80 columns, nothing of ours, this interpreter's programs and Postgres' tools."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("VIBEY_", "PYTEST_", "PG"))}
    python, tools = os.path.dirname(sys.executable), postgres_binary("pg_dump").parent  # noqa: PTH120
    path = os.pathsep.join([str(tmp_path / "bin"), python, str(tools), kept.get("PATH", os.defpath)])
    imports = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH", "")]))
    return {**kept, "PATH": path, "PYTHONPATH": imports, "COLUMNS": "80", "HOME": str(tmp_path)}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", list(to_follow()))
def test_commands_do_what_the_page_says(page: Path, folder: Path, tmp_path: Path) -> None:
    """From top to bottom, in a fresh folder; what is then under `data_dir` is on the page about files."""
    follow(page.read_text(encoding="utf-8"), folder, environment(tmp_path), strict=name_of(page) not in SLOW)
    for data in tmp_path.rglob(".vibey"):
        there = {each.name for each in data.iterdir()}
        assert there <= set(FILES)
        assert page.name != "tutorial.md" or there == set(FILES)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_not_run_says_why(page: Path) -> None:
    """With a reason, or with the test that runs it, which is there."""
    for step in steps(page.read_text(encoding="utf-8")):
        if isinstance(step, Excuse):
            assert len(step.reason.split()) >= 3 or (ROOT / step.reason).is_file(), step
            assert (step.word == "run by") == (ROOT / step.reason).is_file(), step


def test_a_page_that_lies_is_caught(tmp_path: Path) -> None:
    """Another output, a failing command, and output out of order."""
    environ = {"PATH": os.defpath}
    follow("```console\n$ echo 1 of 3\n2 of 7\n$ false || true\n```", tmp_path, environ)
    with pytest.raises(AssertionError, match="line 1: 'two' is not what it printed"):
        follow("```sh\necho one\n```\n\n```\ntwo\n```", tmp_path, environ)
    with pytest.raises(AssertionError, match="line 5: exit 3"):
        follow("```sh\ntrue\n```\n\n```sh\nexit 3\n```", tmp_path, environ)
    with pytest.raises(AssertionError, match="line 1: lines left out"):
        follow("```console\n$ printf '1\\n2\\n3\\n'\n1\n3\n```", tmp_path, environ, strict=True)
    follow("```console\n$ printf '1\\n2\\n3\\n'\n1\n…\n3\n```", tmp_path, environ, strict=True)
    assert first_missing("b\na", "a\nb") == "a"
    assert first_missing("a … c", "a bc d") == "a … c"


@pytest.mark.parametrize("file", list(generated()), ids=name_of)
def test_reference_is_what_the_code_says(file: Path) -> None:
    """Run `python -m docs.generate` when this fails."""
    assert file.read_text(encoding="utf-8") == generated()[file]
