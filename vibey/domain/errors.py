"""The one tree of errors.

Every error a person can meet is a `VibeyError`. Its message names the thing, the value and what to do;
its fields carry the same facts for programs. `exit_code` is what the command line returns for it, and `word` the
stable name that `--json` output gives it: it stays when a class is renamed.
Expected outcomes of a decision are values, never exceptions.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

# An unknown name is answered with all the known ones up to this many, else with the nearest of them, if a command lists
# the others.
LISTED_NAMES = 8
# The command that lists the names of a kind.
LISTING = {
    "job": "vibey jobs",
    "task": "vibey jobs",
    "project": "vibey project list",
    "engine": "vibey engines",
    "engine or nested pool": "vibey engines",
    "pool": "vibey config show",
    "capability": "vibey config show",
}


class VibeyError(Exception):
    """Root of the tree; raised as itself only for a fault of Vibey's own.

    `message` names what is wrong, `fix` what to do; the exception's text is both of them.
    """

    exit_code: ClassVar[int] = 1
    word: ClassVar[str] = "internal"

    def __init__(self, message: str = "", fix: str = "") -> None:
        self.message = message
        self.fix = fix
        super().__init__(f"{message}; {fix}" if fix else message)


class InvalidInput(VibeyError):
    """What the caller gave cannot be understood: `field` names it, `value` is what came, `expected` what would do."""

    exit_code: ClassVar[int] = 2
    word: ClassVar[str] = "invalid_input"

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(f"{field}: {_shown(value)} is not usable", f"expected {expected}")


class Refused(VibeyError):
    """The request is well formed, but the installation's state does not allow it; `remedy` says what would."""

    exit_code: ClassVar[int] = 3
    word: ClassVar[str] = "refused"

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(what, remedy)


class NothingApplied(Refused):
    """The installation has no configuration in force, so nothing can be enqueued, routed or run."""

    word: ClassVar[str] = "nothing_applied"

    def __init__(self) -> None:
        super().__init__("no configuration has been applied yet", "run: vibey apply")


class UnknownName(Refused):
    """A project, engine, pool or job that does not exist; `known` holds the names that do, None if not looked up."""

    word: ClassVar[str] = "unknown_name"

    def __init__(self, kind: str, name: object, known: tuple[str, ...] | None = ()) -> None:
        self.kind = kind
        self.name = name
        self.known = known or ()
        super().__init__(f"unknown {kind} {_shown(name)}", _known_names(kind, str(name), known))


class Unservable(Refused):
    """A job that no configured engine could ever serve: why not, for each engine, and what to configure.

    `number` is its place in the batch it came in, from 0.
    """

    word: ClassVar[str] = "unservable"

    def __init__(self, missing: str, configure: str, where: str = "") -> None:
        self.missing, self.configure = missing, configure
        self.number = 0
        what = f"{where}no configured engine can ever serve this job: {missing}"
        super().__init__(what, f"change what it asks for, {configure}, or enqueue it with --anyway (anyway=True)")


class Removed(UnknownName):
    """A job that is older than the record: `before` is when those that are removed had ended, as text."""

    word: ClassVar[str] = "removed"

    def __init__(self, job: int, before: str) -> None:
        self.kind, self.name, self.known, self.before = "job", job, (), before
        what = f"job {job} is older than the record: jobs that ended before {before} are removed"
        Refused.__init__(self, what, f"what happened to it stays told: vibey ledger --job {job}")


class ServiceUnavailable(VibeyError):
    """Postgres, Redis or another server did not answer."""

    exit_code: ClassVar[int] = 4
    word: ClassVar[str] = "service_unavailable"

    def __init__(self, service: str, detail: str, remedy: str) -> None:
        self.service = service
        self.detail = detail
        self.remedy = remedy
        super().__init__(f"{service} is unreachable ({detail})", remedy)


class OutOfResources(ServiceUnavailable):
    """A disk, quota, memory or file handles are used up, or cannot be written to; `problem` says which."""

    word: ClassVar[str] = "out_of_resources"

    def __init__(self, service: str, problem: str, detail: str, remedy: str) -> None:
        self.service = service
        self.problem = problem
        self.detail = f"{problem} ({detail})" if detail else problem
        self.remedy = remedy
        VibeyError.__init__(self, f"{service}: {self.detail}", remedy)


