"""Doctor: is everything there that an installation needs? One check a line, each failure with what to do about it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vibey import embedded
from vibey.coordination import server
from vibey.domain.errors import SchemaOutdated, ServiceUnavailable, SettingsError
from vibey.domain.outcome import one_line
from vibey.domain.shell import command
from vibey.engines.clients.tried import newer_than_tried
from vibey.services import apply, connections, fleet
from vibey.services.checks import Check, State, run_check
from vibey.services.display import cap as cap_in_words
from vibey.services.display import database, many
from vibey.services.fleet import config_of
from vibey.services.host import host_checks
from vibey.services.installation import Installation, is_embedded, service_urls
from vibey.services.login import running_pages
from vibey.services.prune import kept
from vibey.services.purse import PaidPools, purses
from vibey.services.views import engines, workers
from vibey.services.wording import unserved_remedy
from vibey.settings import ProjectPolicy
from vibey.store import cap, migrate, projects, suitability, views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from vibey.engines.contract import Health
    from vibey.services.asking import Waiting
    from vibey.services.purse import Purse
    from vibey.settings import Settings
    from vibey.store.database import Connection
    from vibey.store.projects import Project

__all__ = ["Check", "State", "check", "engine_check", "examine"]

TICK_PATIENCE_SECONDS = 15.0
# So many projects are named in one check.
NAMED = 5


def examine(settings: Settings, waiting: Waiting | None = None) -> Iterator[Check]:
    """Look at everything, starting nothing: what does not run is reported as that. Ends whatever hangs.

    Each check has its time (CHECK_SECONDS), and one that is late is named. `waiting` is told whom we wait for.
    """
    yield from run_check("disk", lambda: host_checks(settings), waiting)
    servers = run_check("servers", lambda: _servers(settings), waiting)
    yield from servers
    yield from run_check("flower", lambda: _flower(settings), waiting)
    if any(server.state is State.FAIL for server in servers):
        yield from _engines(settings, waiting)
        return
    installation = Installation.open(settings)
    try:
        yield from check(installation, waiting=waiting)
    finally:
        installation.close()


def check(installation: Installation, *, staff: bool = True, waiting: Waiting | None = None) -> Iterator[Check]:
    """Look at services that run, and at everything else; without `staff`, not at workers and ticks.

    The engines are looked at all at once and come as they answer; `waiting` is told which checks are slow.
    """

    def looked(name: str, question: Callable[[Installation], Iterable[Check]]) -> list[Check]:
        return run_check(name, lambda: question(installation), waiting)

    database = looked("postgres", _postgres)
    yield from database
    yield from looked("redis", _redis)
    ready = False
    if database[0].state is not State.FAIL:
        schema = looked("schema", _schema)
        ready = schema[0].state is State.OK
        yield from schema
    found: dict[str, Health] = {}
    yield from _engines(installation.settings, waiting, found)
    if ready:
        yield from looked("engines", lambda _: _recorded(installation, found))
        yield from looked("configuration", _configuration)
        yield from looked("projects", lambda known: _projects(known, os.environ))
        yield from looked("cap", lambda known: _caps(known, os.environ))
        yield from looked("connections", connections.check)
        yield from looked("database", _database)
    if ready and staff:
        yield from looked("workers", _workers)
        yield from looked("beat", _ticks)


def _servers(settings: Settings) -> Iterator[Check]:
    """The embedded servers that do not run; nothing where all are the operator's."""
    if not is_embedded(settings):
        return
    services = settings.services
    own = {"postgres": not services.database_url, "redis": not services.redis_url}
    found = {server.name: server for server in embedded.status(settings.data_dir)}
    for name in [name for name, is_own in own.items() if is_own]:
        server = found.get(name)
        if server is None:
            detail = f"not running; none has been set up under {settings.data_dir}"
            yield Check(name, State.FAIL, detail, "run: vibey up")
        elif server.pid is None:
            yield Check(name, State.FAIL, "not running", "run: vibey up")


def _flower(settings: Settings) -> Iterator[Check]:
    """Where the pages are that `vibey up` serves here, and what they ask for; nothing where it serves none."""
    found = running_pages(settings)
    if found is not None:
        yield Check("flower", State.OK, found.words)


def _postgres(installation: Installation) -> Iterator[Check]:
    """The database server: one check, or one for each thing it does not allow."""
    lacking: list[ServiceUnavailable] = []
    version = ""
    try:
        version = installation.database.statement(views.SERVER_VERSION.scalar)
        lacking += suitability.shortcomings(installation.database, migrating=False)
    except ServiceUnavailable as error:
        lacking.append(error)
    for shortcoming in lacking:
        yield Check("postgres", State.FAIL, shortcoming.detail, shortcoming.remedy)
    if not lacking:
        yield Check("postgres", State.OK, f"PostgreSQL {version}")


