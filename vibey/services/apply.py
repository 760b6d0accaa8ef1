"""Apply: put the configuration of a file in force, as one numbered generation.

What routing depends on is stored in Postgres by one transaction, and every grant, settlement and retry reads it there;
no process goes by its own file. The transaction holds the installation's row, then every engine, so that a pass is
made under one generation, and two who apply at once come one after the other.

Live runs keep their account, their price and their lease. A grant that nobody has started on an engine that is removed,
or is another under the same name, is withdrawn and its attempt refunded; a run at work goes on to its end. Workers
notice the new number, read their own file again, and until then do not count as serving an engine that is run in
another way (see `vibey.services.following`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain import settlement
from vibey.domain.errors import Refused
from vibey.services.control import wake_all
from vibey.services.effects import effects
from vibey.services.fleet import folders_of
from vibey.services.owner import owner
from vibey.services.requirements import refresh_workspace_sets
from vibey.services.settle import expired_row
from vibey.services.wording import instant
from vibey.settings.applied import content_of, disagreement, policy_in
from vibey.settings.difference import Change, differences, replaced_engines, rerun_engines
from vibey.settings.model import EngineDefaults
from vibey.settings.problems import dotted
from vibey.settings.source import OVERLAID
from vibey.settings.values import MILLIONTHS
from vibey.store import ageing, fleet, generations, ledger, projects, runs
from vibey.store.ledger import Event
from vibey.store.projects import DEFAULT_PROJECT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.services.installation import Installation
    from vibey.store.database import Connection
    from vibey.store.statement import Row

    Content = Mapping[str, Any]

# Another value of these would be judged by two rules at once where a run is live.
FIXED_WHILE_LIVE = ("lease_seconds", "paid_daily_cap_scope")
DIFFERS = "vibey.toml differs from what is in force"


@dataclass(frozen=True, slots=True)
class LeftToEdit:
    """What the file here says otherwise once an older generation is in force.

    `changes` is what applying the file would change then; `unserved` has the engines that workers of this machine do
    not serve until the file is edited, each with the reason.
    """

    changes: tuple[Change, ...]
    unserved: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"file_changes": [change.as_json() for change in self.changes], "unserved": dict(self.unserved)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What applying would do: the generation in force (None: none yet), what changes, and what that does to jobs.

    Of going back it has what is `left` to edit, too; of applying the file nothing is.
    """

    generation: int | None
    changes: tuple[Change, ...]
    effects: tuple[str, ...]
    left: LeftToEdit | None = None

    @property
    def differs(self) -> bool:
        """Whether there is anything to apply."""
        return self.generation is None or bool(self.changes)

    @property
    def text(self) -> str:
        """The changes, one in a line."""
        return "\n".join(map(str, self.changes))

    def as_json(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        return {
            "generation": self.generation,
            "differs": self.differs,
            "changes": [change.as_json() for change in self.changes],
            "effects": list(self.effects),
            **({} if self.left is None else self.left.as_json()),
        }


@dataclass(frozen=True, slots=True)
class Applied:
    """What was applied: the number in force now, whether this made it, how many grants were withdrawn, the plan."""

    generation: int
    changed: bool
    withdrawn: int
    plan: Plan


def plan(installation: Installation, *, undo: bool = False) -> Plan:
    """What `apply` would do now; changes nothing."""

    def read(connection: Connection) -> Plan:
        number = generations.number(connection)
        wanted = _wanted(connection, installation, number, undo=undo)
        return _plan(connection, installation, number, wanted, undo=undo)

    return installation.database.run(read)


def file_differs(current: Installation) -> bool:
    """Whether this process's file and environment say another thing than the generation that it is under, if any."""
    return current.content is None or current.content != content_of(current.file)


def in_force_beside(
    installation: Installation,
) -> tuple[int | None, list[tuple[str, object, str, object]], tuple[Change, ...]]:
    """The generation in force, each key as (key, value in force, source, what the file says), and what differs.

    Keys of `[engines]` and of what routing knows of an engine have the value that was applied; None where none was. The
    others have the file's.
    """
    proposed = plan(installation)
    current = installation.current()
    in_force = f"generation {proposed.generation}"
    rows = []
    applied = {} if current.content is None else _applied_keys(current)
    engines = (current.content or {}).get("engine", {})
    file = installation.file
    for (parts, _), (key, in_file, source) in zip(file.rows(), file.effective(), strict=True):
        value = applied.pop(key, in_file)
        if current.content is not None and parts[0] == "engine" and parts[1] not in engines:
            value = None
        rows.append((key, value, source if value == in_file else in_force, in_file))
    rows += [(key, value, in_force, None) for key, value in sorted(applied.items())]
    return proposed.generation, rows, proposed.changes


def _applied_keys(installation: Installation) -> dict[str, object]:
    """The values of a generation by key, as the file would spell them."""
    content = installation.content or {}
    found: dict[str, object] = {}
    for key, value in content["engines"].items():
        laid = getattr(installation.settings.engines, key) if key in OVERLAID else value
        if isinstance(value, dict) and value:
            found |= {dotted(("engines", key, name)): each for name, each in value.items()}
        else:
            found[dotted(("engines", key))] = laid
    for name, engine in content["engine"].items():
        found[dotted(("engines", "slots", name))] = engine["slots"]
        weight = engine["weight"] / MILLIONTHS
        found |= {dotted(("engine", name, key)): engine[key] for key in ("kind", "tier", "account", "enabled")}
        found[dotted(("engine", name, "weight"))] = int(weight) if weight == int(weight) else weight
    return found


def variables_not_in_force(installation: Installation) -> list[tuple[str, object, object]]:
    """Variables of this process that count only when they are applied, and were not: name, value, value in force."""
    file, differing = installation.file, []
    for key in sorted(EngineDefaults.model_fields.keys() - {*OVERLAID, "slots"}):
        source = file.sources.get(f"engines.{key}", "")
        value, in_force = getattr(file.engines, key), getattr(installation.settings.engines, key)
        if source.startswith("environment ") and value != in_force:
            differing.append((source.removeprefix("environment "), value, in_force))
    return differing


def apply(
    installation: Installation, *, undo: bool = False, by: str | None = None, seen: Plan | None = None
) -> Applied:
    """Put the file of this process in force, or with `undo` the generation before; returns what that did.

    Nothing is stored where nothing differs. Refused for `seen`, the plan that somebody agreed to, when another
    generation is in force by now; and for a key that cannot change while runs are live.
    """
    who = by or owner()
    applied = installation.database.run(lambda connection: _apply(connection, installation, who, seen, undo=undo))
    if applied.changed:
        wake_all(installation)
    return applied


def history(installation: Installation) -> list[dict[str, Any]]:
    """Every generation, the newest first: `generation`, `at`, `who`, `difference` by lines, `in_force`, `undoes`.

    `undoes` is the number of the generation that was left by going back to the one before it; else None.
    """
    rows = installation.database.statement(generations.history)
    return [
        {
            "generation": row.number,
            "at": instant(row.at),
            "who": row.who,
            "difference": row.difference.splitlines(),
            "in_force": row.in_force,
            "undoes": row.undoes,
        }
        for row in rows
    ]


def _apply(connection: Connection, installation: Installation, who: str, seen: Plan | None, *, undo: bool) -> Applied:
    number = generations.lock(connection)
    if seen is not None and seen.generation != number:
        raise Refused(
            f"generation {number} was applied meanwhile, and the difference shown was from {seen.generation}",
            "look again: vibey apply",
        )
    wanted = _wanted(connection, installation, number, undo=undo)
    before = None if number is None else generations.content(connection, number)
    if number is not None and before == wanted:
        left = _left_to_edit(installation, wanted) if undo else None
        return Applied(number, changed=False, withdrawn=0, plan=Plan(number, (), (), left))
    # Held from here on, so that what is reported of live runs and queued jobs is what the change meets.
    fleet.LOCK_ENGINES.all(connection)
    _refuse_while_live(connection, before, wanted)
    proposed = _plan(connection, installation, number, wanted, undo=undo)
    generations.write_fleet(connection, _with_links(wanted))
    generations.RELEASE_ENGINES.run(connection, names=list(rerun_engines(before, wanted)))
    _set_default_policy(connection, policy_in(wanted), who)
    ageing.change(connection, wanted["engines"].get("priority_age_seconds", 0) * 1000)
    withdrawn = _withdraw(connection, replaced_engines(before, wanted))
    refresh_workspace_sets(connection)
    new = 1 if number is None else number + 1
    generations.store(connection, new, who, proposed.text, wanted)
    data: dict[str, Any] = {"generation": new, "by": who, "difference": [str(each) for each in proposed.changes]}
    if undo:
        data["undone"] = number
    ledger.append(connection, Event.CONFIGURATION_APPLIED, data=data)
    return Applied(new, changed=True, withdrawn=withdrawn, plan=proposed)


def _wanted(connection: Connection, installation: Installation, number: int | None, *, undo: bool) -> Content:
    """The content to put in force: that of the file, or of the generation before this number."""
    if not undo:
        return content_of(installation.file)
    before = None if number is None else generations.BEFORE.scalar(connection, number=number)
    if before is None:
        raise Refused("there is no generation before the one in force", "see: vibey apply --history")
    return generations.content(connection, before)


def _plan(
    connection: Connection, installation: Installation, number: int | None, wanted: Content, *, undo: bool
) -> Plan:
    before = None if number is None else generations.content(connection, number)
    changes = _changes(before, wanted)
    found = tuple(effects(connection, installation, before, wanted)) if changes else ()
    return Plan(number, changes, found, _left_to_edit(installation, wanted) if undo else None)


def _changes(before: Content | None, wanted: Content) -> tuple[Change, ...]:
    changes = tuple(differences(before, wanted))
    if before is not None and not changes and before != wanted:
        return (Change("", "[engines]", "changed", ("recorded in another form",)),)
    return changes


def _left_to_edit(installation: Installation, wanted: Content) -> LeftToEdit:
    """What the file of this process says otherwise than a generation, and what that means for workers here."""
    file = installation.file
    unserved = {name: words for name in wanted["engine"] if (words := disagreement(file, wanted, name))}
    return LeftToEdit(_changes(wanted, content_of(file)), unserved)


def _with_links(content: Content) -> Content:
    """The content with what workspace roots lead to on this machine, for the rows of engines."""

    def linked(engine: Mapping[str, Any]) -> Mapping[str, Any]:
        roots = engine.get("workspace_roots")
        return {**engine, "workspace_roots": None if roots is None else folders_of(roots)}

    return {**content, "engine": {name: linked(engine) for name, engine in content["engine"].items()}}


def _refuse_while_live(connection: Connection, before: Content | None, wanted: Content) -> None:
    """Refuse another lease or cap scope while any run is live. Every engine is locked, so none is granted meanwhile."""
    if before is None:
        return
    old, new = before["engines"], wanted["engines"]
    changed = [key for key in FIXED_WHILE_LIVE if key in old and old[key] != new.get(key)]
    live: Sequence[Row[Any]] = generations.LIVE.all(connection) if changed else ()
    if not live:
        return
    named = [
        f"run {run} of job {job} on {row.engine}" for row in live for run, job in zip(row.runs, row.jobs, strict=True)
    ]
    more = sum(row.n for row in live) - len(named)
    words = ", ".join(named) + (f" and {more} more" if more else "")
    raise Refused(
        f"{' and '.join(changed)} cannot change while a run is live: {words}",
        "pause the engines (vibey engine pause NAME) and wait until nothing runs, or cancel those jobs; "
        "then run: vibey apply",
    )


def _set_default_policy(connection: Connection, policy: dict[str, Any], who: str) -> None:
    """The implicit project follows the file."""
    project = projects.ensure(connection, DEFAULT_PROJECT, policy)
    stored = projects.lock(connection, project.id)
    changed = {key: value for key, value in policy.items() if stored.get(key) != value}
    if changed or stored.keys() - policy:
        projects.set_policy(connection, project.id, policy)
        data = {**changed, "was": {key: stored.get(key) for key in changed}, "by": who}
        ledger.append(connection, Event.PROJECT_CHANGED, project=project.id, data=data)


def _withdraw(connection: Connection, names: Sequence[str]) -> int:
    """End grants on these engines that nobody has started; how many there were."""
    granted = generations.lock_granted(connection, names) if names else []
    why = "withdrawn: the engine it was granted on was removed from the configuration, or is another now"
    rows = [expired_row(each, settlement.withdrawn(each.attempted(), why)) for each in granted]
    if rows:
        runs.end(connection, rows)
    return len(rows)
