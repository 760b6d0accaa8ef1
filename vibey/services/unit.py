"""Unit: `vibey up` as a service of systemd, so that a machine's installation is up again after a reboot.

Root gets a unit of the system, which runs as the user whose installation it is; anybody else a unit of their own user
manager. What the unit says follows from how `vibey up` works:

- `Type=exec` and no `--detach`: the command in the foreground is the service's main process.
- `KillMode=mixed`: a stop tells only that process (SIGTERM), which then ends runs, workers and servers in their order.
  With systemd's default every process would be told at once, and runs would lose the seconds they have to end.
- `TimeoutStopSec` is longer than everything `vibey down` may wait for.
- `Restart=on-failure`: a database that is not up yet after a boot is tried again; `vibey down` is obeyed.
- `OOMPolicy=continue`: a job that runs out of memory ends alone, not with the whole service.

systemd starts it with hardly any environment. The PATH of the shell that installed the unit is written into it, for
engines are programs of that PATH; other variables are not, because keys and passwords may be among them.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.errors import Refused
from vibey.domain.shell import command
from vibey.services import supervised
from vibey.services.installation import is_embedded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.settings import Settings

SYSTEM_FOLDER = Path("/etc/systemd/system")
RUNNING_SYSTEMD = Path("/run/systemd/system")
MARK = "# Written by `vibey up --install` for the data folder "
# What `vibey down` waits for at most: programs, what is left of them, and the servers; and some time to spare.
STOP_SECONDS = int(supervised.STOP_SECONDS + supervised.LEFTOVER_SECONDS + 2 * supervised.KILL_SECONDS + 80 + 30)

TEMPLATE = """\
{mark}
[Unit]
Description=Vibey in {folder}
{after}StartLimitIntervalSec=0

[Service]
Type=exec
{user}WorkingDirectory={directory}
Environment={path}
{config}ExecStart={command}
KillMode=mixed
TimeoutStopSec={stop_seconds}
Restart=on-failure
RestartSec=10
OOMPolicy=continue