def _redis(installation: Installation) -> Iterator[Check]:
    services = service_urls(installation.settings)
    found = server.examine(services.redis_url, installation.settings.services.redis_prefix)
    for shortcoming in found.lacking:
        yield Check("redis", State.FAIL, shortcoming.detail, shortcoming.remedy)
    if found.lacking:
        return
    if found.memory_policy not in {"noeviction", ""}:
        fix = "set maxmemory-policy noeviction: a server short of memory must refuse messages, not drop them"
        yield Check("redis", State.WARN, f"{found.product}, maxmemory-policy {found.memory_policy}", fix)
    else:
        yield Check("redis", State.OK, found.product)


def _schema(installation: Installation) -> Iterator[Check]:
    found = migrate.current(installation.database)
    if found != migrate.HEAD:
        outdated = SchemaOutdated(found, migrate.HEAD)
        # On a machine with servers of its own one command does this and the rest.
        fix = "run: vibey up" if outdated.migration_helps and is_embedded(installation.settings) else outdated.remedy
        yield Check("schema", State.FAIL, outdated.detail, fix)
    else:
        yield Check("schema", State.OK, f"at {found}")


def _engines(settings: Settings, waiting: Waiting | None, found: dict[str, Health] | None = None) -> Iterator[Check]:
    """Each engine's own doctor; what they say goes into `found`."""
    configured = settings.engine
    if not configured:
        yield Check(
            "engines", State.FAIL, "none is configured", "run: vibey init, or write [engine.NAME] in vibey.toml"
        )
    looked: dict[str, str | None] = {}
    enabled = (config_of(each, settings) for each in configured.values() if each.enabled)
    for name, health in fleet.looks(enabled, waiting):
        if found is not None:
            found[name] = health
        looked[configured[name].kind] = health.version
        yield engine_check(name, health)
    yield from clients_checks(looked)
    for name, engine in configured.items():
        if not engine.enabled:
            yield Check(f"engine {name}", State.OK, "disabled")


def clients_checks(versions: Mapping[str, str | None]) -> Iterator[Check]:
    """The coding clients here that are newer than every version that was tried; `versions` by the kind of engine."""
    for kind, version in sorted(versions.items()):
        newest = None if version is None else newer_than_tried(kind, version)
        if newest is not None:
            detail = f"{kind} {version} is newer than any version tried ({newest.version} on {newest.day})"
            yield Check("clients", State.OK, detail)


def _recorded(installation: Installation, found: Mapping[str, Health]) -> Iterator[Check]:
    fleet.record(installation, found)
    yield from ()


def engine_check(name: str, health: Health) -> Check:
    """What an engine's doctor found, as a check."""
    words = [health.version or "", health.detail]
    found = ", ".join(word for word in words if word)
    if health.good:
        return Check(f"engine {name}", State.WARN if health.fix else State.OK, found or "ready", health.fix)
    trouble = "not logged in" if health.installed else "not installed"
    return Check(f"engine {name}", State.FAIL, found or trouble, health.fix)


def _configuration(installation: Installation) -> Iterator[Check]:
    """Which generation is in force, and whether the file or the environment of this process says something else."""
    found = apply.plan(installation)
    if found.generation is None:
        yield Check("configuration", State.FAIL, "none has been applied yet", "run: vibey apply")
        return
    for name, value, in_force in apply.variables_not_in_force(installation.current()):
        detail = f"{name}={value} is not in force, {in_force} is"
        yield Check("configuration", State.FAIL, detail, f"unset {name}, or run: vibey apply")
    if found.differs:
        more = f", and {len(found.changes) - 1} more" if len(found.changes) > 1 else ""
        detail = f"{apply.DIFFERS} (generation {found.generation}): {found.changes[0]}{more}"
        yield Check("configuration", State.WARN, detail, "see: vibey apply --check; then run: vibey apply")
    else:
        yield Check("configuration", State.OK, f"generation {found.generation} is in force")


def _projects(installation: Installation, environ: Mapping[str, str]) -> Iterator[Check]:
    """Projects whose rules nobody can read."""
    for project in installation.database.statement(projects.every):
        try:
            ProjectPolicy.from_json(project.policy).overlaid(environ)
        except SettingsError as error:
            detail = f"{one_line(str(error))}; it stays in singleton, and nothing paid runs"
            yield Check(f"project {project.name}", State.FAIL, detail, "correct what is named there")


