"""The host: what this machine must give an installation. Room on its disks, file handles, locks, a temporary folder.

What is wrong is found by trying it: a small file is written into the folder, locked and removed. So a quota, a
read-only file system, a folder of another user and one without locks are found alike, whatever the file system says of
itself.
"""

from __future__ import annotations

import fcntl
import os
import resource
import tempfile
from typing import TYPE_CHECKING

from vibey.domain.errors import OutOfResources
from vibey.domain.faults import ROOM, fault_of_os
from vibey.services.checks import Check, State, failed_check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vibey.settings import Settings

MIB = 1024**2
# Below the first an `up` is of no use: a new installation takes 60 MiB, and Postgres writes its log in pieces of 16.
LEAST_BYTES, FEW_BYTES = 64 * MIB, 512 * MIB
LEAST_INODES, FEW_INODES = 1_000, 10_000
PROBE_BYTES = 8192
# What the largest process opens: a build worker, four pipes and a lock for each child, beside its own connections.
BASE_FILES, FILES_A_SLOT = 200, 8


def host_checks(settings: Settings) -> Iterator[Check]:
    """The disks as they are, and what else this machine must give where it does not."""
    yield _disk_check("disk", settings.data_dir)
    cluster = settings.data_dir / "postgres"
    if cluster.is_symlink() and cluster.exists() and _device(cluster) != _device(settings.data_dir):
        yield _disk_check("disk of postgres", cluster.resolve(), probed=False)
    yield from _temporary_checks()
    yield from _files_checks(settings)


def require_host(settings: Settings) -> None:
    """Raise `OutOfResources` for the first thing that this machine does not give."""
    for found in host_checks(settings):
        if found.state is State.FAIL:
            raise OutOfResources(found.name, found.detail, "", found.fix)


def files_needed(settings: Settings) -> int:
    """How many files the largest process of this installation may have to open."""
    slots = sum(settings.slots_of(name) for name, engine in settings.engine.items() if engine.enabled)
    return BASE_FILES + FILES_A_SLOT * slots


def _disk_check(name: str, folder: Path, *, probed: bool = True) -> Check:
    at = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        if probed:
            _write_probe(at, in_place=at == folder)
        found = os.statvfs(at)
    except OSError as error:
        # The error of a write, unlike that of an opening, has no path.
        error.filename = error.filename or str(at)
        fault = fault_of_os(error, str(at))
        return failed_check(name, fault or error)
    free, inodes = found.f_bavail * found.f_frsize, found.f_favail if found.f_files else FEW_INODES
    detail = f"{_size(free)} and {inodes:,} inodes free at {at}" if found.f_files else f"{_size(free)} free at {at}"
    if free < LEAST_BYTES or inodes < LEAST_INODES:
        return Check(name, State.FAIL, f"only {detail}", ROOM)
    if free < FEW_BYTES or inodes < FEW_INODES:
        return Check(name, State.WARN, f"only {detail}", ROOM)
    return Check(name, State.OK, detail)


def _write_probe(folder: Path, *, in_place: bool) -> None:
    """Write, lock and remove a file in the folder of the data; of its parent only ask whether it may be written to."""
    if not in_place:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, os.strerror(13), str(folder))
        return
    path = folder / f".probe-{os.getpid()}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, bytes(PROBE_BYTES))
        os.fsync(descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
        path.unlink()


def _temporary_checks() -> Iterator[Check]:
    try:
        tempfile.gettempdir()
    except OSError:
        # It has tried to write into each.
        detail = "none of $TMPDIR, /tmp, /var/tmp and the working folder can be written to"
        yield Check("temporary folder", State.FAIL, detail, "make room in /tmp and let every user write there (1777)")


def _files_checks(settings: Settings) -> Iterator[Check]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = files_needed(settings)
    if most != resource.RLIM_INFINITY and most < needed:
        fix = f"raise the limit to {needed} (ulimit -Hn; LimitNOFILE= of a systemd unit), or configure fewer slots"
        yield Check("open files", State.FAIL, f"a process may open {most:,} files, and {needed:,} are needed", fix)


def _device(path: Path) -> int:
    return path.stat().st_dev


def _size(count: int) -> str:
    return f"{count / 1024 / MIB:.1f} GiB" if count >= 1024 * MIB else f"{count / MIB:.0f} MiB"
