"""Crew: the processes of a chaos run's fleet, kept complete, with clocks that can be moved and a disk that fills up."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.fleet import Fleet, Member

WANTED = {"control": 2, "build": 2, "beat": 1}
CLOCK = Path(__file__).with_name("clock.c")
DISK_BYTES = 96 << 20


class Clocks:
    """Wall clocks that can be moved, one for each process that is started with its `environment`."""

    def __init__(self, folder: Path, library: Path) -> None:
        """Clocks kept in a folder."""
        self._folder, self._library = folder, library

    @classmethod
    def of(cls, folder: Path) -> Clocks | None:
        """Compile the library that moves a clock; None without a C compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            return None
        library = folder / "clock.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, CLOCK, "-ldl"], check=True)
        return cls(folder, library)

    def environment(self, name: str) -> dict[str, str]:
        """What a process must be started with to go by the clock of this name, which is right until it is moved."""
        self.move(name, 0)
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file(name))}

    def move(self, name: str, seconds: float) -> None:
        """Let a clock be wrong by so many seconds; at once, also for processes that run."""
        self._file(name).touch()
        with self._file(name).open("r+b", buffering=0) as clock:
            clock.write(struct.pack("=q", int(seconds * 1e9)))

    def _file(self, name: str) -> Path:
        return self._folder / f"clock-{name}"


class Crew:
    """Two control workers, two build workers and a beat, each started again when it has ended."""

    def __init__(self, fleet: Fleet, environment: Mapping[str, str]) -> None:
        """Make the disk and the clocks; `complete` starts the processes, with this in their environment besides."""
        self.fleet = fleet
        self._environment = environment
        self.members: list[Member] = []
        self.spare: list[Member] = []
        self._count = 0
        self._clocks = Clocks.of(fleet.folder)
        self._disk = _mounted(fleet.settings.data_dir / "runs")
        self._starts = {"control": fleet.control, "build": fleet.build, "beat": fleet.beat}

    @property
    def has_clocks(self) -> bool:
        """Whether clocks can be moved: it takes a C compiler."""
        return self._clocks is not None

    def complete(self) -> None:
        """Start again whatever does not run."""
        self.members = [member for member in self.members if member.running]
        for kind, wanted in WANTED.items():
            for _ in range(wanted - len(self.of(kind))):
                self.members.append(self._started(kind))

    def of(self, kind: str) -> list[Member]:
        """The members of one kind that run."""
        return [member for member in self.members if member.name.startswith(kind) and member.running]

    def extra_beat(self) -> Member:
        """One more beat than there should be."""
        member = self._started("beat")
        self.spare.append(member)
        return member

    def pools(self, kind: str) -> list[int]:
        """The processes of the pools of one kind of worker."""
        found: list[int] = []
        for member in self.of(kind):
            with suppress(psutil.NoSuchProcess):
                found += member.pool()
        return sorted(found)

    def move_clock(self, member: Member, seconds: float) -> None:
        """Let a member's wall clock differ by so many seconds."""
        if self._clocks is not None:
            self._clocks.move(member.name, seconds)

    def fill_disk(self) -> Callable[[], None]:
        """Leave no byte free where runs keep their files; the answer makes room again.

        Without a disk of its own to fill (that takes root) the build workers' processes may write to no file any more.
        """
        return self._fill_mounted(self._disk) if self._disk else self._forbid_writing()

    def close(self) -> None:
        """Kill what runs and give the disk back."""
        for member in [*self.members, *self.spare]:
            member.clear()
        if self._disk:
            subprocess.run([shutil.which("umount") or "umount", "--lazy", str(self._disk)], check=False)

    def _started(self, kind: str) -> Member:
        self._count += 1
        name = f"{kind}{self._count}"
        clock = self._clocks.environment(name) if self._clocks else {}
        return self._starts[kind](name, environment={**self._environment, **clock})

    def _fill_mounted(self, disk: Path) -> Callable[[], None]:
        filler = disk / ".filler"
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"\0" * 65536)
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while file.write(b"\0" * 512):
                pass
        return lambda: filler.unlink(missing_ok=True)

    def _forbid_writing(self) -> Callable[[], None]:
        struck = self.pools("build")
        limits = {}
        for pid in struck:
            with suppress(OSError):
                limits[pid] = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, limits[pid][1]))

        def allow() -> None:
            for pid, limit in limits.items():
                with suppress(OSError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)

        return allow


def stopped(pid: int) -> bool:
    """Whether a process has been stopped by a signal."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def send(pid: int, signum: int = signal.SIGKILL) -> None:
    """Send a signal to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signum)


def _mounted(folder: Path) -> Path | None:
    """A small disk of its own on the folder, where this process may mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        return None
    done = subprocess.run([mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], check=False)
    return folder if done.returncode == 0 else None
