"""A single machine's life as a service: up by its unit's own command line, stopped by SIGTERM, purged."""

from __future__ import annotations

import shlex
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import write_config
from tests.support.shell import Shell
from vibey import embedded
from vibey.services import supervised, unit
from vibey.services.programs import Layout
from vibey.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENGINE = """
[engines]
lease_seconds = 3
[engine.desk]
kind = "command"
tier = "local"
argv = ["sh", "-c", "cat > /dev/null; echo done"]
"""


class Machine(Shell):
    """An installation in a folder whose name means something to systemd and to shells."""

    def __init__(self, folder: Path) -> None:
        """Write the configuration; nothing is started."""
        folder.mkdir()
        self.folder, self.data_dir = folder, folder / ".vibey"
        self.config = write_config(folder / "vibey.toml", {}, ENGINE)
        super().__init__(self.config)

    def unit_command(self, units: Path) -> list[str]:
        """What systemd runs, with the unit's environment and no other."""
        settings = load(environ={"VIBEY_CONFIG": str(self.config)})
        text = unit.install(settings, {"PATH": "/usr/bin:/bin"}, folder=units).path.read_text(encoding="utf-8")
        lines = [line.replace("%%", "%").partition("=") for line in text.splitlines()]
        environment = [word for key, _, value in lines if key == "Environment" for word in shlex.split(value)]
        command = [
            word.replace("$$", "$") for key, _, value in lines if key == "ExecStart" for word in shlex.split(value)
        ]
        return ["env", "-i", *environment, *command]

    def left(self) -> list[int]:
        """Processes that belong to this folder."""
        own = [process.pid for process in supervised.leftovers(Layout(self.data_dir))]
        return [*own, *(server.pid for server in embedded.status(self.data_dir) if server.pid)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine with a configuration and nothing running."""
    made = Machine(tmp_path / "my 100%n $HOME ünï")
    yield made
    supervised.stop(Layout(made.data_dir))
    embedded.destroy(made.data_dir)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_service_comes_up_stops_and_is_purged(machine: Machine, tmp_path: Path) -> None:
    """The unit's command needs nothing of a shell, SIGTERM ends it with 0 and all it started; purge leaves no trace."""
    command = machine.unit_command(tmp_path / "units")
    service = subprocess.Popen(command, cwd=machine.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert service.stdout is not None
    said: list[str] = []
    while "Ctrl-C" not in (line := service.stdout.readline()):
        said.append(line)
        assert line, "".join(said)
    assert machine.json("enqueue", "{}", "--wait")["state"] == "succeeded"
    outside = embedded.outside(machine.data_dir)
    service.send_signal(signal.SIGTERM)
    rest, _ = service.communicate(timeout=unit.STOP_SECONDS)
    assert service.returncode == 0, (said, rest)
    assert machine.left() == []

    foreign = [
        machine.data_dir / "mine.txt",
        machine.data_dir / "logs" / "notes.txt",
        machine.data_dir / "runs" / "plan",
    ]
    for path in foreign:
        path.write_text("not Vibey's", encoding="utf-8")
    machine.run("purge", code=3)
    assert (machine.data_dir / "services.json").exists()
    purged = machine.json("purge", "--yes")
    assert sorted(purged["kept"]) == sorted(map(str, foreign))
    assert set(purged["removed"]) == {str(machine.data_dir), *map(str, outside)}
    assert sorted(path for path in machine.data_dir.rglob("*") if not path.is_dir()) == sorted(foreign)
    assert embedded.outside(machine.data_dir) == []
    assert machine.config.exists()
    for path in foreign:
        path.unlink()
    machine.run("up", "--detach", "--no-flower")
    machine.run("purge", "--yes")
    assert machine.left() == []
    assert machine.json("purge", "--yes") == {"removed": [], "kept": [], "external": []}
    assert [path.name for path in machine.folder.iterdir()] == ["vibey.toml"]
