"""What an operating system, a database server or a Redis server refuses for want of something, as errors of the tree.

The one place that knows these codes and words. Everybody who meets an `OSError`, an SQLSTATE or a reply of Redis asks
here; None means that the error is of another kind and stays what it is.

All of these may be mended while Vibey runs: room is made, a limit is raised, a right is granted. So they are kinds of
`ServiceUnavailable`, and whoever waits for a service that is away waits for these in the same way.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from vibey.domain.errors import OutOfResources, ServiceUnavailable, TooManyConnections, UnsuitableService

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOM = "make room there; work goes on by itself"
ACCOUNT = "give the folder to the user that runs Vibey (chown), or run Vibey as its owner"

# What is missing, and what to do about it.
_OS_FAULTS: Mapping[int, tuple[str, str]] = {
    errno.ENOSPC: ("the disk is full, in bytes or in inodes", f"see: df, df -i; {ROOM}"),
    errno.EDQUOT: ("the disk quota is used up", f"see: quota; {ROOM}, or raise the quota"),
    errno.EROFS: ("the file system is read-only", "mount it writable, or set data_dir to a folder on another one"),
    errno.EMFILE: (
        "this process may open no more files",
        "raise the limit (ulimit -n; LimitNOFILE= of a systemd unit) and start it again",
    ),
    errno.ENFILE: ("the machine has no file handles left", "raise fs.file-max (sysctl), or end what holds them"),
    errno.ENOMEM: ("the machine has no memory left", "end what uses it, or lower the number of slots"),
    errno.EAGAIN: ("the limit of processes or threads is reached", "raise it (ulimit -u; TasksMax= of a systemd unit)"),
    errno.ENOLCK: ("the file system gives no locks", "set data_dir to a folder on a local file system"),
    errno.EOPNOTSUPP: ("the file system lacks what is needed", "set data_dir to a folder on a local file system"),
    errno.ENOSYS: ("the file system lacks what is needed", "set data_dir to a folder on a local file system"),
    errno.EACCES: ("this user may not write, or enter, it", ACCOUNT),
    errno.EPERM: ("this user may not change it", ACCOUNT),
    errno.EIO: ("the disk fails", "see the kernel's log (dmesg); replace it, or restore elsewhere"),
    errno.ENAMETOOLONG: ("the path is too long", "set data_dir to a folder with a shorter path"),
    errno.ESTALE: ("the network file system has lost it", "mount it again, or set data_dir to a local folder"),
}

_GRANTS = "grant them: docs/how-to/several-machines.md has the statements"
# Of a server that answers, by SQLSTATE: what it refuses, for want of what, and what to do.
_EXHAUSTED: Mapping[str, tuple[str, str]] = {
    "53100": ("the disk of the database server is full", ROOM),
    "53200": ("the database server has no memory left", "give it more, or lower max_connections and work_mem"),
    "53300": (
        "the database server takes no more connections",
        "raise max_connections (or the limit of the role or database), lower slots, or put a pooler before it",
    ),
    "53400": ("a limit of the database server's configuration is reached", "raise it"),
    "58030": ("the disk of the database server fails", "see the server's log"),
}
_UNSUITABLE: Mapping[str, tuple[str, str]] = {
    "25006": (
        "the database server is a read-only standby, or its sessions are set to read-only",
        "name the primary in database_url, or all hosts: postgresql://user@h1,h2/db",
    ),
    "42501": ("the role lacks rights", _GRANTS),
    "22P05": ("the database's encoding has no such character", "use a database made with encoding 'UTF8'"),
}
# What a server says before there is a session has no SQLSTATE in psycopg2, only words; they are those of the server's
# language, and what is not recognised is reported as it is.
_ALL_OF_THE_SERVER = ("too many clients already", "remaining connection slots are reserved")
_BEFORE_A_SESSION: Mapping[str, tuple[str, ...]] = {
    "53100": ("No space left on device", "Disk quota exceeded"),
    "53200": ("Cannot allocate memory", "could not fork new process"),
    "53300": (
        *_ALL_OF_THE_SERVER,
        "too many connections for",
        "no more connections allowed",
    ),
    "58030": ("Input/output error", "Read-only file system"),
    "25006": (
        "session is read-only",
        "server is in hot standby mode",
        "not in hot standby",
        "session is not read-only",
    ),
}

_REDIS_EXHAUSTED: tuple[tuple[str, str, str], ...] = (
    ("MISCONF", "it cannot write to its disk", ROOM),
    ("OOM", "its memory is full", "raise maxmemory, or remove what else is kept there"),
    ("max number of clients", "it takes no more connections", "raise maxclients, or end idle clients"),
)
_REDIS_UNSUITABLE: tuple[tuple[str, str, str], ...] = (
    ("NOPERM", "the user lacks rights", "grant them: docs/how-to/several-machines.md has the line for the ACL"),
    ("READONLY", "it is a read-only replica", "name the primary in redis_url"),
    ("NOAUTH", "it asks for a password", "name it in redis_url: redis://:PASSWORD@host:port/0"),
    ("HELLO must be called", "it asks for a password", "name it in redis_url: redis://:PASSWORD@host:port/0"),
    ("Authentication required", "it asks for a password", "name it in redis_url: redis://:PASSWORD@host:port/0"),
    ("WRONGPASS", "user or password is wrong", "correct redis_url"),
    ("invalid username-password", "user or password is wrong", "correct redis_url"),
    ("invalid password", "the password is wrong", "correct redis_url"),
    ("without any password configured", "it has no password, but redis_url names one", "leave it out of redis_url"),
    ("DB index is out of range", "it has no database of that number", "name a lower one at the end of redis_url"),
    ("SELECT is not allowed in cluster mode", "it is a cluster", "use a server that is no cluster"),
    ("MOVED", "it is a cluster", "use a server that is no cluster"),
    ("CROSSSLOT", "it is a cluster", "use a server that is no cluster"),
    ("CLUSTERDOWN", "it is a cluster", "use a server that is no cluster"),
)


def fault_of_os(error: OSError, what: str = "") -> ServiceUnavailable | None:
    """What the operating system lacks; `what` names what was to be done, else the error's own file does."""
    known = _OS_FAULTS.get(error.errno or 0)
    if known is None:
        return None
    problem, remedy = known
    name = what or (str(error.filename) if error.filename else "this machine")
    detail = str(error)
    return OutOfResources(name, problem, detail, remedy)


