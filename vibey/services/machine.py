"""Machine: everything of an installation on this machine, up and down: servers, schema, fleet, workers, beat, Flower.

One `up` or `down` at a time works on a data folder; a file lock makes a second one say so and leave. `up` may be
repeated: what runs is kept, and only what has fallen is started. An `up` that fails, or is interrupted, leaves no
program behind; the servers stay.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey import __version__, embedded
from vibey.domain.errors import Refused, ServiceUnavailable, UnsuitableService
from vibey.embedded.processes import port_is_free
from vibey.embedded.record import open_lock_file
from vibey.services import supervised, views
from vibey.services.apply import apply, plan
from vibey.services.connections import build_processes, require_room
from vibey.services.doctor import Check, State, check
from vibey.services.host import files_needed, require_host
from vibey.services.installation import Installation, ensure_services, is_embedded, service_urls
from vibey.services.login import make_token, pages
from vibey.services.programs import (
    BEAT,
    BUILD,
    CONTROL,
    LOOPBACK,
    WORKERS,
    Layout,
    Program,
    environment,
    flower_program,
    metrics_program,
)
from vibey.store import migrate
from vibey.store.views import TICKED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vibey.services.apply import Plan
    from vibey.services.login import Pages
    from vibey.services.supervised import Process
    from vibey.settings import Settings

READY_SECONDS = 90.0
POLL_SECONDS = 0.2
# A program that has ended this often without ever being ready will not be.
TRIES = 3


@dataclass(frozen=True, slots=True)
class Up:
    """What `up` led to: whether it started anything new, the programs, and where Flower and the metrics are, if so."""

    started: bool
    processes: tuple[Process, ...]
    flower: Pages | None
    metrics: str | None


@dataclass(frozen=True, slots=True)
class Steps:
    """How `up` tells what it does: a word for each step, and each thing its check found.

    `agree` shows how the configuration differs from what is in force, and says whether to apply it.
    """

    step: Callable[[str], None]
    checked: Callable[[Check], None]
    pause: Callable[[float], object]
    agree: Callable[[Plan], bool]


def up(settings: Settings, steps: Steps, *, with_flower: bool = True) -> Up:
    """Bring everything up and return when the workers serve every engine and beat has had its first tick done.

    Refused without any engine; ServiceUnavailable, with the last lines of its log, when a program does not come up.
    """
    _require_engines(settings)
    require_host(settings)
    layout = Layout(settings.data_dir)
    with _exclusive(layout):
        if supervised.supervisord(layout) is not None:
            return _again(settings, layout, steps)
        steps.step("starting Postgres and Redis" if is_embedded(settings) else "reaching Postgres and Redis")
        ensure_services(settings)
        installation = Installation.open(settings)
        try:
            _prepare(installation, steps)
            steps.step("starting workers and beat")
            programs = _programs(settings, steps, with_flower=with_flower)
            layout.write(programs, files_needed(settings))
            _start(installation, layout, steps)
        finally:
            installation.close()
        return _now(settings, layout, started=True)


def down(settings: Settings, step: Callable[[str], None], *, keep_services: bool = False) -> bool:
    """Stop the programs, then the embedded servers; says whether anything ran."""
    layout = Layout(settings.data_dir)
    if not layout.data_dir.is_dir():
        return False
    with _exclusive(layout):
        stopped = _programs_stopped(layout, step)
        if not keep_services and is_embedded(settings):
            stopped = _servers_stopped(settings, step) or stopped
    return stopped


def processes(settings: Settings) -> list[Process]:
    """The programs of this machine as they are; an empty list when nothing is up."""
    return supervised.processes(Layout(settings.data_dir))


@contextmanager
def servers_running(settings: Settings) -> Iterator[None]:
    """Have the embedded servers answer while this lasts; those that did not run before are stopped again after it.

    ServiceUnavailable when none has been set up here.
    """
    service_urls(settings)
    if not is_embedded(settings) or _servers_run(settings):
        yield
        return
    with _exclusive(Layout(settings.data_dir)), _borrowed_servers(settings):
        yield


@contextmanager
def installation_stopped(settings: Settings) -> Iterator[None]:
    """Keep `up` and `down` from working on the data folder, with the servers up, made if need be; Refused if up."""
    layout = Layout(settings.data_dir)
    with _exclusive(layout):
        if supervised.supervisord(layout) is not None:
            raise Refused(f"processes of {layout.data_dir} are running", "stop them first: vibey down")
        with _borrowed_servers(settings):
            yield


@contextmanager
def _borrowed_servers(settings: Settings) -> Iterator[None]:
    before = not is_embedded(settings) or _servers_run(settings)
    ensure_services(settings)
    try:
        yield
    finally:
        if not before:
            embedded.stop(settings.data_dir)


def _servers_run(settings: Settings) -> bool:
    found = embedded.status(settings.data_dir)
    return bool(found) and all(server.running for server in found)


def _programs_stopped(layout: Layout, step: Callable[[str], None]) -> bool:
    if supervised.supervisord(layout) is not None:
        names = ", ".join(each.name for each in supervised.processes(layout) if each.pid is not None)
        step(f"stopping {names or 'supervisord'}; runs at work have {BUILD.stop_seconds} s to end")
    return supervised.stop(layout)


def _servers_stopped(settings: Settings, step: Callable[[str], None]) -> bool:
    if any(server.pid is not None for server in embedded.status(settings.data_dir)):
        step("stopping Postgres and Redis")
    return embedded.stop(settings.data_dir)


def _require_engines(settings: Settings) -> None:
    if any(engine.enabled for engine in settings.engine.values()):
        return
    if settings.path is None:
        fix = "run: vibey init, or write an [engine.NAME] table in it"
        raise Refused("no engine is configured in vibey.toml (there is none here)", fix)
    if settings.engine:
        raise Refused(f"every engine in {settings.path} is disabled", "set enabled = true for one of them")
    fix = "write an [engine.NAME] table in it, or replace it by what is found here: vibey init --force"
    raise Refused(f"no engine is configured in {settings.path}", fix)


def _prepare(installation: Installation, steps: Steps) -> None:
    steps.step("migrating the database")
    installation.upgrade_schema()
    _apply(installation, steps)
    steps.step("looking at services and engines")
    failed = [found for found in _checked(installation, steps) if found.state is State.FAIL]
    broken = [found for found in failed if not found.name.startswith("engine ")]
    if broken:
        raise UnsuitableService(broken[0].name, broken[0].detail, broken[0].fix)
    require_room(installation, BUILD.name, build_processes(installation.settings))


def _apply(installation: Installation, steps: Steps) -> None:
    """Put the file in force where nothing is yet; where something else is, only if somebody agrees."""
    found = plan(installation)
    if found.generation is None:
        steps.step("applying the configuration")
        apply(installation)
    elif found.differs and steps.agree(found):
        done = apply(installation, seen=found)
        steps.step(f"applied: generation {done.generation} is in force")


def _checked(installation: Installation, steps: Steps) -> Iterator[Check]:
    for found in check(installation, staff=False):
        steps.checked(found)
        yield found


def _programs(settings: Settings, steps: Steps, *, with_flower: bool) -> tuple[Program, ...]:
    ports = settings.services
    programs = [*WORKERS]
    if with_flower and _is_free(steps, "flower", ports.flower_port, ", or use --no-flower"):
        programs.append(flower_program(settings))
        if pages(settings, os.environ).login == "link":
            make_token(Layout(settings.data_dir))
    if ports.metrics_port and _is_free(steps, "metrics", ports.metrics_port, ", or to 0"):
        programs.append(metrics_program(settings))
    return tuple(programs)


def _is_free(steps: Steps, program: str, port: int, otherwise: str) -> bool:
    """Whether a program's port is free; tells of one that is not, and leaves its program out."""
    free = port_is_free(port)
    if not free:
        fix = f"set services.{program}_port to a free one{otherwise}"
        steps.checked(Check(program, State.WARN, f"port {port} is taken: left out", fix))
    return free


