"""Programs: what runs on one machine besides the servers, and supervisord's configuration for it.

Everything lies in one folder, `processes` under the data folder: the configuration, supervisord's pid and socket,
beat's schedule, and the logs. The configuration names that folder only as `%(here)s` and the interpreter only through
the environment, so that no character of a path can mean something to its parser. Logs of programs are named without a
folder, which is supervisord's working folder: their names are expanded twice, and a path may hold a percent sign.

A worker's group is not signalled as a whole at a stop: its main process ends its children in good order, each run's
tree included. What has not ended in time is killed as a group, and the runs' own supervisors then kill their trees.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
import tempfile
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import vibey
from vibey.domain.errors import Refused
from vibey.publisher import CONTROL_QUEUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.settings import Settings

FOLDER = "processes"
OWNER_VARIABLE = "VIBEY_PROCESSES"
PYTHON_VARIABLE = "VIBEY_PYTHON"
# The kernel's limit is 104 bytes on macOS and 108 on Linux; supervisord first binds a name a pid longer.
LONGEST_SOCKET = 90
LOOPBACK = "127.0.0.1"
FLOWER_CONFIGURATION = "flowerconfig.py"
FLOWER_LOGIN_PATH = "/router/login"
# To route and to tick, also while the other process is busy.
CONTROL_PROCESSES = 2
# Of a build worker beside those for slots, to stay answerable.
SPARE_PROCESSES = 1
FLOWER_LOGIN = frozenset(
    f"FLOWER_{name}"
    for name in (
        "AUTH",
        "AUTH_PROVIDER",
        "BASIC_AUTH",
        "COOKIE_SECRET",
        "GITHUB_OAUTH_DOMAIN",
        "GITLAB_AUTH_ALLOWED_GROUPS",
        "GITLAB_MIN_ACCESS_LEVEL",
        "GITLAB_OAUTH_DOMAIN",
        "OAUTH2_KEY",
        "OAUTH2_OKTA_BASE_URL",
        "OAUTH2_REDIRECT_URI",
        "OAUTH2_SECRET",
        "VIBEY_ACTIONS",
    )
)
# They change what a signal does, and how tasks are registered.
STEERING = frozenset({"FORKED_BY_MULTIPROCESSING", "REMAP_SIGTERM"})
SWITCHES = ("NO_COLOR", "SKIP_CHECKS")

HEAD = """\
; Written anew by each start of `vibey up`.
[unix_http_server]
file=%(ENV_VIBEY_SOCKET)s
chmod=0700

[supervisord]
logfile=%(here)s/supervisord.log
pidfile=%(here)s/supervisord.pid
logfile_maxbytes=5MB
logfile_backups=1
nodaemon=true
silent=true
minfds={files}
minprocs=1

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
"""
# Tries come slower and slower: a database that is away for an hour finds its workers again, a broken one costs little.
PROGRAM = """
[program:{name}]
command="%(ENV_VIBEY_PYTHON)s" {arguments}
directory=%(here)s
priority={priority}
autorestart=true
startsecs=3
startretries=1000
stopsignal=TERM
stopwaitsecs={stop_seconds}
stopasgroup=false
killasgroup=true
redirect_stderr=true
stdout_logfile={name}.log
stdout_logfile_maxbytes=10MB
stdout_logfile_backups=2
"""


@dataclass(frozen=True, slots=True)
class Program:
    """One process: a module of Python and its arguments. Programs start by ascending `priority` and stop the other way.

    The command lines stand here and nowhere else in the product. Procfile and docker-compose.yml repeat them for
    people, and a test compares.
    """

    name: str
    command: tuple[str, ...]
    priority: int
    stop_seconds: int

    def arguments(self, *more: str) -> list[str]:
        """What follows the interpreter's name to start it; of an option given twice the last one counts."""
        return ["-m", *self.command, *more]

    def section(self) -> str:
        """Its section of the configuration."""
        return PROGRAM.format(
            name=self.name,
            arguments=shlex.join(self.arguments()).replace("%", "%%"),
            priority=self.priority,
            stop_seconds=self.stop_seconds,
        )


def _celery(*arguments: str) -> tuple[str, ...]:
    return ("celery", "-A", "vibey", *arguments)


def _worker(name: str, *arguments: str) -> tuple[str, ...]:
    quiet = ("--without-mingle", "--without-gossip")
    return _celery("worker", *quiet, *arguments, "--hostname", f"{name}@%h", "--loglevel", "INFO")


