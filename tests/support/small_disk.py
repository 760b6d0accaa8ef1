"""A program: a whole installation on a small disk of its own, in a mount namespace; prints what became of it as JSON.

Run it with `unshare -m` as root, or with `unshare -Um --map-current-user --keep-caps` as another user. The disk and all
that is on it is gone when the last process of the namespace is.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg2

from tests.support.wait import until

SHARED = Path("/var/lib/vibey")
MS_BIND = 4096
FILES = 512
CONFIGURATION = """\
[services]
data_dir = "data"
[engines.slots]
desk = 2
[engine.desk]
kind = "command"
tier = "local"
argv = ["sleep", "0.1"]
[engine.long]
kind = "command"
tier = "local"
argv = ["sh", "-c", "until test -e {folder}/go; do seq 2000; sleep 0.2; done; echo the end"]
[engine.hog]
kind = "command"
tier = "local"
argv = ["sh", "-c", "echo filling; head -c 400M /dev/zero > filler || exit 9"]
"""


def mount(source: str, target: Path, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system in this namespace; OSError where it is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def make_disk(folder: Path, options: str) -> Path:
    """A small file system under `folder` that holds all an installation writes, root's clusters too."""
    disk = folder / "disk"
    disk.mkdir()
    mount("none", disk, "tmpfs", options=options)
    disk.chmod(0o755)
    if os.geteuid() == 0:
        SHARED.mkdir(exist_ok=True)
        (disk / "shared").mkdir()
        mount(str(disk / "shared"), SHARED, "none", MS_BIND)
    (disk / "vibey.toml").write_text(CONFIGURATION.format(folder=folder))
    return disk


class Installation:
    """The installation on the disk, as its user sees it."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk

    def vibey(self, *arguments: str, seconds: float = 240.0) -> dict[str, Any]:
        """Run a command; its exit code, output and duration."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "vibey.cli.main", *arguments],
            cwd=self.disk,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        return {"code": done.returncode, "out": done.stdout, "err": done.stderr, "seconds": time.monotonic() - began}

    def pids(self) -> dict[str, int]:
        """The processes that the installation should keep."""
        known = json.loads(self.vibey("up", "--detach", "--no-flower", "--json")["out"])
        found = {each["name"]: each["pid"] for each in known["processes"]}
        found["supervisord"] = int((self.disk / "data" / "processes" / "supervisord.pid").read_text())
        return found

    def is_well(self) -> bool:
        """Whether doctor finds nothing that fails."""
        return self.vibey("doctor")["code"] == 0

    def fill(self) -> None:
        """Leave no byte free."""
        for size in (1 << 20, 4096, 1):
            with (self.disk / f"filler-{size}").open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def empty(self) -> None:
        """Remove what filled it."""
        for path in self.disk.glob("filler-*"):
            path.unlink()

    def break_postgres(self) -> None:
        """Let Postgres need another segment of its log, which it cannot get: it ends."""
        record = json.loads((self.disk / "data" / "services.json").read_text())["postgres"]
        try:
            connection = psycopg2.connect(
                f"postgresql://vibey:{record['password']}@127.0.0.1:{record['port']}/vibey", connect_timeout=10
            )
            connection.autocommit = True
            with connection.cursor() as cursor:
                for _ in range(400):
                    cursor.execute("select pg_logical_emit_message(false, 'x', repeat('y', 900000))")
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            return
        raise AssertionError("Postgres found room")


def main() -> None:
    """Fill the disk under a fleet at work, look, make room, and see whether all goes on without a hand."""
    folder = Path(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    installation = Installation(make_disk(folder, "size=200m"))
    facts: dict[str, Any] = {"up": installation.vibey("up", "--detach", "--no-flower")}
    try:
        facts["first"] = installation.vibey("enqueue", "{}", "--engine", "desk", "--wait")
        facts["long"] = installation.vibey("enqueue", "{}", "--engine", "long", "--json")
        facts["before"] = installation.pids()
        until(lambda: json.loads(installation.vibey("status", "--json")["out"])["running"] == 1)
        installation.fill()
        # More than the room that the tables' last pages may have left.
        batch = folder / "large.jsonl"
        batch.write_text("".join(json.dumps({"payload": {"x": os.urandom(90_000).hex()}}) + "\n" for _ in range(20)))
        facts["full_enqueue"] = installation.vibey("enqueue", "--batch", str(batch))
        installation.break_postgres()
        facts["full_doctor"] = installation.vibey("doctor")
        facts["full_status"] = installation.vibey("status")
        facts["full_up"] = installation.vibey("up", "--detach", "--no-flower")
        installation.empty()
        until(installation.is_well, seconds=240)
        (folder / "go").touch()
        facts["second"] = installation.vibey("enqueue", "{}", "--engine", "desk", "--wait")
        facts["after"] = installation.pids()
        job = json.loads(facts["long"]["out"])["job_id"]
        facts["long_job"] = json.loads(installation.vibey("job", str(job), "--json")["out"])
        facts["long_log"] = installation.vibey("logs", str(job))
        facts["hog"] = installation.vibey("enqueue", "{}", "--engine", "hog", "--max-attempts", "1", "--wait")
        until(installation.is_well, seconds=240)
        facts["third"] = installation.vibey("enqueue", "{}", "--engine", "desk", "--wait")
        facts["last"] = installation.pids()
        facts["audit"] = installation.vibey("audit")
    finally:
        facts["down"] = installation.vibey("down")
        (folder / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
