"""The record of one data directory: ports and passwords, in one small file, and the lock around it."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TextIO

from vibey.domain.errors import ServiceUnavailable
from vibey.embedded.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORD = "services.json"
LOCK = "services.lock"
LOCK_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens on 127.0.0.1, and its password; port 0 means none was picked yet.

    `connections` is Postgres's `max_connections` since its last start, 0 where that is not known.
    """

    port: int
    password: str
    connections: int = 0

    @classmethod
    def new(cls, port: int = 0) -> Server:
        """Make a password for a server that does not exist yet."""
        return cls(port=port, password=secrets.token_hex(24))


@dataclass(frozen=True, slots=True)
class Record:
    """Everything another process needs to reach both servers."""

    postgres: Server
    redis: Server

    @classmethod
    def new(cls) -> Record:
        """Make passwords for two servers that do not exist yet."""
        return cls(postgres=Server.new(), redis=Server.new())

    @classmethod
    def load(cls, data_dir: Path) -> Record | None:
        """Read the record; None when there is none. Raises ServiceUnavailable when it is not a record."""
        path = data_dir / RECORD
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            return cls(postgres=_server(raw["postgres"]), redis=_server(raw["redis"]))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ServiceUnavailable(
                "the embedded service",
                f"{path} is not a record of servers: {error}",
                "remove that file; the data stays, and the servers get new passwords",
            ) from error

    @staticmethod
    def remove(data_dir: Path) -> None:
        """Delete the record; the lock file stays, for someone may be waiting on it."""
        (data_dir / RECORD).unlink(missing_ok=True)

    def save(self, data_dir: Path) -> None:
        """Replace the record in one step, readable by its owner only."""
        write_private(data_dir / RECORD, json.dumps(asdict(self), indent=2) + "\n")


@contextmanager
def exclusive(data_dir: Path) -> Iterator[None]:
    """Hold the directory's lock; the system frees it when the holder dies.

    Makes the directory if need be. Raises ServiceUnavailable when another process keeps the lock too long.
    """
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_lock_file(data_dir / LOCK) as lock:
        if not wait_until(lambda: _locked(lock.fileno()), seconds=LOCK_SECONDS):
            raise ServiceUnavailable(
                "the embedded service",
                f"{data_dir / LOCK} has been held for {LOCK_SECONDS:.0f} s",
                "see which process starts or stops the servers, and end it",
            )
        yield


def open_lock_file(path: Path) -> TextIO:
    """Open a file to lock it, making it if need be, for its owner alone: whoever can read a file can lock it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, 0o600)  # files of earlier versions were readable
    return os.fdopen(descriptor, "w", encoding="utf-8")


def write_private(path: Path, text: str, *, owner: tuple[int, int] | None = None) -> None:
    """Write a file that only its owner can read, all at once: a reader sees the old text or the new.

    `owner` (user and group id) makes it another user's, for root; through the open file, for in a folder of
    that user's the name could by then be something else.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        if owner is not None:
            os.fchown(descriptor, *owner)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _server(raw: dict[str, object]) -> Server:
    port, password, connections = raw["port"], raw["password"], raw.get("connections", 0)
    if not isinstance(port, int) or not isinstance(password, str) or not isinstance(connections, int):
        message = "ports and connections must be numbers, and a password text"
        raise TypeError(message)
    return Server(port, password, connections)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