def _start(installation: Installation, layout: Layout, steps: Steps) -> None:
    try:
        supervised.launch(layout, environment(installation.settings, layout, os.environ))
        _until_ready(installation, layout, steps)
    except BaseException:
        supervised.stop(layout)
        raise


def _until_ready(installation: Installation, layout: Layout, steps: Steps) -> None:
    began = time.monotonic()
    deadline = began + READY_SECONDS
    ended: dict[str, int] = {}
    last: Mapping[str, str] = {}
    now: dict[str, Process] = {}
    while time.monotonic() < deadline:
        now = {each.name: each for each in supervised.processes(layout)}
        for name, each in now.items():
            if each.state in {"BACKOFF", "EXITED", "FATAL"} and last.get(name) != each.state:
                ended[name] = ended.get(name, 0) + 1
        last = {name: each.state for name, each in now.items()}
        if _is_ready(installation, now) and _has_ticked(installation, time.monotonic() - began):
            return
        hopeless = [name for name, count in ended.items() if count >= TRIES]
        if hopeless:
            raise _not_up(layout, hopeless[0])
        steps.pause(POLL_SECONDS)
    raise _not_up(layout, BEAT.name if _is_ready(installation, now) else BUILD.name)


def _is_ready(installation: Installation, now: Mapping[str, Process]) -> bool:
    """Whether the workers just started have shown themselves: their rows carry the pids of our programs."""
    seen = {worker["pid"] for worker in views.workers(installation)["workers"] if worker["alive"]}
    workers = [now[program.name].pid for program in (CONTROL, BUILD) if program.name in now]
    return len(workers) == 2 and all(pid in seen for pid in workers) and now[BEAT.name].pid is not None