CONTROL = Program(
    "control", _worker("control", "--queues", CONTROL_QUEUE, "--concurrency", str(CONTROL_PROCESSES)), 10, 10
)
BUILD = Program("build", _worker("build", "--exclude-queues", CONTROL_QUEUE), 20, 20)
BEAT = Program("beat", _celery("beat", "--schedule", "beat-schedule", "--loglevel", "INFO"), 30, 10)
# What every installation runs, on one machine or several.
WORKERS = (CONTROL, BUILD, BEAT)


def flower_program(settings: Settings) -> Program:
    """Flower on its port, on loopback and read-only."""
    options = (f"--conf={FLOWER_CONFIGURATION}", f"--address={LOOPBACK}", f"--port={settings.services.flower_port}")
    return Program("flower", _celery("flower", *options), 40, 5)


def metrics_program(settings: Settings) -> Program:
    """The exporter of metrics on its port, on loopback."""
    listen = f"{LOOPBACK}:{settings.services.metrics_port}"
    return Program("metrics", ("vibey.cli.main", "metrics", "--listen", listen), 50, 5)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where supervisord and its programs keep their files, for one data folder."""

    data_dir: Path

    @property
    def folder(self) -> Path:
        """The folder of everything here."""
        return self.data_dir / FOLDER

    @property
    def configuration(self) -> Path:
        """Supervisord's configuration; its path on a command line tells whose supervisord that is."""
        return self.folder / "supervisord.conf"

    @property
    def socket(self) -> Path:
        """Supervisord's socket: in the folder, or in a short private one where the folder's path is too long."""
        plain = self.folder / "supervisord.sock"
        if len(os.fsencode(plain)) <= LONGEST_SOCKET:
            return plain
        digest = blake2b(os.fsencode(self.data_dir), digest_size=8).hexdigest()
        return Path(tempfile.gettempdir()) / f"vibey-{os.getuid()}-{digest}" / "supervisord.sock"

    @property
    def flower_token(self) -> Path:
        """The file of the token that Flower's login link carries."""
        return self.folder / "flower.token"

    def require_own_socket_folder(self) -> None:
        """Refused when the socket's folder is another user's, is open to others or is a link.

        Outside the data folder its name can be foreseen, and whoever made it first could answer for supervisord.
        """
        folder = self.socket.parent
        if folder == self.folder:
            return
        try:
            found = folder.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise Refused(
                f"{folder}, where the socket of supervisord belongs, is not a folder of this user's alone",
                "remove it, or set data_dir to a folder with a shorter path, which needs no other place",
            )

    def log(self, program: str) -> Path:
        """A program's log."""
        return self.folder / f"{program}.log"

    def make_folders(self) -> None:
        """Make the data folder and the folder of the processes in it, unless they are there, for this user alone."""
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def write(self, programs: tuple[Program, ...], files: int) -> None:
        """Write the configuration anew, Flower's too, making the folders it needs.

        Each program may open at least so many `files`: supervisord raises the soft limit where it is lower.
        """
        self.make_folders()
        self.require_own_socket_folder()
        self.socket.parent.mkdir(mode=0o700, exist_ok=True)
        self.require_own_socket_folder()
        text = HEAD.replace("{files}", str(files)) + "".join(program.section() for program in programs)
        self.configuration.write_text(text, encoding="utf-8")
        own = Path(vibey.__file__).parent / "flower" / FLOWER_CONFIGURATION
        (self.folder / FLOWER_CONFIGURATION).write_bytes(own.read_bytes())


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What a program of ours gets of an environment: all of it, but for what steers Celery.

    The application itself pays no heed to such variables (`vibey.worker.application`). Two kinds are read before it is
    even imported: those that stand for options of the `celery` command, none of which can be meant for a job, for
    engines never pass one on; and two switches that any text sets, but of which Celery accepts only yes or no.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith("CELERY_") and name not in STEERING}
    return kept | {name: "1" for name in SWITCHES if kept.get(name)}


def steers_flower(name: str) -> bool:
    """Whether a variable is an option of Flower's, other than those of its login, which can only close it."""
    return name.startswith("FLOWER_") and name not in FLOWER_LOGIN


def environment(settings: Settings, layout: Layout, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the programs: what they inherit, and what makes them this installation's wherever they run."""
    own = {
        PYTHON_VARIABLE: sys.executable,
        OWNER_VARIABLE: str(layout.data_dir),
        "VIBEY_SOCKET": str(layout.socket),
        "VIBEY_DATA_DIR": str(layout.data_dir),
    }
    if settings.path is not None:
        own["VIBEY_CONFIG"] = str(settings.path)
    if environ.get("PYTHONPATH"):
        entries = environ["PYTHONPATH"].split(os.pathsep)
        own["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in entries if entry)
    return {**inherited(environ), **own}
