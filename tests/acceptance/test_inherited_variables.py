"""An installation is where its settings say, and works as they say, whatever shell it is started from."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import psutil
import pytest
import redis

from tests.support.cli import write_config
from tests.support.hostile import hostile_variables, write_first_steps
from tests.support.wait import until
from vibey import embedded
from vibey.embedded.processes import free_port
from vibey.services import supervised
from vibey.services.programs import BEAT, BUILD, CONTROL, Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.fleet import Fleet

ROOT = Path(__file__).parents[2]
CONFIGURATION = """
flower_port = {port}
flower_login = "never"
[engines]
paid_fallback = "count"
[engine.here]
kind = "command"
tier = "local"
argv = ["sh", "-c", 'printf "%s" "{{\\"result\\": \\"$HOSTILE_BUT_NAMED\\"}}" > "$VIBEY_RESULT_FILE"']
env = ["HOSTILE_BUT_NAMED", "BROKER_URL", "NO_COLOR"]
[engine.there]
kind = "celery"
tier = "local"
app = "tasks:app"
"""

pytestmark = [pytest.mark.timeout(500), pytest.mark.slow]


class Shell:
    """A folder with an installation and a first-steps project, in a shell full of another project's variables."""

    def __init__(self, folder: Path, broker: str) -> None:
        """Write the files; nothing is started."""
        folder.mkdir()
        self.folder, self.broker, self.port = folder, broker, free_port()
        self.data_dir = folder / "data"
        self.layout = Layout(self.data_dir)
        more = CONFIGURATION.format(port=self.port)
        self.config = write_config(folder / "vibey.toml", {"data_dir": "data"}, more)
        write_first_steps(folder, broker, self.config)
        path = os.pathsep.join([str(folder), str(ROOT)])
        theirs = {"PGSERVICE": "theirs", "PGHOSTADDR": "192.0.2.1"}  # of another database
        hostile = hostile_variables(broker) | theirs | {"HOSTILE_BUT_NAMED": folder.name}
        plain = {name: value for name, value in os.environ.items() if not name.startswith("VIBEY_")}
        self.plain = {**plain, "PYTHONPATH": path}
        self.environment = {**self.plain, **hostile}

    def python(self, *arguments: str, plain: bool = False) -> str:
        """Run Python in this shell, or in one without the other project's variables; what it printed."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.plain if plain else self.environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def vibey(self, *arguments: str) -> dict[str, Any]:
        """A command that prints one JSON object."""
        value: dict[str, Any] = json.loads(self.python("-m", "vibey.cli.main", *arguments, "--json"))
        return value

    def clear(self) -> None:
        """Leave nothing behind."""
        supervised.stop(self.layout)
        embedded.destroy(self.data_dir)


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[str]:
    """The broker of the other project, which answers."""
    with embedded.redis_server(tmp_path / "foreign") as url:
        yield url


@pytest.fixture
def shells(tmp_path: Path, foreign: str) -> Iterator[list[Shell]]:
    """Two installations of one person."""
    made = [Shell(tmp_path / name, foreign) for name in ("one", "two")]
    yield made
    for shell in made:
        shell.clear()


def test_two_installations_stay_apart_in_a_hostile_shell(shells: list[Shell], foreign: str) -> None:
    """Each runs its own jobs on its own servers; the user's broker sees nothing but the user's own results."""
    for shell in shells:
        shell.vibey("up", "--detach")
        done = shell.vibey("enqueue", "{}", "--engine", "here", "--wait")
        assert (done["state"], done["result"]) == ("succeeded", {"value": shell.folder.name})
        with urlopen(f"http://127.0.0.1:{shell.port}/queue", timeout=60) as answer:
            assert answer.status == 200
        running = {each.name: each.pid for each in supervised.processes(shell.layout)}
        # a pool of processes, one a slot and one to spare, as vibey.toml says
        assert len(psutil.Process(running["build"]).children()) == 3
    client = redis.Redis.from_url(foreign)
    assert client.keys("*") == []
    for shell in shells:
        # the caller is the user's own application, which those variables do steer
        said = shell.python("-c", "import tasks; print(tasks.add.delay(2, 3).get(timeout=150))", plain=True)
        assert said.split()[-1] == "5"
    assert all(key.startswith(b"theirs:") for key in client.keys("*"))
    client.close()


def test_the_command_lines_of_the_procfile_in_a_hostile_shell(open_fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    """As a process manager runs them: workers and beat serve this installation, and a stop is a stop in good order."""
    fleet = open_fleet(engine={"desk": {}})
    (tmp_path / "celeryconfig.py").write_text("raise RuntimeError\n", encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {**fleet.environment, **hostile_variables("redis://127.0.0.1:1/0"), "PATH": path}
    lines = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text(encoding="utf-8").splitlines())
    started = []
    try:
        for program in (CONTROL, BUILD, BEAT):
            assert shlex.split(lines[program.name])[-1] == program.command[-1]
            with (tmp_path / f"{program.name}.log").open("wb") as log:
                command = ["sh", "-c", f"exec {lines[program.name]}"]
                started.append(
                    subprocess.Popen(
                        command, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True
                    )
                )
        until(lambda: fleet.value("select count(*) from workers") == 2, what="both workers at work")
        fleet.enqueue()
        assert fleet.until_ended() == {"succeeded": 1}
        assert [process.poll() for process in started] == [None] * 3
        for process in started:
            process.terminate()
        assert [process.wait(60) for process in started] == [0] * 3
        assert list(tmp_path.glob("beat-schedule*"))
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
