"""A machine is lost at work; its backup goes on in a new folder, as on another machine."""

from __future__ import annotations

import json
import shutil
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.cli import write_config
from tests.support.databases import query
from tests.support.shell import Shell
from tests.support.wait import until
from vibey import embedded
from vibey.services import supervised
from vibey.services.programs import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOBS = 12
# Begun for the first time, these do not end by themselves: they are at work whenever the backup is made. With four
# slots, three others have ended by then, and the rest are queued.
AT_WORK = {1, 2, 3, 7}
ENDED = {4, 5, 6}
ENGINE = """
[engines]
mode = "singleton"
lease_seconds = 3
[engines.slots]
desk = 4
[engine.desk]
kind = "command"
tier = "local"
argv = ["sh", "-c", '''
cat > /dev/null
grep -qx "begun $VIBEY_JOB" {book} || first=yes
echo "begun $VIBEY_JOB" >> {book}
case "$first $VIBEY_JOB" in "yes 1"|"yes 2"|"yes 3"|"yes 7") sleep 600 ;; esac
echo "ended $VIBEY_JOB" >> {book}
''']
"""


class Machine(Shell):
    """An installation in a folder of its own."""

    def __init__(self, folder: Path, book: Path) -> None:
        """Write the configuration; nothing is started."""
        folder.mkdir()
        self.folder = folder
        self.data_dir = folder / ".vibey"
        super().__init__(write_config(folder / "vibey.toml", {}, ENGINE.replace("{book}", str(book))))

    def kill(self) -> None:
        """Let every process of the machine die at once, as with its power; then its disk is gone, too."""
        own = supervised.leftovers(Layout(self.data_dir))
        servers = [psutil.Process(server.pid) for server in embedded.status(self.data_dir) if server.pid]
        for process in [*own, *servers]:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        self.clear()
        shutil.rmtree(self.data_dir)

    def clear(self) -> None:
        """Leave nothing behind, whatever the test came to."""
        supervised.stop(Layout(self.data_dir))
        embedded.destroy(self.data_dir)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """Two machines that share nothing but the book their engines write."""
    book = tmp_path / "book"
    book.touch()
    made = Machine(tmp_path / "first", book), Machine(tmp_path / "second", book)
    yield made
    for machine in made:
        machine.clear()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_lost_machine_goes_on_from_its_backup(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    """Every job ends; those that had ended in the backup do not run again, those at work run once more."""
    first, second = machines
    file, book, batch = tmp_path / "nightly.backup", tmp_path / "book", tmp_path / "jobs.jsonl"
    batch.write_text("".join(json.dumps({"payload": {"n": n}}) + "\n" for n in range(JOBS)), encoding="utf-8")
    first.run("up", "--detach", "--no-flower")
    first.run("enqueue", "--batch", str(batch))
    until(lambda: first.json("status")["running"] == len(AT_WORK), what="the runs to be at work")
    until(lambda: {f"begun {job}" for job in AT_WORK} <= set(_lines(book)), what="their first words")
    made = first.json("backup", str(file))
    assert (made["jobs"], made["open_jobs"], made["live_runs"]) == (JOBS, JOBS - len(ENDED), len(AT_WORK))
    first.kill()

    restored = second.json("restore", str(file))
    assert (restored["jobs"], restored["live_runs"]) == (JOBS, len(AT_WORK))
    assert embedded.status(second.data_dir)[0].pid is None
    second.run("up", "--detach", "--no-flower")
    until(lambda: len(_succeeded(second)) == JOBS, what="all jobs to have succeeded")
    lines = _lines(book)
    for job in range(1, JOBS + 1):
        assert lines.count(f"ended {job}") == 1, lines
        assert lines.count(f"begun {job}") == (2 if job in AT_WORK else 1), lines
    assert second.json("audit")["ok"] is True
    second.run("replay")
    services = embedded.locate(second.data_dir)
    assert services is not None
    assert query(services.database_url, "select count(*) from runs where state = 'lost'") == [(len(AT_WORK),)]
    second.run("restore", str(file), "--replace", "--yes", code=3)


def _succeeded(machine: Machine) -> list[object]:
    return list(machine.json("jobs", "-n", "50", "-s", "succeeded")["jobs"])


def _lines(book: Path) -> list[str]:
    return book.read_text(encoding="utf-8").splitlines()