[Install]
WantedBy={target}
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit file: `commands` put it in force, `missing` are variables the engines need and the unit does not have."""

    path: Path
    text: str
    user: str
    commands: tuple[str, ...]
    missing: tuple[str, ...]


def install(settings: Settings, environ: Mapping[str, str], *, folder: Path | None = None) -> Unit:
    """Write the unit of this installation, in place of an earlier one of it. Refused where that cannot be."""
    unit = compose(settings, environ, folder=folder)
    try:
        unit.path.parent.mkdir(parents=True, exist_ok=True)
        unit.path.write_text(unit.text, encoding="utf-8")
    except OSError as error:
        raise Refused(
            f"{unit.path} cannot be written: {error.strerror}", "mend that, or run it as the user whose unit it is"
        ) from error
    return unit


def compose(settings: Settings, environ: Mapping[str, str], *, folder: Path | None = None) -> Unit:
    """The unit of this installation, not yet written. Refused without a configuration file."""
    if settings.path is None:
        raise Refused("there is no vibey.toml to start with", "run: vibey init, or name the file in $VIBEY_CONFIG")
    is_system = os.geteuid() == 0
    user = _owner_of(settings)
    directory = settings.path.absolute().parent
    text = TEMPLATE.format(
        mark=_mark(settings),
        folder=_plain(directory),
        after="" if not is_system else _after(settings),
        user=f"User={user}\n" if is_system else "",
        directory=_plain(directory),
        path=_quoted(f"PATH={environ.get('PATH', os.defpath)}"),
        config=f"Environment={_quoted(f'VIBEY_CONFIG={settings.path.absolute()}')}\n",
        command=" ".join(_argument(word) for word in (sys.executable, "-m", "vibey.cli.main", "up")),
        stop_seconds=STOP_SECONDS,
        target="multi-user.target" if is_system else "default.target",
    )
    path = find(settings, environ, folder=folder) or _free_path(settings, folder or _folder(environ))
    return Unit(path, text, user, _commands(path.name, user, is_system=is_system), _missing(settings, environ))


def find(settings: Settings, environ: Mapping[str, str], *, folder: Path | None = None) -> Path | None:
    """The unit file that was written for this installation; None if there is none."""
    mark = _mark(settings)
    place = folder or _folder(environ)
    return next((path for path in sorted(place.glob("vibey*.service")) if _first_line(path) == mark), None)


def remove(settings: Settings, environ: Mapping[str, str], *, folder: Path | None = None) -> Path | None:
    """Stop and remove the unit that was written for this installation, if there is one; returns its path."""
    path = find(settings, environ, folder=folder)
    if path is None:
        return None
    _systemctl("disable", "--now", path.name)
    path.unlink()
    _systemctl("daemon-reload")
    return path


def _systemctl(*arguments: str) -> None:
    """Tell systemd, where one runs; a file it has not loaded is nothing it could stop."""
    if not RUNNING_SYSTEMD.is_dir():
        return
    scope = [] if os.geteuid() == 0 else ["--user"]
    try:
        subprocess.run(
            ["systemctl", *scope, *arguments],  # noqa: S607  the system's own
            capture_output=True,
            check=False,
            timeout=STOP_SECONDS + 30,
        )
    except FileNotFoundError:
        return


def _commands(name: str, user: str, *, is_system: bool) -> tuple[str, ...]:
    scope = "" if is_system else "--user "
    lines = (f"systemctl {scope}daemon-reload", f"systemctl {scope}enable --now {name}")
    # Without it, a user's units run only while the user is logged in.
    return lines if is_system else (*lines, command("loginctl enable-linger", user))


def _folder(environ: Mapping[str, str]) -> Path:
    if os.geteuid() == 0:
        return SYSTEM_FOLDER
    home = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home()) / ".config")
    return home / "systemd" / "user"


def _free_path(settings: Settings, folder: Path) -> Path:
    """A name after the folder; one that another installation has gets the digest of the data folder."""
    assert settings.path is not None  # noqa: S101  for the type checker: compose has looked
    word = re.sub(r"[^A-Za-z0-9_.-]+", "-", settings.path.absolute().parent.name).strip("-.") or "root"
    plain = folder / f"vibey-{word}.service"
    if not plain.exists():
        return plain
    digest = blake2b(os.fsencode(settings.data_dir), digest_size=4).hexdigest()
    return folder / f"vibey-{word}-{digest}.service"


def _owner_of(settings: Settings) -> str:
    """Whose installation it is: the owner of its data folder, or of the configuration's before there is one."""
    assert settings.path is not None  # noqa: S101  for the type checker: compose has looked
    place = settings.data_dir if settings.data_dir.is_dir() else settings.path.absolute().parent
    number = place.stat().st_uid if os.geteuid() == 0 else os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _after(settings: Settings) -> str:
    """Servers of one's own may be on this machine or across the network."""
    if is_embedded(settings):
        return ""
    servers = "postgresql.service redis-server.service redis.service valkey.service"
    return f"Wants=network-online.target\nAfter=network-online.target {servers}\n"


def _missing(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that engines or our settings are given, and that only this shell has."""
    engines = settings.engine.values()
    names = {name for engine in engines for name in (*engine.env, engine.api_key_env) if name} - {"PATH", "HOME"}
    own = {name for name in environ if name.startswith("VIBEY_") and name not in {"VIBEY_CONFIG", "VIBEY_DEBUG"}}
    return tuple(sorted(name for name in names | own if name in environ))


def _mark(settings: Settings) -> str:
    return MARK + json.dumps(str(settings.data_dir))


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, ValueError):
        return ""


def _plain(path: Path) -> str:
    """A path as the value of a setting that takes the rest of its line: only percent signs mean anything there."""
    text = str(path)
    if not text.isprintable() or text != text.strip() or text.endswith("\\"):
        raise Refused(f"systemd cannot work in the folder {text!r}", "rename it: no control characters, no blank end")
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """A word for systemd, which undoes these quotes and expands percent signs."""
    if not text.isprintable():
        raise Refused(f"{text!r} cannot be written into a unit", "remove the control characters in it")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def _argument(text: str) -> str:
    """A word of a command line, where a dollar sign would name a variable."""
    return _quoted(text).replace("$", "$$")