def _has_ticked(installation: Installation, seconds: float) -> bool:
    """Whether beat has had a tick done within this time: only then does `doctor` find nothing amiss after `up`."""
    age = installation.database.statement(TICKED.scalar)
    return age is not None and age <= seconds


def _not_up(layout: Layout, program: str) -> ServiceUnavailable:
    words = supervised.last_words(layout, program) or ["it said nothing"]
    log = layout.log(program)
    return ServiceUnavailable(program, words[-1], f"read {log}")


def _again(settings: Settings, layout: Layout, steps: Steps) -> Up:
    ensure_services(settings)
    installation = Installation.open(settings)
    try:
        _compare_versions(installation, steps)
        _apply(installation, steps)
    finally:
        installation.close()
    revived = supervised.revive(layout)
    return _now(settings, layout, started=bool(revived))


def _compare_versions(installation: Installation, steps: Steps) -> None:
    """Refuse to go on beside programs of another schema, and tell of those of another version."""
    found = migrate.current(installation.database)
    if found != migrate.HEAD:
        raise Refused(
            f"what runs here is of another version: the schema is at {found or 'nothing'}, and this version "
            f"({__version__}) has {migrate.HEAD}",
            "run: vibey down, then: vibey up",
        )
    others = [
        f"{worker['name']} is of version {worker['version']}"
        for worker in views.workers(installation)["workers"]
        if worker["alive"] and worker["version"] != __version__
    ]
    if others:
        detail = f"{', '.join(others)}; this is {__version__}"
        steps.checked(Check("version", State.WARN, detail, "run: vibey down, then: vibey up"))


def _now(settings: Settings, layout: Layout, *, started: bool) -> Up:
    found = tuple(supervised.processes(layout))
    names, ports = {each.name for each in found}, settings.services
    flower = pages(settings, os.environ) if "flower" in names else None
    metrics = f"http://{LOOPBACK}:{ports.metrics_port}/metrics" if "metrics" in names else None
    return Up(started, found, flower, metrics)


@contextmanager
def _exclusive(layout: Layout) -> Iterator[None]:
    layout.make_folders()
    with open_lock_file(layout.folder / "up.lock") as lock:
        try:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused(
                f"another vibey up or down is at work on {layout.data_dir}", "wait until it is done"
            ) from error
        yield
