"""The demo's folder and processes: what it makes, what it refuses, what it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.wait import until
from vibey.demo.crew import Crew, end
from vibey.demo.folder import Folder, make_repository, require_git
from vibey.domain.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path


def started(*command: str, log: Path) -> psutil.Popen:
    """A process that leads a session of its own."""
    with log.open("wb") as output:
        return psutil.Popen(command, stdout=output, start_new_session=True)


def test_prepared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparing writes a configuration that loads, whatever the environment says of another installation."""
    monkeypatch.setenv("VIBEY_DATABASE_URL", "postgresql://elsewhere/other")
    monkeypatch.setenv("VIBEY_ENGINES_MODE", "singleton")
    folder = Folder(tmp_path / 'a "quoted" folder')
    with folder.held():
        settings = folder.prepare()
    assert list(settings.engine) == ["workstation", "laptop", "subscription", "metered"]
    assert (settings.services.database_url, settings.engines.mode) == ("", "hybrid")
    assert settings.data_dir == folder.path / "data"
    assert settings.engine["laptop"].argv[0] == sys.executable


def test_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repository has both branches, and no hook or setting of the person's own git takes part."""
    config = tmp_path / "gitconfig"
    config.write_text("[commit]\n\tgpgsign = true\n[init]\n\tdefaultBranch = other\n", encoding="utf-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    make_repository(tmp_path / "shop")
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    refs = ["git", "-C", str(tmp_path / "shop"), "for-each-ref", "--format=%(refname:short) %(subject)"]
    found = subprocess.run(refs, capture_output=True, text=True, check=True).stdout.splitlines()
    assert found == ["main Test the shop", "release-1 Test the shop"]


def test_one_demo_at_a_time(tmp_path: Path) -> None:
    """A second demo in a folder that is in use is refused, and allowed once the first is over."""
    folder = Folder(tmp_path / "demo")
    with folder.held(), pytest.raises(Refused, match="a demo is running in"), folder.held():
        pass
    with folder.held():
        pass


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """A folder that holds other things is refused and not touched."""
    (tmp_path / "precious").write_text("mine", encoding="utf-8")
    with pytest.raises(Refused, match="--directory"), Folder(tmp_path).held():
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["precious"]


def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git on the PATH the refusal says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="install git"):
        require_git()


def test_end_kills_what_does_not_obey(tmp_path: Path) -> None:
    """A group that ignores TERM is killed after the grace, its children too."""
    log = tmp_path / "children"
    stubborn = started("sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait; sleep 600", log=log)
    child = int(until(lambda: log.read_text(encoding="utf-8").strip(), what="the child's number"))
    end([stubborn], grace_seconds=0.2)
    assert not stubborn.is_running()
    until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie", what="the child's end")


def test_a_killed_demo_leaves_a_record_the_next_can_trust(tmp_path: Path) -> None:
    """A recorded number that now is another process's is not ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    bystander = psutil.Process(child.pid)
    folder = Folder(tmp_path / "demo")
    with folder.held():
        folder.prepare()
        folder.processes.write_text(json.dumps([[bystander.pid, bystander.create_time() - 60]]), encoding="utf-8")
        crew = Crew(folder)
        try:
            crew.end_leftovers()
            assert bystander.is_running()
            folder.processes.write_text(json.dumps([[bystander.pid, bystander.create_time()]]), encoding="utf-8")
            crew.end_leftovers()
            assert not bystander.is_running()
        finally:
            end([bystander], grace_seconds=0)
            child.communicate(timeout=5)