class TooManyConnections(OutOfResources):
    """Postgres takes no more connections. `allowed` is its `max_connections`, None where that is not known."""

    word: ClassVar[str] = "too_many_connections"

    def __init__(self, service: str, problem: str, detail: str, remedy: str, allowed: int | None = None) -> None:
        self.allowed = allowed
        all_of_them = "" if allowed is None else f": all {allowed} of max_connections are in use"
        super().__init__(service, f"{problem}{all_of_them}", detail, remedy)


class UnsuitableService(ServiceUnavailable):
    """A server answers but lacks what is needed: a version, an encoding, a role or rights; `detail` says which."""

    word: ClassVar[str] = "unsuitable_service"

    def __init__(self, service: str, detail: str, remedy: str) -> None:
        self.service = service
        self.detail = detail
        self.remedy = remedy
        VibeyError.__init__(self, f"{service}: {detail}", remedy)


class Contended(VibeyError):
    """Other transactions held what this one needs, again and again; nothing was changed."""

    exit_code: ClassVar[int] = 4
    word: ClassVar[str] = "contended"

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"other transactions hold what this one needs ({detail})", "nothing was changed, try again")


class TimedOut(VibeyError):
    """A wait is over before what it waited for; the jobs go on."""

    word: ClassVar[str] = "timed_out"

    def __init__(self, job_ids: tuple[int, ...], seconds: float) -> None:
        self.job_ids = job_ids
        self.seconds = seconds
        shown = ", ".join(str(job_id) for job_id in job_ids[:5]) + (", …" if len(job_ids) > 5 else "")
        super().__init__(f"not ended within {seconds:g} s: job {shown}", "it goes on: wait again, or see: vibey job")


class SchemaOutdated(VibeyError):
    """The database's schema is not the one this version needs; nothing was started. `remedy` says which is too old."""

    exit_code: ClassVar[int] = 4
    word: ClassVar[str] = "schema_outdated"

    def __init__(self, found: str | None, needed: str) -> None:
        self.found = found
        self.needed = needed
        # Revisions are numbers of four digits; what has another form was not made by Vibey.
        self.migration_helps = found is None or (found.isdigit() and found < needed)
        if self.migration_helps:
            known, self.remedy = f"this version needs {needed}", "run: vibey migrate"
        elif found is not None and found.isdigit():
            known = f"this program knows {needed}"
            self.remedy = "the program is older than the schema: upgrade vibey on this machine"
        else:
            known = f"this version needs {needed}"
            self.remedy = "it belongs to another program: give Vibey a database or a schema of its own"
        self.detail = f"the database schema is at {found or 'nothing'}, {known}"
        super().__init__(self.detail, self.remedy)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a configuration: where, what came, what is allowed, and the nearest known name."""

    key: str
    value: object
    expected: str
    nearest: str | None = None

    @override
    def __str__(self) -> str:
        """One line a person can act on."""
        hint = f" (did you mean {self.nearest!r}?)" if self.nearest else ""
        return f"{self.key}: {_shown(self.value)}: {self.expected}{hint}"


class SettingsError(VibeyError):
    """Everything wrong with a configuration, reported at once."""

    exit_code: ClassVar[int] = 2
    word: ClassVar[str] = "settings"

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        self.source = source
        self.problems = problems
        lines = "\n".join(f"  {problem}" for problem in problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{source}: {count}\n{lines}")
        self.fix = "correct what is named, then run: vibey config check"


def _known_names(kind: str, name: str, known: tuple[str, ...] | None) -> str:
    """What to tell about the names that exist: the nearest ones, all of them while they are few, or where to look."""
    listing = f"see: {LISTING[kind]}" if kind in LISTING else ""
    if known is None:
        return listing or f"no such {kind} exists"
    if not known:
        return f"no {kind} exists yet"
    folded = {each.casefold(): each for each in reversed(known)}
    near = [folded[each] for each in difflib.get_close_matches(name.casefold(), list(folded), n=3)]
    hint = f"did you mean {' or '.join(near)}? " if near and len(known) > 1 else ""
    if len(known) <= LISTED_NAMES or not listing:
        return f"{hint}known: {', '.join(known)}"
    if near:
        return f"{hint}{len(known)} are known, {listing}"
    return f"known: {', '.join(known[:LISTED_NAMES])}, and {len(known) - LISTED_NAMES} more; {listing}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