def fault_of_sql(state: str | None, text: str, *, max_connections: int | None = None) -> ServiceUnavailable | None:
    """What a database server lacks or does not allow, by its SQLSTATE; without one, by its words.

    `max_connections` is the server's, where the caller knows it: a server that takes no more does not tell it.
    """
    service = "Postgres"
    line = first_line(text)
    code = state or next((code for code, words in _BEFORE_A_SESSION.items() if any(w in line for w in words)), "")
    if code == "53300":
        allowed = max_connections if any(words in line for words in _ALL_OF_THE_SERVER) else None
        return TooManyConnections(service, _EXHAUSTED[code][0], line, _EXHAUSTED[code][1], allowed)
    if code in _EXHAUSTED:
        return OutOfResources(service, _EXHAUSTED[code][0], line, _EXHAUSTED[code][1])
    if code in _UNSUITABLE:
        return UnsuitableService(service, f"{_UNSUITABLE[code][0]} ({line})", _UNSUITABLE[code][1])
    return None


def fault_of_redis(text: str, *, service: str = "Redis") -> ServiceUnavailable | None:
    """What a Redis-compatible server lacks or does not allow, by the first words of its reply."""
    line = first_line(text)
    for words, problem, remedy in _REDIS_EXHAUSTED:
        if words in line:
            return OutOfResources(service, problem, line, remedy)
    for words, problem, remedy in _REDIS_UNSUITABLE:
        if words in line:
            return UnsuitableService(service, f"{problem} ({line})", remedy)
    return None


def first_line(text: str) -> str:
    """The first line that says anything; drivers add hints and the statement below it."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "it said nothing")
