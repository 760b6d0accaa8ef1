"""Purge: remove everything an installation keeps on this machine, and nothing else.

What is ours is known by name: the embedded servers' files, what `vibey up` writes below `processes`, the folders of
runs, a socket in the folder for temporary files, root's cluster under /var/lib/vibey, and a unit of systemd. Whatever
else lies in the data folder is kept and named; so is vibey.toml, wherever it is. Databases and Redis servers of one's
own are not touched.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vibey import embedded
from vibey.embedded.record import LOCK, RECORD
from vibey.engines.removal import remove
from vibey.engines.tree import release
from vibey.engines.workspace import CONTROL
from vibey.services import machine, supervised, unit
from vibey.services.fleet import CLIENTS
from vibey.services.outputs import RUN_FOLDER
from vibey.services.programs import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vibey.embedded import SharedHome
    from vibey.settings import Settings

RUNS = "runs"
# What is kept of a kind of client, and what a write of it that was cut short leaves.
_FINDING = re.compile(r"[a-z-]+\.(\d+\.new|json)")
# What supervisord, the programs and their logs are called.
_PROCESS_FILE = re.compile(
    r"supervisord\.(conf|pid|out|log(\.\d+)?|sock(\.\d+)?)|[a-z]+\.log(\.\d+)?|beat-schedule([-.].*)?"
    r"|flowerconfig\.py|flower\.token(\..*)?|up\.lock"
)


@dataclass(frozen=True, slots=True)
class Holdings:
    """What an installation has on this machine: folders, its unit, whether it is up, and databases that stay."""

    folders: tuple[Path, ...]
    unit: Path | None
    running: bool
    external: tuple[str, ...]

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to remove."""
        return not self.folders and self.unit is None


def holdings(settings: Settings, environ: Mapping[str, str]) -> Holdings:
    """Look what there is to remove; nothing is changed."""
    data_dir, services = settings.data_dir, settings.services
    external = [
        name for name, url in (("database_url", services.database_url), ("redis_url", services.redis_url)) if url
    ]
    folders = [data_dir] if data_dir.is_dir() else []
    folders += [folder for folder in embedded.outside(data_dir) if os.geteuid() == 0]
    return Holdings(tuple(folders), unit.find(settings, environ), bool(machine.processes(settings)), tuple(external))


def purge(settings: Settings, environ: Mapping[str, str], step: Callable[[str], None]) -> list[Path]:
    """Stop and remove everything of the installation on this machine; returns what was left in its data folder."""
    data_dir = settings.data_dir
    layout = Layout(data_dir)
    unit.remove(settings, environ)
    machine.down(settings, step)
    supervised.stop(layout)
    step("removing files")
    _remove_runs(data_dir / RUNS)
    _remove_findings(data_dir / CLIENTS)
    embedded.destroy(data_dir)
    embedded.remove_unused_programs()
    _remove_processes(layout)
    for name in (LOCK, RECORD, f"{RECORD}.new"):
        (data_dir / name).unlink(missing_ok=True)
    _remove_empty(data_dir)
    return sorted(_files(data_dir))


def orphans() -> tuple[list[SharedHome], list[SharedHome]]:
    """Root's clusters on this machine whose data folder is gone, and those of which nobody knows whose they are."""
    found = embedded.orphans()
    return [each for each in found if each.orphaned], [each for each in found if not each.orphaned]


def purge_orphans(homes: list[SharedHome]) -> None:
    """Remove clusters whose data folder is gone, and the programs that only they used."""
    for home in homes:
        embedded.remove_orphan(home)
    embedded.remove_unused_programs()


def size_of(folder: Path) -> int:
    """How many bytes the files of a folder take on the disk."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118  there may be thousands
    return total


def _remove_runs(root: Path) -> None:
    if not root.is_dir() or root.is_symlink():
        return
    for entry in root.iterdir():
        if RUN_FOLDER.fullmatch(entry.name):
            release(entry / CONTROL)
            remove(entry)
    _remove_empty(root)


def _remove_findings(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        for entry in folder.iterdir():
            if _FINDING.fullmatch(entry.name):
                remove(entry)
        _remove_empty(folder)


def _remove_processes(layout: Layout) -> None:
    if layout.folder.is_dir() and not layout.folder.is_symlink():
        for entry in layout.folder.iterdir():
            if _PROCESS_FILE.fullmatch(entry.name):
                remove(entry)
        remove(layout.folder / "__pycache__")
        _remove_empty(layout.folder)
    private = layout.socket.parent
    layout.require_own_socket_folder()
    if private != layout.folder and private.is_dir():
        for entry in private.glob("supervisord.sock*"):
            entry.unlink(missing_ok=True)
        _remove_empty(private)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        for name in names:
            yield Path(place) / name
        if not names and not folders and Path(place) != folder:
            yield Path(place)
