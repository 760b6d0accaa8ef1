"""The systemd unit that `vibey up --install` writes: its words, its escapes, and what systemd says of it."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from vibey.domain.errors import Refused
from vibey.services import unit
from vibey.settings import load

if TYPE_CHECKING:
    from pathlib import Path

    from vibey.settings import Settings

ENGINE = """
[engine.desk]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
model = "any"
api_key_env = "DESK_KEY"
"""
FOLDERS = ("plain", "two words", "100%n of it", "$HOME", 'a "quoted" one', "back\\slash", "ünï ☃")


def _settings(folder: Path, more: str = "") -> Settings:
    folder.mkdir(exist_ok=True)
    (folder / "vibey.toml").write_text(ENGINE + more, encoding="utf-8")
    return load(environ={"VIBEY_CONFIG": str(folder / "vibey.toml")})


def values(text: str, key: str) -> list[str]:
    """The values of a setting, percent signs expanded as systemd does."""
    found = [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")]
    return [value.replace("%%", "%") for value in found]


def words(value: str) -> list[str]:
    """A value's words: systemd undoes quotes as a shell does, and a doubled dollar sign is one."""
    return [word.replace("$$", "$") for word in shlex.split(value)]


@pytest.mark.parametrize("name", FOLDERS)
def test_paths_come_out_as_they_are(name: str, tmp_path: Path) -> None:
    """Whatever signs a path has, systemd reads that path."""
    folder = tmp_path / name
    path = f"{folder}:/usr/bin"
    text = unit.compose(_settings(folder), {"PATH": path}, folder=tmp_path).text
    assert values(text, "WorkingDirectory") == [str(folder)]
    environment = [shlex.split(value) for value in values(text, "Environment")]
    assert environment == [[f"PATH={path}"], [f"VIBEY_CONFIG={folder / 'vibey.toml'}"]]
    assert [words(value) for value in values(text, "ExecStart")] == [[sys.executable, "-m", "vibey.cli.main", "up"]]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
@pytest.mark.parametrize("name", FOLDERS)
def test_systemd_finds_no_fault(name: str, tmp_path: Path) -> None:
    """`systemd-analyze verify` says nothing about the unit."""
    settings = _settings(tmp_path / name, '[services]\ndatabase_url = "postgresql://db.example/vibey"\n')
    made = unit.install(settings, {"PATH": os.defpath}, folder=tmp_path / "units")
    scope = "--system" if os.geteuid() == 0 else "--user"
    command = ["systemd-analyze", scope, "verify", str(made.path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    ours = [line for line in said.stderr.splitlines() if made.path.name in line]
    assert ours == []


def test_a_unit_is_found_again_and_replaced(tmp_path: Path) -> None:
    """Each installation has one unit, two of the same name have two, and a foreign file is never taken."""
    units, environ = tmp_path / "units", {"PATH": os.defpath}
    units.mkdir()
    (units / "vibey-site.service").write_text("# somebody's own\n", encoding="utf-8")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = _settings(tmp_path / "a" / "site"), _settings(tmp_path / "b" / "site")
    made = [unit.install(each, environ, folder=units).path for each in (first, second, first)]
    assert made[0] == made[2]
    assert len({*made, units / "vibey-site.service"}) == 3
    assert unit.find(second, environ, folder=units) == made[1]
    assert unit.remove(first, environ, folder=units) == made[0]
    assert unit.remove(first, environ, folder=units) is None
    assert sorted(units.iterdir()) == sorted([made[1], units / "vibey-site.service"])


def test_what_a_unit_says(tmp_path: Path) -> None:
    """Only the main process is told to stop, with the time `down` may take; keys stay out, and are named."""
    settings = _settings(tmp_path / "site")
    environ = {"PATH": os.defpath, "DESK_KEY": "hunter2", "VIBEY_ENGINES_MODE": "hybrid"}
    made = unit.compose(settings, environ, folder=tmp_path)
    assert "hunter2" not in made.text
    assert made.missing == ("DESK_KEY", "VIBEY_ENGINES_MODE")
    assert values(made.text, "KillMode") == ["mixed"]
    assert int(values(made.text, "TimeoutStopSec")[0]) > 90
    owner = pwd.getpwuid((tmp_path / "site").stat().st_uid).pw_name
    assert made.user == owner
    assert values(made.text, "User") == ([owner] if os.geteuid() == 0 else [])
    assert all(made.path.name in line for line in made.commands if "enable --now" in line)


def test_without_a_file_there_is_nothing_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit needs a configuration file to name, and a folder systemd can work in."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match="there is no vibey"):
        unit.compose(load(environ={}), {}, folder=tmp_path)
    with pytest.raises(Refused, match="systemd cannot work"):
        unit.compose(_settings(tmp_path / "line\nbreak"), {}, folder=tmp_path)
