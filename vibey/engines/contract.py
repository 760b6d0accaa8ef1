"""The contract between Vibey and an engine's adapter. A third party reads this file and imports `vibey.engines.kit`.

An *engine* is one way of running a job. Its adapter is an object with three methods:

- `describe` says what it can do; it is asked often, must be quick and may not touch the engine.
- `doctor` looks: installed, version, logged in? It may ask the client for its version, but never takes a slot. It is
  called in a thread of its own and given up after half a minute; what took too long is not held against the engine.
- `run(job, context)` does the work. It is a generator: it yields `Progress` whenever there is news, and
  *returns* (the value of its StopIteration) exactly one `Outcome`. It raises nothing on purpose: an exception
  is a bug of the adapter and is recorded as Vibey's fault, not the job's and not the engine's.

What `run` may rely on. `context.directory` is a fresh, private folder, empty but for what Vibey keeps there
itself; `context.output` takes text for the log. Whatever takes time belongs in a process started by
`context.spawn`: such a process gets the allow-listed environment, its whole tree is killed when the run has to
end, and it cannot outlive the run's lease. Its working folder is that folder, or, for a job that names a
repository, the run's own clone of it (`vibey.engines.workspace`): the adapter need not know which, keeps its own
files in `context.directory`, and leaves what its client changed to Vibey. Work done in the adapter's own thread
has none of this: nobody can stop it. Folder, log and lease renewal come into being when they are first touched,
so an engine that needs none pays for none.

A run that failed and did no work gives its unit of the cap back. Of Vibey's own kinds the context has the proof: no
process of the engine's was started. An adapter of an installed kind may have worked in its own thread, so that its run
keeps the unit unless the failure it returns says `unstarted=True`, and names no tokens and no cost.

What `run` must do. Treat `job.payload` as data: write it to a file or a stream, never into an argument list,
an environment or a path; `Handover` does. Give the process's end back as one outcome, best with `outcome_of`.
Tell tokens and, if the client names it, the cost: in `Progress` as totals so far, in the outcome as the run's. Where
only tokens are told, the prices described make the cost of them, for the run's limit as well as for the ledger. Let
go when told: after a stop, `spawn` raises `RunStopped`, which passes through, and what `run` returns is kept only
for its cost and tokens.

How the kinds are found: built-in ones by name, others through the entry-point group `vibey.engines`, each
naming a callable `(EngineConfig) -> Engine` (an Engine class with such a constructor is one).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from vibey.domain.effort import Effort, achieved
from vibey.domain.outcome import Outcome

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

DEFAULT_AUTHOR = "vibey <vibey@localhost>"


@dataclass(frozen=True, slots=True)
class Check:
    """A check of the operator's that a job may name: what runs, and the most seconds it may take."""

    argv: tuple[str, ...]
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One engine as the operator configured it; each kind uses the fields it has a use for.

    `efforts` gives extra arguments per effort the engine really achieves. `env` names variables of the worker
    that pass to the engine's processes beside the allow-list. The API key comes from a variable or a file,
    never from here. `state_dir` is a folder of this machine where the adapter may keep what it found out about its
    client from one run to the next; None: it keeps nothing.
    """

    name: str
    kind: str
    argv: tuple[str, ...] = ()
    callable: str | None = None
    app: str | None = None
    env: tuple[str, ...] = ()
    efforts: Mapping[Effort, tuple[str, ...]] = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: Path | None = None
    price_in: Decimal | None = None
    price_out: Decimal | None = None
    run_cost_limit_usd: Decimal | None = None
    stall_seconds: float | None = None
    workspace_roots: tuple[Path, ...] = ()
    workspace_author: str = DEFAULT_AUTHOR
    checks: Mapping[str, Check] = field(default_factory=dict)
    state_dir: Path | None = None

    def achieved(self, asked: Effort) -> Effort:
        """The effort a job that asks for this one really gets."""
        return achieved(asked, tuple(self.efforts))

    def arguments(self, asked: Effort) -> tuple[str, ...]:
        """What the operator adds to the arguments for the effort a job asks for."""
        return self.efforts.get(self.achieved(asked), ())


@dataclass(frozen=True, slots=True)
class Job:
    """The job as its run sees it. `attempt` counts from 1; `token` is the run's fencing token.

    `traceparent` is the run's span, which its processes find as `TRACEPARENT`; None where nothing is traced. `title` is
    what the job is called in lists, empty for a job without one.
    """

    job_id: int
    run_id: int
    token: int
    attempt: int
    effort: Effort
    payload: Mapping[str, object]
    project: str
    installation: str = ""
    session: str | None = None
    capabilities: frozenset[str] = frozenset()
    traceparent: str | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """What an engine can do. No efforts: it takes any as given; prices are dollars for a million tokens.

    `stall_seconds` is the silence after which a run counts as stalled unless the operator names one; None: never.
    `silent_work`: its processes may work for long without output, so that their use of the processor, of files and of
    sockets ends a silence as output does.
    """

    kind: str
    capabilities: frozenset[str] = frozenset()
    efforts: tuple[Effort, ...] = ()
    price_in: Decimal | None = None
    price_out: Decimal | None = None
    stall_seconds: float | None = None
    silent_work: bool = False

    @classmethod
    def declared(
        cls, config: EngineConfig, stall_seconds: float | None = None, *, silent_work: bool = False
    ) -> Description:
        """What the operator declared: capabilities, efforts and prices."""
        efforts = tuple(sorted(config.efforts))
        prices = config.price_in, config.price_out
        return cls(config.kind, config.capabilities, efforts, *prices, stall_seconds, silent_work)


@dataclass(frozen=True, slots=True)
class Health:
    """What a doctor found. None for a login means there is none to have; `fix` is what a person should do.

    `late`: there was no answer in time, so that nothing is known. It is told, but does not take the engine out of
    service: a slow look must never turn local work into paid work.
    """

    installed: bool
    version: str | None = None
    logged_in: bool | None = None
    detail: str = ""
    fix: str = ""
    late: bool = False

    @property
    def good(self) -> bool:
        """Whether a run may be tried."""
        return self.installed and self.logged_in is not False and not self.late


@dataclass(frozen=True, slots=True)
class Progress:
    """News of a run under way. Cost and tokens are totals of the run so far."""

    text: str = ""
    cost_usd: Decimal | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None


class StopReason(StrEnum):
    """Why a run was told to end."""

    CANCEL = "cancel"
    LEASE_LOST = "lease_lost"
    TIMEOUT = "timeout"
    STALL = "stall"
    COST_LIMIT = "cost_limit"


class RunStopped(Exception):
    """The run has to end and may start no further process; an adapter lets it pass."""

    def __init__(self, reason: StopReason) -> None:
        self.reason = reason
        super().__init__(f"the run was told to stop: {reason.value}")


@dataclass(frozen=True, slots=True)
class Stopped:
    """The end of a run that was cancelled or lost its lease: no outcome, but it may have cost something."""

    reason: StopReason
    cost_usd: Decimal | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None


class Renewal(StrEnum):
    """The answer to a renewal: the lease goes on; it is gone; it goes on, but the job is to be cancelled."""

    KEPT = "kept"
    LOST = "lost"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process tree ended.

    `code` is the direct child's exit status, negative for the signal that killed it, None if nobody saw it
    end. `stopped` is why we ended it, None if it ended by itself. `errno` is set when the program could not
    be started at all. `unreachable` counts processes that even KILL could not reach; `guard_lost` says the
    supervisor died before its tree.
    """

    code: int | None
    stopped: StopReason | None = None
    errno: int | None = None
    unreachable: int = 0
    guard_lost: bool = False


