"""Purging by name: what Vibey did not make stays, wherever the data folder is."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from docs.generate.places import FILES
from tests.support.cli import Cli, write_config
from tests.support.json_output import described
from vibey import embedded
from vibey.embedded import home
from vibey.services import purge as service
from vibey.settings import load

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_full_of_other_things_keeps_them(tmp_path: Path) -> None:
    """A data folder that is somebody's project: folders named as ours are, with other files, are left as they are."""
    for name in FILES:
        if "." not in name:
            (tmp_path / name).mkdir()
            (tmp_path / name / "theirs").write_text("kept", encoding="utf-8")
            (tmp_path / name / "sub").mkdir()
            (tmp_path / name / "sub" / "theirs").write_text("kept", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    config = write_config(tmp_path / "vibey.toml", {"data_dir": str(tmp_path)})
    kept = service.purge(load(environ={"VIBEY_CONFIG": str(config)}), {}, lambda _words: None)
    assert sorted(tmp_path.rglob("*")) == sorted([*before, config])
    assert sorted(kept) == sorted(path for path in [*before, config] if path.is_file())


def test_servers_of_ones_own_are_named(tmp_path: Path) -> None:
    """A database and a Redis server that the configuration names are not touched, and the purge says so."""
    services = {"database_url": "postgresql://db.example/vibey", "redis_url": "redis://db.example/0"}
    vibey = Cli(write_config(tmp_path / "vibey.toml", {**services, "data_dir": str(tmp_path / "data")}))
    (tmp_path / "data").mkdir()
    said = vibey("purge", "--yes")
    assert said.code == 0
    assert "the database that database_url names was not touched" in said.out
    assert not (tmp_path / "data").exists()
    assert described("purge", vibey("purge", "--yes", "--json").json) == {
        "removed": [],
        "kept": [],
        "external": ["database_url", "redis_url"],
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's clusters are kept outside of the data folder")
def test_orphans_are_found_by_what_their_folder_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster whose data folder was deleted by hand is removed; one in use, and one nobody claims, are not."""
    shared = tmp_path / "shared"
    monkeypatch.setattr(home, "SHARED_ROOT", shared)
    used, gone = tmp_path / "used", tmp_path / "gone"
    homes = {}
    for data_dir in (used, gone):
        data_dir.mkdir()
        homes[data_dir] = home.prepare_home(data_dir / "postgres")
    (shared / ("0" * 16)).mkdir()
    (shared / "postgres-18.6").mkdir()
    (shared / "somebody's").mkdir()
    shutil.rmtree(gone)
    vibey = Cli(None)
    assert vibey("purge", "--orphans").code == 3
    said = described("purge", vibey("purge", "--orphans", "--yes", "--json").json)
    assert [(row["path"], row["data_dir"]) for row in said["removed"]] == [(str(homes[gone]), str(gone))]
    assert said["unknown"] == [str(shared / ("0" * 16))]
    assert sorted(path.name for path in shared.iterdir()) == sorted(
        [homes[used].name, "0" * 16, "postgres-18.6", "somebody's"]
    )
    assert capsys.readouterr().err == ""
    (shared / ("0" * 16)).rmdir()
    embedded.destroy(used)
    embedded.remove_unused_programs()
    assert [path.name for path in shared.iterdir()] == ["somebody's"]
