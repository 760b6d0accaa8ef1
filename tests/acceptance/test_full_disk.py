"""A disk that fills up under an installation at work, and other limits of a machine, with real processes.

The disk is a small tmpfs in a mount namespace of its own. Where a machine refuses such a namespace, the test is
skipped and says so.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# An ordinary user gets the namespace with the right to mount in it, and stays who it is.
UNSHARE = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Um", "--map-current-user", "--keep-caps"]


def mounting_is_refused(folder: Path) -> str:
    """Why no tmpfs can be mounted in a namespace here; empty if it can."""
    code = "import sys; from pathlib import Path; from tests.support.small_disk import mount; "
    code += "mount('none', Path(sys.argv[1]), 'tmpfs', options='size=1m')"
    try:
        tried = subprocess.run(
            [*UNSHARE, sys.executable, "-c", code, str(folder)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    except OSError as error:
        return str(error)
    return "" if tried.returncode == 0 else (tried.stderr.strip().splitlines() or ["unshare failed"])[-1]


def run_vibey(folder: Path, before: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command by a shell that does something `before`, as in a namespace of its own."""
    script = f"{before}; exec {shlex.quote(sys.executable)} -m vibey.cli.main {shlex.join(arguments)}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*UNSHARE, "sh", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a configuration, on a machine that lets one mount in a namespace."""
    if reason := mounting_is_refused(tmp_path):
        pytest.skip(f"a mount namespace is refused here: {reason}")
    (tmp_path / "vibey.toml").write_text('[engine.desk]\nkind = "noop"\ntier = "local"\n')
    (tmp_path / ".vibey").mkdir(mode=0o700)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_fleet_outlives_a_full_disk(folder: Path) -> None:
    """Nothing ends that nobody starts again: not the run at work, not a worker, nor beat, nor their supervisor.

    Postgres does end, as it cannot write its log; the workers start it once there is room. All of it with only 512
    files to open.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [*UNSHARE, sys.executable, "-m", "tests.support.small_disk", str(folder)],
        cwd=ROOT,
        env=environment,
        check=True,
        timeout=880,
    )
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
    assert facts["up"]["code"] == 0
    # By the server, or by the command where the server has ended already.
    refused = facts["full_enqueue"]["err"]
    assert facts["full_enqueue"]["code"] == 4
    assert "the disk of the database server is full" in refused or "the disk is full" in refused
    doctor = facts["full_doctor"]
    assert (doctor["code"], doctor["out"].splitlines()[0][:12]) == (1, "fail  disk: ")
    assert "postgres: not running" in doctor["out"] or "the disk of the database server is full" in doctor["out"]
    assert doctor["seconds"] < 120
    for command in ("full_status", "full_up"):
        assert facts[command]["code"] == 4
        # By the room that is left, by trying, or by a server that cannot end while it lets nobody in.
        assert re.search("only 0 MiB|the disk is full|the disk of the database server is full", facts[command]["err"])
    assert facts["after"] == facts["before"]
    assert facts["second"]["out"].splitlines()[-1] == "succeeded on desk in attempt 1"
    assert [run["state"] for run in facts["long_job"]["runs"]] == ["succeeded"]
    log = facts["long_log"]["out"]
    assert re.search(r"^\[vibey\] [1-9][0-9]* bytes left out: they could not be written$", log, re.MULTILINE)
    assert log.endswith("the end\n")
    # A run that fills the disk itself fails, with its own words, and what it wrote is removed.
    assert facts["hog"]["code"] == 1
    assert facts["third"]["out"].splitlines()[-1] == "succeeded on desk in attempt 1"
    assert facts["last"] == facts["before"]
    assert facts["audit"]["code"] == 0


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("mount -t tmpfs -o size=1m none .vibey", "disk: only 1 MiB"),
        ("mount -t tmpfs -o size=200m,nr_inodes=20 none .vibey", "and 19 inodes free"),
        ("mount -t tmpfs -o size=200m,ro none .vibey", "the file system is read-only"),
        ("ulimit -n 120", "open files: a process may open 120 files, and 208 are needed; raise the limit to 208"),
    ],
)
def test_up_and_doctor_name_what_the_machine_lacks(folder: Path, limit: str, words: str) -> None:
    """Before anything is started, in one line, with what to do."""
    if os.geteuid() != 0 and limit.startswith("mount"):
        pytest.skip("mount(8) refuses to serve an ordinary user, in a namespace of its own, too")
    up = run_vibey(folder, limit, "up", "--detach", "--no-flower")
    assert up.returncode == 4
    assert words in up.stderr
    assert len(up.stderr.splitlines()) == 1
    doctor = run_vibey(folder, limit, "doctor", "--json")
    failed = [check for check in json.loads(doctor.stdout)["checks"] if check["state"] == "fail"]
    assert words.partition(": ")[2] in f"{failed[0]['detail']}; {failed[0]['fix']}"
    assert list((folder / ".vibey").iterdir()) == []


def test_a_folder_of_another_user_is_named(tmp_path: Path) -> None:
    """And a full quota, or one without locks, in the same way: by trying."""
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "vibey.toml").write_text('[engine.desk]\nkind = "noop"\ntier = "local"\n')
    (tmp_path / ".vibey").mkdir(mode=0o500)
    done = run_vibey(tmp_path, "true", "up", "--detach")
    assert done.returncode == 4
    assert "this user may not write" in done.stderr