class Log(Protocol):
    """Where a run's text goes. `note` adds a line of Vibey's own; neither ever fails a run."""

    def write(self, text: bytes, /) -> None:
        """Append bytes as they are."""

    def note(self, line: str, /) -> None:
        """Append a line of Vibey's own."""


class RunningProcess(Protocol):
    """A supervised process tree. Its output reaches the log while `lines` or `wait` is under way."""

    def lines(self) -> Iterator[str]:
        """Lines of its output (both streams merged) as they come, until the tree is dead."""

    def wait(self) -> Exit:
        """Relay what is left of the output; how the tree ended, once nothing of it is left."""

    def stop(self, reason: StopReason, grace_seconds: float) -> None:
        """Have the tree ended: TERM, and KILL after the grace; KILL at once for no grace. Returns at once."""


class Context(Protocol):
    """What a run has at hand; see the module's text for what each part promises."""

    @property
    def directory(self) -> Path:
        """The run's own folder."""

    @property
    def output(self) -> Log:
        """The run's log."""

    @property
    def timeout_seconds(self) -> float:
        """How long the run may take in all."""

    @property
    def stopped(self) -> StopReason | None:
        """Why the run has to end, once it has to."""

    def spawn(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        stdin: Path | None = None,
        directory: Path | None = None,
        secrets: Sequence[str] = (),
        is_step: bool = False,
    ) -> RunningProcess:
        """Start a supervised process with this environment plus the run's marks; RunStopped after a stop.

        `stdin` is a file it reads, default empty; `directory` is its working folder, best left to the default.
        `secrets` are masked in the log and in the outcome. `is_step`: a step of Vibey's own, which is no work of the
        engine.
        """


RunSteps = Generator[Progress, None, Outcome]


class Engine(Protocol):
    """An adapter; the module's text is its contract."""

    def describe(self) -> Description:
        """What this engine can do."""

    def doctor(self) -> Health:
        """Whether it can do it here and now."""

    def run(self, job: Job, context: Context) -> RunSteps:
        """Do the work, yielding progress and returning the outcome."""
