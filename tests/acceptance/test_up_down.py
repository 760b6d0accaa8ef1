"""`vibey up` and `vibey down` as a person uses them: real servers, workers and programs in a folder of their own."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import psutil
import pytest

from tests.support.cli import write_config
from tests.support.scrape import scrape
from tests.support.shell import Shell
from tests.support.wait import until
from vibey import embedded
from vibey.embedded.processes import free_port
from vibey.services import supervised
from vibey.services.programs import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.scrape import Scrape

ENGINES = """
flower_port = {port}
flower_login = "always"
metrics_port = {metrics_port}
[engines]
lease_seconds = 3
paid_fallback = "count"
[engine.left]
kind = "command"
tier = "local"
argv = ["sh", "-c", "cat > /dev/null; echo from the left"]
[engine.right]
kind = "command"
tier = "local"
argv = ["sh", "-c", "cat > /dev/null; sleep 600"]
capabilities = ["patience"]
"""


class Machine(Shell):
    """A folder with two engines, Flower and the exporter on free ports."""

    def __init__(self, folder: Path) -> None:
        """Write the configuration; nothing is started."""
        self.data_dir = folder / "a folder; of #data"
        self.layout = Layout(self.data_dir)
        self.metrics_port = free_port()
        more = ENGINES.format(port=free_port(), metrics_port=self.metrics_port)
        super().__init__(write_config(folder / "vibey.toml", {"data_dir": self.data_dir.name}, more))

    def pid(self, program: str) -> int | None:
        """The process of a program that has been up for a while."""
        found = {each.name: each.pid for each in supervised.processes(self.layout) if each.running}
        return found.get(program)

    def left(self) -> list[list[str]]:
        """Command lines of processes that belong to this folder."""
        own = [process.pid for process in supervised.leftovers(self.layout)]
        servers = [server.pid for server in embedded.status(self.data_dir) if server.pid]
        return [psutil.Process(pid).cmdline() for pid in [*own, *servers]]

    def clear(self) -> None:
        """Leave nothing behind, whatever the test came to."""
        supervised.stop(self.layout)
        embedded.destroy(self.data_dir)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine with a configuration and nothing running."""
    made = Machine(tmp_path)
    yield made
    made.clear()


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_up_work_recover_down(machine: Machine) -> None:
    """Up serves every engine, a killed worker comes back, a second up changes nothing, and down leaves no process."""
    up = machine.json("up", "--detach")
    assert up["started"] is True
    assert {each["name"] for each in up["processes"]} == {"control", "build", "beat", "flower", "metrics"}
    assert up["metrics"] == f"http://127.0.0.1:{machine.metrics_port}/metrics"
    assert until(lambda: _scraped(up["metrics"]), what="metrics")("vibey_engine_staffed", engine="left") == 1
    done = machine.json("enqueue", "{}", "--exclude", "right", "--wait")
    assert (done["state"], done["engine"]) == ("succeeded", "left")
    assert machine.run("logs", str(done["job_id"])) == "from the left\n"
    assert up["flower_login"] == "link"
    browser, link = build_opener(HTTPCookieProcessor()), machine.json("pages")["link"]
    assert link.startswith(f"{up['flower']}/")
    assert "logged in" in until(lambda: _page(link, browser), what="the page that logs in")
    assert f"job {done['job_id']}</a>" in _page(f"{up['flower']}/jobs", browser)
    assert _page(f"{up['flower']}/jobs", build_opener()) == ""
    until(lambda: machine.pid("build"), what="the build worker to count as running")
    before = machine.pid("build")
    assert before is not None
    os.kill(before, signal.SIGKILL)
    until(lambda: machine.pid("build") not in {None, before}, what="another build worker")
    again = machine.json("enqueue", "{}", "--exclude", "right", "--wait")
    assert again["state"] == "succeeded"
    until(lambda: all(map(machine.pid, ("control", "build", "beat"))), what="every program to run")
    for words in (machine.run("doctor"), machine.run("status")):
        assert f"{up['flower']}, which asks for a login; vibey pages prints a link" in " ".join(words.split())
        assert link.partition("=")[2] not in words
    second = machine.json("up", "--detach")
    assert second["started"] is False
    assert {each["pid"] for each in second["processes"]} >= {machine.pid("control"), machine.pid("build")}
    assert machine.json("down")["stopped"] is True
    assert machine.left() == []
    assert "run: vibey up" in _complaint(machine, "jobs")
    assert machine.json("down")["stopped"] is False


def _page(address: str, browser: OpenerDirector) -> str:
    """A page as text; nothing while it cannot be reached, or where it is refused."""
    try:
        with browser.open(address, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c_heeded")
def test_interrupting_up_stops_everything(machine: Machine) -> None:
    """Ctrl-C on a foreground up ends it with 0 and leaves no process, a run at work included; the data stays."""
    up = machine.start("up", "--no-flower")
    until(lambda: machine.pid("build"), what="the build worker to run")
    job = machine.json("enqueue", "{}", "--require", "patience")["job_id"]
    until(lambda: machine.json("job", str(job))["state"] == "running", what="the job to be running")
    sleeping = _sleepers()
    up.send_signal(signal.SIGINT)
    out, err = up.communicate(timeout=300)
    assert up.returncode == 0, (out, err)
    assert machine.left() == []
    until(lambda: not sleeping & _sleepers(), what="the run's own processes to be gone")
    machine.run("migrate")
    assert machine.json("job", str(job))["job_id"] == job
    assert machine.json("down")["stopped"] is True


@pytest.mark.timeout(120)
def test_up_without_engines_starts_nothing(tmp_path: Path) -> None:
    """A configuration without engines is refused before anything is started."""
    machine = Machine(tmp_path)
    (tmp_path / "vibey.toml").write_text("", encoding="utf-8")
    assert "no engine is configured" in _complaint(machine, "up", code=3)
    assert not (tmp_path / ".vibey").exists()


def _complaint(machine: Machine, *arguments: str, code: int = 4) -> str:
    process = machine.start(*arguments)
    _, err = process.communicate(timeout=300)
    assert process.returncode == code, err
    return err


def _scraped(url: str) -> Scrape | None:
    try:
        return scrape(url)
    except OSError:
        return None


def _sleepers() -> set[int]:
    return {process.pid for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", "600"]}
