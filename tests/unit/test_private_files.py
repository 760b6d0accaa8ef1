"""Folders and lock files of an installation are their owner's alone: who can read a file can hold its lock."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from vibey.embedded.record import LOCK, exclusive, open_lock_file
from vibey.services.programs import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_mask() -> Iterator[None]:
    """A mask that takes nothing away, so that what is made has the mode it was made with."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    """The rights of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_locks_are_made_for_their_owner(tmp_path: Path) -> None:
    """The data folder is private whichever part of an installation makes it first."""
    layout = Layout(tmp_path / "first")
    layout.make_folders()
    assert [mode(layout.data_dir), mode(layout.folder)] == [0o700, 0o700]
    with exclusive(tmp_path / "second"):
        assert [mode(tmp_path / "second"), mode(tmp_path / "second" / LOCK)] == [0o700, 0o600]


def test_a_lock_file_of_an_earlier_version_is_closed_to_others(tmp_path: Path) -> None:
    """It was readable; it keeps its contents, as somebody may hold it."""
    path = tmp_path / "old.lock"
    path.touch(mode=0o644)
    with open_lock_file(path):
        assert mode(path) == 0o600