def _caps(installation: Installation, environ: Mapping[str, str]) -> Iterator[Check]:
    """Caps that are spent, and projects with paid work that their cap does not cover, with how much there was today."""

    def read(connection: Connection) -> tuple[list[Project], dict[str, Purse], PaidPools, dict[str, int]]:
        known = projects.every(connection)
        found = purses(connection, installation, [each.name for each in known], environ)
        return known, found, PaidPools.read(connection), cap.outside(connection, cap.today(connection))

    known, found, pools, counts = installation.database.run(read)
    yield from _spent_caps(found)
    by_reason: dict[str, list[Project]] = {}
    for project in known:
        if reasons := pools.outside_cap(found[project.name].resolved.policy):
            by_reason.setdefault("; ".join(reasons), []).append(project)
    for reason, concerned in by_reason.items():
        names = [each.name for each in concerned]
        runs = sum(counts.get(name, 0) for name in names)
        listed = f"{', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''}"
        whose = f"project{'s' if names[1:] else ''} {listed}"
        today = f"; {many(runs, 'paid run')} of today took no unit of it" if runs else ""
        detail = f"the cap does not cover all paid runs of {whose}: {reason}{today}"
        if any("paid_daily_cap_covers" not in each.policy for each in concerned):
            detail += "; it was made before that key existed and keeps the rule of then"
        fix = f"run: {command('vibey project set', names[0], 'paid_daily_cap_covers=all')}"
        if names[0] == projects.DEFAULT_PROJECT:
            fix = 'set paid_daily_cap_covers = "all" under [engines] in vibey.toml, then run: vibey apply'
        yield Check("cap", State.WARN, detail, fix)


def _spent_caps(found: Mapping[str, Purse]) -> Iterator[Check]:
    """Caps of which nothing is left today, where there are paid engines; one that all projects share is named once."""
    spent = {name: each for name, each in found.items() if each.limit and not each.remaining and each.paid}
    shared = [name for name, each in spent.items() if each.resolved.scope == "installation"]
    for name in [name for name in spent if name not in shared[1:]]:
        told = cap_in_words(spent[name].to_json())
        whose = "" if name in shared else f"project {name}: "
        fix = "it begins anew at midnight UTC; a larger paid_daily_cap holds at once when it is applied (vibey apply)"
        if whose and name != projects.DEFAULT_PROJECT:
            raised = command("vibey project set", name, "paid_daily_cap=N")
            fix = f"it begins anew at midnight UTC; to raise it now: {raised}"
        yield Check("cap", State.WARN, f"{whose}{told}; jobs that need a unit wait", fix)


def _database(installation: Installation) -> Iterator[Check]:
    found = installation.database.run(lambda connection: kept(connection, installation))
    yield Check("database", State.OK, database(found))


def _workers(installation: Installation) -> Iterator[Check]:
    alive = [worker for worker in workers(installation)["workers"] if worker["alive"]]
    found = engines(installation)["engines"]
    lacking = [each["name"] for each in found if each["configured"] and each["enabled"] and not each["worker"]]
    problems = [(worker["name"], name, text) for worker in alive for name, text in worker["problems"].items()]
    if not alive:
        yield Check("workers", State.FAIL, "none is alive", "run: vibey up")
        return
    for worker, name, text in problems:
        state = State.FAIL if name in lacking else State.WARN
        yield Check("workers", state, f"worker {worker}: {text}", unserved_remedy(text))
    told = {name for _, name, _ in problems}
    silent = [name for name in lacking if name not in told]
    if silent:
        # Workers of this installation follow what is applied by themselves, so there is none that was asked for these.
        fix = "start a worker that serves them; one that was started with -Q serves no others"
        yield Check("workers", State.FAIL, f"no live worker serves {', '.join(silent)}", fix)
    for each in found:
        if each["offered"] is not None and each["configured"] and each["offered"] < each["slots"]:
            detail = f"{each['name']} has {each['slots']} slots, and its workers can have {each['offered']} at work"
            yield Check("workers", State.WARN, detail, each["restart"])
    if not lacking and not problems:
        names = ", ".join(worker["name"] for worker in alive)
        yield Check("workers", State.OK, f"{names}: every engine is served")


def _ticks(installation: Installation) -> Iterator[Check]:
    age = installation.database.statement(views.TICKED.scalar)
    fix = (
        "run: vibey up, or start what is missing: celery -A vibey beat sends ticks, a worker of vibey.control does them"
    )
    if age is None:
        yield Check("beat", State.FAIL, "has never ticked", fix)
    elif age > max(TICK_PATIENCE_SECONDS, 5 * installation.timing.tick_ms / 1000):
        yield Check("beat", State.FAIL, f"last tick {age:.0f} s ago", fix)
    else:
        yield Check("beat", State.OK, f"last tick {age:.0f} s ago")
