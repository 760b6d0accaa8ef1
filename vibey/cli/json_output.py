"""JSON output: what each command prints with `--json`, key by key.

This is the one description of it: `docs/reference/json.md` is made of it, and a test holds the real output of every
command against it. A key that is not described here fails that test, and so does a described one that is missing; a
field with a default is one that is not always there. New keys may be added at any time; a key that is here is stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

if TYPE_CHECKING:
    from collections.abc import Mapping

Instant = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
Day = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\d$")]


class Shape(BaseModel):
    """An object of the output."""

    model_config = ConfigDict(extra="forbid", strict=True)


class FailureDetail(Shape):
    """What went wrong."""

    kind: str = Field(description="A stable word, listed under errors.")
    message: str = Field(description="What is wrong, for people.")
    fix: str = Field(description="What to do, for people.")


class Error(Shape):
    """What any command prints in place of its own object when it fails."""

    error: FailureDetail = Field(description="What went wrong.")


class Layer(Shape):
    """A factor that a weight takes for a while."""

    kind: str = Field(description="Where it comes from: schedule, preference or learned.")
    factor: float = Field(description="What the weight is multiplied by.")
    until: Instant | None = Field(description="When it ends by itself.")
    note: str = Field(description="What the person who made it wrote.")


class Cap(Shape):
    """The paid cap of one UTC day."""

    limit: int = Field(description="Paid units of a day.")
    used: int = Field(description="Units taken today and not given back.")
    remaining: int = Field(description="Units left today.")
    utc_day: Day = Field(description="The day.")


class ScopedCap(Cap):
    """The paid cap of one UTC day, and whose it is."""

    scope: str = Field(description="project or installation: who shares the units.")
    covers: str = Field(description="exceptions or all: which paid runs take a unit.")


class Engine(Shape):
    """An engine, how full it is, and how it shared the work."""

    name: str = Field(description="Its name in the configuration.")
    tier: str = Field(description="local or paid.")
    slots: int = Field(description="Runs it may have at once.")
    in_use: int = Field(description="Runs it has.")
    circuit: str = Field(description="Its account's circuit: closed, open or half_open.")
    weight: float = Field(description="Its weight in the configuration.")
    expected_share: float = Field(description="The share of the runs it was offered, a fraction of 1.")
    selected_count: int = Field(description="Runs granted to it.")
    share: float = Field(description="Its share of all runs, a fraction of 1.")
    kind: str = Field(description="Its engine kind.")
    account: str = Field(description="The account it belongs to.")
    configured: bool = Field(description="Whether the configuration in force has it; runs of a removed one go on.")
    worker: bool = Field(description="Whether a live worker serves it.")
    offered: int | None = Field(description="Runs that live workers can have of it; null without any.")
    restart: str = Field(description="Which worker to restart for more slots, and how; empty for none.")
    enabled: bool = Field(description="Whether the configuration enables it.")
    paused: bool = Field(description="Whether a person paused it.")
    next_probe_at: Instant | None = Field(description="When an open circuit is tried next.")
    resets_at: Instant | None = Field(description="When the provider said that its limit ends.")
    detail: str = Field(description="What keeps it from being picked, or what its check found.")
    remark: str = Field(description="What a person should know of it at a glance.")
    demoted_until: Instant | None = Field(description="Until when it serves after all others.")
    selected_at: Instant | None = Field(description="When it was picked last.")
    layers: list[Layer] = Field(description="Factors on its weight now.")


class PoolLayers(Shape):
    """A pool that factors are in force on."""

    name: str = Field(description="The pool.")
    layers: list[Layer] = Field(description="Factors on its weight now.")


class Engines(Shape):
    """The fleet."""

    as_of: Instant = Field(description="The instant all of it is as of.")
    engines: list[Engine] = Field(description="Every engine, in the configuration's order.")
    pools: list[PoolLayers] = Field(description="Pools that factors are in force on.")


class Worker(Shape):
    """A worker that was seen within the hour."""

    name: str = Field(description="Its Celery name.")
    host: str = Field(description="The machine it runs on.")
    pid: int = Field(description="Its process.")
    engines: list[str] = Field(description="The engines it serves.")
    concurrency: int = Field(description="Runs it can have at once.")
    slots: dict[str, int | None] = Field(description="Runs it can have of each engine; null for all of its slots.")
    generation: int | None = Field(description="The configuration it has read.")
    version: str = Field(description="Vibey's version.")
    problems: dict[str, Any] = Field(description="What keeps it from serving engines, by engine.")
    alive: bool = Field(description="Whether it reported of late.")
    started_at: Instant = Field(description="When it was started.")
    seen_at: Instant = Field(description="When it reported last.")


class Database(Shape):
    """How large the database is, and what is kept in it."""

    bytes: int = Field(description="Its size.")
    keep_days: int = Field(description="Days for which ended jobs are kept; 0 for ever.")
    removed_jobs: int = Field(description="Jobs that were removed.")
    record_begins: Instant | None = Field(description="Jobs that ended before are removed; null if none was.")


class Status(Shape):
    """The installation at a glance."""

    as_of: Instant = Field(description="The instant all of it is as of.")
    project: str = Field(description="The project whose mode and cap are shown.")
    mode: str = Field(description="The mode in force: singleton or hybrid.")
    mode_source: str = Field(description="Where it comes from: declared, measured or unmeasured.")
    mode_reason: str = Field(description="Why it is that.")
    queued: int = Field(description="Queued jobs, of all projects.")
    held: int = Field(description="Those of them that are held.")
    granted: int = Field(description="Jobs that have a slot and were not started yet.")
    running: int = Field(description="Jobs at work.")
    cap: ScopedCap = Field(description="Today's paid cap.")
    paid_outside_cap_today: int = Field(description="Paid runs of today that took no unit of it.")
    paid_outside_cap: list[str] = Field(description="Why there can be such runs, for people.")
    engines: list[Engine] = Field(description="Every engine, in the configuration's order.")
    workers: list[Worker] = Field(description="Workers seen within the hour.")
    database: Database = Field(description="The database's size and what it keeps.")
    generation: int | None = Field(description="The configuration in force; null before the first.")
    file_differs: bool = Field(description="Whether the configuration file here says something else.")


class Run(Shape):
    """A run of a job."""

    run_id: int = Field(description="Its number.")
    engine: str = Field(description="The engine it was granted on.")
    why: str = Field(description="What the grant rested on: assign, overflow or fallback.")
    state: str = Field(description="granted, running, succeeded, failed, withdrawn, lost or cancelled.")
    attempt: int = Field(description="The job's attempt it is.")
    granted_at: Instant = Field(description="When it got its slot.")
    started_at: Instant | None = Field(description="When a worker started it.")
    renewed_at: Instant | None = Field(description="When its lease was renewed last.")
    lease_expires_at: Instant | None = Field(description="When its lease ends unless it is renewed.")
    ended_at: Instant | None = Field(description="When it ended.")
    account: str = Field(description="The account it counts for.")
    host: str | None = Field(description="The machine it runs or ran on.")
    pid: int | None = Field(description="The process that holds it.")
    failure_class: str | None = Field(description="Whose fault its failure was.")
    detail: str = Field(description="What is known of its end.")
    cost_usd: float | None = Field(description="Dollars, as its engine reported.")
    tokens_in: int | None = Field(description="Tokens read.")
    tokens_out: int | None = Field(description="Tokens written.")
    trace_id: str | None = Field(description="Its OpenTelemetry trace.")


class AnyJob(Shape):
    """What lists of jobs and a single job have in common."""

    job_id: int = Field(description="Its number.")
    project: str = Field(description="Its project.")
    pool: str = Field(description="The pool that serves it.")
    title: str = Field(description="What lists call it; empty when it has none.")
    labels: dict[str, str] = Field(description="Its labels, each key with its value.")
    state: str = Field(description="queued, granted, running, succeeded, failed or cancelled.")
    priority: int = Field(description="Higher goes first.")
    attempt: int = Field(description="The attempt it is in, or how many it took.")
    max_attempts: int = Field(description="Attempts it has.")
    engine: str | None = Field(description="The engine it is or was last on.")
    reason: str = Field(description="Why it is where it is, for people.")
    created_at: Instant = Field(description="When it was enqueued.")
    ended_at: Instant | None = Field(description="When it ended.")


class ListedJob(AnyJob):
    """A job in a list."""

    age_seconds: float = Field(description="From its enqueueing to its end, or until now.")


class Jobs(Shape):
    """A page of jobs, newest first."""

    as_of: Instant = Field(description="The instant all of it is as of.")
    jobs: list[ListedJob] = Field(description="The jobs.")
    next_before: int | None = Field(description="What --before of the next page is; null at the end.")
    partial: bool = Field(description="Whether the page ended because it had looked through as many jobs as it may.")


class Job(AnyJob):
    """A job with everything it carries."""

    as_of: Instant = Field(description="The instant all of it is as of.")
    result: Any = Field(description="What it answered; null before that.")
    effort: str = Field(description="The effort asked for.")
    effort_now: str = Field(description="The effort of its present attempt.")
    capabilities: list[str] = Field(description="Capabilities its engine must have.")
    exclude: list[str] = Field(description="Engines that must not run it.")
    engines: list[str] = Field(description="The engines that may run it, and no others; empty for any.")
    workspace_engines: list[str] | None = Field(description="Engines that can work in its repository; null for none.")
    avoided: list[str] = Field(description="Engines that earlier attempts lead away from.")
    handed_off: list[str] = Field(description="Engines that handed it on to another one.")
    session: str | None = Field(description="Its session.")
    idempotency_key: str | None = Field(description="Its idempotency key.")
    task_id: str | None = Field(description="The Celery task whose call it carries out.")
    refunds: int = Field(description="Attempts given back in the present attempt.")
    handoffs: int = Field(description="Times it was handed on to another engine.")
    payload: Any = Field(description="What it was enqueued with.")
    trace_id: str | None = Field(description="Its OpenTelemetry trace.")
    run_id: int | None = Field(description="The run it has now.")
    not_before: Instant | None = Field(description="When it becomes due.")
    held_at: Instant | None = Field(description="Since when its attempt is held.")
    deadline_at: Instant | None = Field(description="When it fails unless it has ended.")
    cancel_requested_at: Instant | None = Field(description="When somebody asked to cancel it.")
    runs: list[Run] = Field(description="Its runs, oldest first.")


class Slot(Shape):
    """A slot of an engine; what concerns its run is null while it is free."""

    engine: str = Field(description="The engine.")
    tier: str = Field(description="Its tier.")
    slot: int = Field(description="Its number, from 1.")
    run_id: int | None = Field(description="The run that holds it.")
    job_id: int | None = Field(description="That run's job.")
    project: str | None = Field(description="That job's project.")
    state: str | None = Field(description="granted or running.")
    attempt: int | None = Field(description="The job's attempt.")
    holder: str | None = Field(description="The worker that holds the run's lease.")
    host: str | None = Field(description="The machine it runs on.")
    pid: int | None = Field(description="The process that holds it.")
    granted_at: Instant | None = Field(description="When the run got the slot.")
    age_seconds: float | None = Field(description="How long ago that was.")
    renewed_at: Instant | None = Field(description="When the lease was renewed last.")
    renewed_seconds: float | None = Field(description="How long ago that was.")
    lease_left_seconds: float | None = Field(description="How long the lease holds unless it is renewed.")


class Slots(Shape):
    """Every slot of the fleet."""

    as_of: Instant = Field(description="The instant all of it is as of.")
    slots: list[Slot] = Field(description="The slots, by engine.")


class LedgerEvent(Shape):
    """A line of the ledger."""

    id: int = Field(description="Its number.")
    at: Instant = Field(description="When it was written.")
    kind: str = Field(description="What happened, listed under ledger events.")
    project: str | None = Field(description="The project it is about.")
    job_id: int | None = Field(description="The job it is about.")
    run_id: int | None = Field(description="The run it is about.")
    engine: str | None = Field(description="The engine it is about.")
    data: dict[str, Any] = Field(description="What else it says, listed under ledger events.")


class Ledger(Shape):
    """A page of the ledger, newest first."""

    as_of: Instant = Field(description="The instant all of it is as of.")
    events: list[LedgerEvent] = Field(description="The lines.")
    next_before: int | None = Field(description="What --before of the next page is; null at the end.")


class Spent(Shape):
    """Sums of runs."""

    runs: int = Field(description="Runs granted.")
    tokens_in: int = Field(description="Tokens read.")
    tokens_out: int = Field(description="Tokens written.")
    cost_usd: float = Field(description="Dollars, as the engines reported.")
    paid_units: int = Field(description="Units of the paid cap, less those given back.")


class CostRow(Spent):
    """What a project spent on an engine on a day."""

    project: str = Field(description="The project.")
    engine: str = Field(description="The engine.")
    tier: str = Field(description="Its tier.")


class CostDay(Spent):
    """What was spent on a UTC day."""

    utc_day: Day = Field(description="The day of the grants.")
    rows: list[CostRow] = Field(description="The same by project and engine.")


class Cost(Shape):
    """What the fleet has spent."""

    as_of: Instant = Field(description="The instant all of it is as of.")
    project: str | None = Field(description="The project asked for; null for all.")
    days: list[CostDay] = Field(description="The days, today first.")


class Evidence(Shape):
    """A measurement as it was recorded; one of an older version may have other keys."""

    model_config = ConfigDict(extra="allow", strict=True)
    winner: str = Field(description="The mode it found better.")
    reason: str = Field(description="Why.")


class Mode(Shape):
    """The mode of a project, and on what evidence."""

    as_of: Instant = Field(description="The instant all of it is as of.")
    project: str = Field(description="The project.")
    setting: str | None = Field(description="singleton, hybrid or auto; null if it cannot be read.")
    mode: str = Field(description="The mode in force.")
    mode_source: str = Field(description="Where it comes from: declared, measured or unmeasured.")
    mode_reason: str = Field(description="Why it is that.")
    since: Instant | None = Field(description="Since when it is that.")
    next_measurement: Instant | None = Field(description="When it is measured next; null where that is not wanted.")
    measured_at: Instant | None = Field(description="When it was measured last.")
    evidence: Evidence | None = Field(description="The latest measurement, as the ledger has it.")
    cap: ScopedCap = Field(description="Today's paid cap.")
    paid_outside_cap_today: int = Field(description="Paid runs of today that took no unit of the cap.")
    paid_outside_cap: list[str] = Field(description="Why there can be such runs, for people.")


class Measured(Mode):
    """What a measurement led to."""

    recorded: bool = Field(description="Whether one was made, or the latest is current.")


class Violation(Shape):
    """A breach of an invariant."""

    invariant: str = Field(description="Its name, such as I7.")
    detail: str = Field(description="What is wrong.")


class Checked(Shape):
    """How much an audit looked at."""

    invariants: list[str] = Field(description="The invariants that were checked.")
    jobs: int = Field(description="Jobs.")
    runs: int = Field(description="Runs.")
    passes: int = Field(description="Routing passes.")
    decisions: int = Field(description="Decisions.")
    overflows: int = Field(description="Overflows.")
    fallbacks: int = Field(description="Fallbacks.")
    counted_assignments: int = Field(description="Other paid runs that took a unit, where the cap covers all.")
    events: int = Field(description="Lines of the ledger.")
    units: int = Field(description="Units of the paid cap.")
    removed_jobs: int = Field(description="Jobs that were removed before.")
    removed_runs: int = Field(description="Their runs.")
    replayed: int = Field(description="Decisions that were replayed.")


class Audit(Shape):
    """Whether every invariant held."""

    ok: bool = Field(description="Whether no violation was found.")
    violations: list[Violation] = Field(description="The breaches, at most fifty of each question.")
    checked: Checked = Field(description="How much was looked at.")
    as_of: Instant = Field(description="The instant all of it is as of.")


class Member(Shape):
    """A member of a pool in a draw."""

    member: str = Field(description="An engine, a nested pool, or a project.")
    share: float = Field(description="Its share, a fraction of 1.")
    credit_before: float = Field(description="Its credit before the draw.")
    credit_after: float = Field(description="Its credit after it.")


class SkippedClass(Shape):
    """A better class that could not be drawn from."""

    model_config = ConfigDict(populate_by_name=True)
    class_: str = Field(alias="class", description="The class.")
    found: str = Field(description="full, or closed where nothing was offered.")


class Step(Shape):
    """A draw among the members of a pool, or among projects."""

    model_config = ConfigDict(populate_by_name=True)
    pool: str = Field(description="The pool.")
    select: str = Field(description="How it selects.")
    skipped: list[SkippedClass] = Field(description="Better classes that were skipped.")
    class_: str = Field(alias="class", description="The class drawn from.")
    demoted: bool = Field(description="Whether that is the class of the demoted.")
    members: list[Member] = Field(description="Those drawn among.")
    chosen: str = Field(description="The one drawn.")
    turn: str = Field(description="How it was found: only, drawn, sticky or yielded.")


class Factors(Shape):
    """What a weight is the product of."""

    base: float = Field(description="The member's own weight.")
    layers: list[Layer] = Field(description="Factors for a while.")
    health: float = Field(description="How its runs went.")
    fidelity: float = Field(description="How well it achieves the effort.")
    cost: float = Field(description="How dear it is.")
    affinity: float = Field(description="Whether it holds the session or the work.")


class Verdict(Shape):
    """What became of an engine in a decision."""

    engine: str = Field(description="The engine.")
    tier: str = Field(description="Its tier.")
    verdict: str = Field(description="chosen, lost, passed_over, not_offered, full or excluded.")
    ground: str | None = Field(description="Why, as a word; null for those in the draw.")
    detail: str = Field(description="Why, for people.")
    pool: str | None = Field(description="The pool it was drawn in.")
    share: float | None = Field(description="Its share in the draw.")
    credit_before: float | None = Field(description="Its credit before the draw.")
    credit_after: float | None = Field(description="Its credit after it.")
    weight: float = Field(description="Its effective weight.")
    factors: Factors = Field(description="What that is the product of.")
    demoted: bool = Field(description="Whether it served after all others.")
    waived: bool = Field(description="Whether its exclusion was waived.")
    slots: int = Field(description="Its slots.")
    in_use: int = Field(description="Those of them in use.")


class LocalSlots(Shape):
    """A local engine's slots at a decision."""

    engine: str = Field(description="The engine.")
    in_use: int = Field(description="Slots in use.")
    slots: int = Field(description="Its slots.")


class Grounds(Shape):
    """On what grounds a run was granted."""

    because: str = Field(description="The grounds, for people.")
    mode: str = Field(description="The mode in force.")
    waited_seconds: float = Field(description="How long the job had been held.")
    threshold_seconds: float = Field(description="How long a job is held before it may overflow.")
    cap_left: int | None = Field(description="Units left before this run; null where it took none.")
    counted: bool = Field(description="Whether it took a unit of the cap.")
    waived: bool = Field(description="Whether an exclusion was waived.")
    waiver: str | None = Field(description="What was waived, for people.")
    local_slots: list[LocalSlots] = Field(description="The local engines' slots.")


class ExplainedRun(Shape):
    """Why a run was granted where it was."""

    model_config = ConfigDict(populate_by_name=True)
    run_id: int = Field(description="Its number.")
    attempt: int = Field(description="The job's attempt it is.")
    granted_at: Instant = Field(description="When it got its slot.")
    engine: str = Field(description="The engine it was granted on.")
    tier: str | None = Field(description="That engine's tier.")
    why: str = Field(description="What the grant rested on: assign, overflow or fallback.")
    state: str = Field(description="Its state.")
    decision: int | None = Field(description="The decision that made it.")
    pass_: int | None = Field(alias="pass", description="The routing pass of that decision.")
    reproduced: bool = Field(description="Whether the decision, made again, comes out the same.")
    problem: str | None = Field(description="Why it cannot be explained.")
    grounds: Grounds | None = Field(description="On what grounds it was granted.")
    turn: list[Step] = Field(description="How its project was drawn among others.")
    walk: list[Step] = Field(description="The way through the pools.")
    engines: list[Verdict] = Field(description="What became of each engine.")


class EarliestStart(Shape):
    """The earliest start that is known of a queued job."""

    at: Instant | None = Field(description="The instant; null where none is known.")
    by: str | None = Field(description="What comes then, as a word.")
    engine: str | None = Field(description="The engine that would take the job.")
    words: str = Field(description="The same for people.")


class GroupDecision(Shape):
    """The latest decision about why a group of jobs waits."""

    decision: int = Field(description="Its number.")
    at: Instant = Field(description="When it was made.")
    outcome: str = Field(description="hold or wait.")
    reason: str | None = Field(description="Why, as a word.")
    words: str = Field(description="Why, for people.")
    reproduced: bool = Field(description="Whether it, made again, comes out the same.")


class Waiting(Shape):
    """Why a queued job has not started."""

    reason: str | None = Field(description="Why its group waits, as a word.")
    since: Instant | None = Field(description="Since when.")
    held_since: Instant | None = Field(description="Since when its attempt is held.")
    backoff_until: Instant | None = Field(description="When it becomes due.")
    deadline_at: Instant | None = Field(description="When it fails unless it has ended.")
    decision: GroupDecision | None = Field(description="The latest decision about its group.")
    outcome: str = Field(description="What a decision made now comes to.")
    why: str | None = Field(description="Why it comes to that, as a word.")
    earliest: EarliestStart = Field(description="The earliest start that is known.")
    engines: list[Verdict] = Field(description="What each engine lacks now.")


class Unstarted(Shape):
    """Why a job that ended without a run found no engine."""

    decision: GroupDecision | None = Field(description="The latest decision about its group before it ended.")
    engines: list[Verdict] = Field(description="What each engine lacked at that decision.")


class Explanation(Shape):
    """Why a job ran where it did, or has not started."""

    as_of: Instant = Field(description="The instant all of it is as of.")
    job_id: int = Field(description="The job.")
    project: str = Field(description="Its project.")
    pool: str = Field(description="Its pool.")
    state: str = Field(description="Its state.")
    reason: str = Field(description="Why it is where it is, for people.")
    attempt: int = Field(description="The attempt it is in.")
    max_attempts: int = Field(description="Attempts it has.")
    runs: list[ExplainedRun] = Field(description="Its latest run, or with --all every one, latest first.")
    waiting: Waiting | None = Field(description="Why it has not started; null unless it is queued.")
    unstarted: Unstarted | None = Field(description="Why no engine was free; null unless it ended without a run.")


class Output(Shape):
    """What a run printed; all but the job are null before its first run."""

    job_id: int = Field(description="The job.")
    run_id: int | None = Field(description="The run.")
    engine: str | None = Field(description="The engine it ran on.")
    state: str | None = Field(description="The run's state.")
    host: str | None = Field(description="The machine it ran on.")
    source: str = Field(description="file, stored (the end of it, of a run elsewhere), or none.")
    text: str = Field(description="What it printed.")


class Enqueued(Shape):
    """A job that was enqueued; what comes after `created` is there with --wait."""

    job_id: int = Field(description="The job.")
    created: bool = Field(description="False where its key was known already.")
    state: str = Field(default="", description="How it ended.")
    engine: str | None = Field(default=None, description="The engine it ran on last.")
    reason: str = Field(default="", description="Why it ended so.")
    result: Any = Field(default=None, description="What it answered.")


class Batch(Shape):
    """A batch that was enqueued with --batch; what comes after `job_ids` is there with --wait."""

    created: int = Field(description="Jobs made.")
    duplicates: int = Field(description="Lines whose key was known already.")
    job_ids: list[int] = Field(description="The job of each line.")
    succeeded: int = Field(default=0, description="Jobs that succeeded.")
    failed: int = Field(default=0, description="Jobs that failed.")
    cancelled: int = Field(default=0, description="Jobs that were cancelled.")


class RefusedJob(Shape):
    """A job for which it could not be done."""

    job_id: int = Field(description="The job.")
    error: str = Field(description="Why, for people.")


class CancelledJob(Shape):
    """A job that was cancelled."""

    job_id: int = Field(description="The job.")
    state: str = Field(description="Its state now.")
    stopping_run: int | None = Field(description="The run that is being stopped.")


class Cancelled(Shape):
    """What became of the jobs to be cancelled."""

    cancelled: list[CancelledJob] = Field(description="Those cancelled.")
    refused: list[RefusedJob] = Field(description="Those that could not be.")


class CancelledMatching(Shape):
    """What became of the jobs chosen by --state, --project, --label or --all."""

    matched: dict[str, int] = Field(description="How many jobs were chosen, by state.")
    cancelled_jobs: int = Field(description="Jobs that were cancelled.")
    stopping_runs: int = Field(description="Runs that are being stopped.")


class Retried(Shape):
    """What became of the jobs to be queued again."""

    retried: list[int] = Field(description="Those queued again.")
    refused: list[RefusedJob] = Field(description="Those that could not be.")


class Project(Shape):
    """A project's dispatch settings."""

    project: str = Field(description="Its name.")
    policy: dict[str, Any] = Field(description="Its own settings, by key of the configuration.")


class EffectiveProject(Project):
    """A project's dispatch settings, and what the environment makes of them."""

    effective: dict[str, Any] = Field(description="The settings in force.")


class ShownProject(EffectiveProject):
    """One project, as of an instant."""

    as_of: Instant = Field(description="The instant all of it is as of.")
    sources: dict[str, str] = Field(description="Where each value in force comes from.")
    file: dict[str, Any] = Field(description="What the configuration file here says, where it differs.")


class Projects(Shape):
    """Every project."""

    as_of: Instant = Field(description="The instant all of it is as of.")
    projects: list[EffectiveProject] = Field(description="The projects, by name.")


class EngineDone(Shape):
    """What was done to an engine."""

    engine: str = Field(description="The engine.")
    done: str = Field(description="reset, paused, resumed, demoted or restored.")


class EngineDemoted(EngineDone):
    """An engine that serves after all others for a while."""

    demoted_until: Instant = Field(description="Until when.")


class Preferred(Shape):
    """A factor on the weight of an engine or a nested pool."""

    member: str = Field(description="The engine or pool.")
    factor: float = Field(description="What its weight is multiplied by.")
    until: Instant | None = Field(description="Until when; null where it has its own weight again.")
    note: str = Field(description="What the person who made it wrote.")


class Check(Shape):
    """One thing that doctor looked at."""

    name: str = Field(description="What was looked at.")
    state: str = Field(description="ok, warn or fail.")
    detail: str = Field(description="What was found.")
    fix: str = Field(description="What to do about it; empty where nothing is to be done.")


class Doctor(Shape):
    """How the installation is."""

    ok: bool = Field(description="Whether nothing failed.")
    checks: list[Check] = Field(description="What was looked at.")


class ConfigChecked(Shape):
    """Whether the configuration is good."""

    ok: bool = Field(description="Whether every engine can be built here.")
    path: str | None = Field(description="The file; null where there is none.")
    engines: list[str] = Field(description="The engines it configures.")
    problems: list[str] = Field(description="What is wrong, for people.")


class Change(Shape):
    """A difference between a configuration and the one in force."""

    part: str = Field(description="What differs: an engine, a pool, another table, or a key.")
    name: str = Field(description="Its name.")
    change: str = Field(description="What became of it, as a word.")
    details: list[str] = Field(description="Its keys that differ, for people.")


class Plan(Shape):
    """What applying the configuration would change, or changed.

    `changed` and `withdrawn` are left out with --check; `file_changes` and `unserved` are there with --undo only.
    """

    generation: int | None = Field(description="The configuration in force.")
    differs: bool = Field(description="Whether anything differed.")
    changes: list[Change] = Field(description="What differed.")
    effects: list[str] = Field(description="What becomes of queued and running jobs, for people.")
    changed: bool = Field(default=False, description="Whether this command made the generation.")
    withdrawn: int = Field(default=0, description="Grants that were withdrawn.")
    file_changes: list[Change] = Field(default=[], description="What the file here says otherwise than that.")
    unserved: dict[str, str] = Field(default={}, description="Engines that workers here leave unserved for that; why.")


class Generation(Shape):
    """A configuration that was applied."""

    generation: int = Field(description="Its number.")
    at: Instant = Field(description="When it was applied.")
    who: str = Field(description="By whom.")
    difference: list[str] = Field(description="What it changed, for people.")
    in_force: bool = Field(description="Whether it is in force.")
    undoes: int | None = Field(description="The generation that was left by going back, with --undo; else null.")


class Generations(Shape):
    """What was applied, printed with --history."""

    generations: list[Generation] = Field(description="The generations, newest first.")


class Setting(Shape):
    """A key of the configuration."""

    key: str = Field(description="The key with its table.")
    value: Any = Field(description="Its value; passwords are masked.")
    source: str = Field(description="default, file, a generation, or the variable that sets it.")
    file: Any = Field(description="What file and environment here say.")


class ConfigShown(Shape):
    """Every key of the configuration."""

    path: str | None = Field(description="The file; null where there is none.")
    settings: list[Setting] = Field(description="The keys.")
    generation: int | None = Field(description="The configuration in force; null where that is not known.")
    differences: list[Change] = Field(description="What the file here would change.")


class FoundEngine(Shape):
    """An engine that was found on this machine."""

    name: str = Field(description="The name it gets.")
    kind: str = Field(description="Its engine kind.")
    tier: str = Field(description="Its tier.")
    where: str = Field(description="Its program or address.")
    model: str | None = Field(description="The model it serves.")
    version: str | None = Field(description="Its version.")
    logged_in: bool | None = Field(description="Whether it has a login; null where it needs none.")
    needs: str = Field(description="What it lacks before it can run jobs; empty for nothing.")
    runnable: bool = Field(description="Whether it can run jobs as it is.")


class Started(Shape):
    """The configuration that was written."""

    path: str = Field(description="The file.")
    engines: list[FoundEngine] = Field(description="The engines that were found.")
    api_keys: int = Field(description="How many of them pay by an API key.")
    subscriptions: int = Field(description="How many of them have a login.")
    paid_daily_cap: int = Field(description="The cap that was written.")


class Process(Shape):
    """A process of the installation on this machine."""

    name: str = Field(description="Which it is.")
    state: str = Field(description="Its state, as supervisord names it.")
    pid: int | None = Field(description="Its process.")


class Up(Shape):
    """What runs on this machine."""

    running: bool = Field(description="True.")
    started: bool = Field(description="Whether it was started now.")
    processes: list[Process] = Field(description="The processes.")
    flower: str | None = Field(description="The address of the pages.")
    flower_login: str | None = Field(
        description="What they ask for: none, link (`vibey pages` prints it) or own (Flower was started with it)."
    )
    metrics: str | None = Field(description="The address of the metrics.")


class Pages(Shape):
    """Where this machine's pages in Flower are."""

    address: str = Field(description="Their address.")
    login: str = Field(description="What they ask for: none, link or own, the login that Flower was started with.")
    link: str | None = Field(description="The link that logs a browser in; null where there is none.")


class UnitWritten(Shape):
    """The systemd unit that was written with --install."""

    unit: str = Field(description="The file.")
    user: str = Field(description="The user it runs as.")
    commands: list[str] = Field(description="The commands that put it in force.")
    missing: list[str] = Field(description="Variables that engines need and the unit does not have.")


class BackedUp(Shape):
    """A backup."""

    file: str = Field(description="The file.")
    at: Instant = Field(description="The instant it is as of.")
    version: str = Field(description="The version of Vibey that made it.")
    schema_: str = Field(alias="schema", description="The revision of the schema in it.")
    installation: str = Field(description="The installation it is of.")
    server: int = Field(description="The version of the database server, as PostgreSQL numbers it.")
    bytes: int = Field(description="Its size.")
    sha256: str = Field(description="The digest of its content.")
    jobs: int = Field(description="Jobs in it.")
    open_jobs: int = Field(description="Those of them that had not ended.")
    live_runs: int = Field(description="Runs that were at work.")


class Restored(BackedUp):
    """What was restored from a backup."""

    replaced_jobs: int = Field(description="Jobs that were replaced.")
    redis_cleared: bool = Field(description="Whether Vibey's keys in Redis were removed.")


class Purged(Shape):
    """What was removed of an installation."""

    removed: list[str] = Field(description="Folders and files that were removed.")
    kept: list[str] = Field(description="Files that were left, as they are not Vibey's.")
    external: list[str] = Field(description="Addresses of servers that were not touched, by key.")


class OrphanedDatabase(Shape):
    """A database whose installation is gone."""

    path: str = Field(description="Its folder.")
    data_dir: str | None = Field(description="The data folder of its installation.")
    bytes: int = Field(description="Its size.")


class OrphansPurged(Shape):
    """What was removed with --orphans."""

    removed: list[OrphanedDatabase] = Field(description="Databases that were removed.")
    unknown: list[str] = Field(description="Folders of which nobody can say whose they are; left alone.")


class Example(Shape):
    """A file that comes with Vibey."""

    name: str = Field(description="Its name, as given.")
    text: str = Field(description="Its text.")


class Examples(Shape):
    """The files that come with Vibey, printed without a name."""

    examples: list[str] = Field(description="Their names.")


class Down(Shape):
    """That nothing runs on this machine any more."""

    running: bool = Field(description="False.")
    stopped: bool = Field(description="Whether something was running.")


class Migrated(Shape):
    """What became of the schema."""

    model_config = ConfigDict(populate_by_name=True)
    from_: str | None = Field(alias="from", description="The revision it was at; null for none.")
    to: str = Field(description="The revision it is at.")
    changed: bool = Field(description="Whether those differ.")
    applied: bool = Field(description="Whether a configuration has been applied.")


class Pruned(Shape):
    """What was removed from the record."""

    jobs: int = Field(description="Jobs.")
    runs: int = Field(description="Their runs.")
    passes: int = Field(description="Records of routing passes.")
    done: bool = Field(description="False where somebody else is at it.")


class Difference(Shape):
    """A decision that came out differently."""

    model_config = ConfigDict(populate_by_name=True)
    decision: int = Field(description="Its number.")
    pass_: int = Field(alias="pass", description="Its routing pass.")
    job: int | None = Field(description="The job it is about.")
    recorded: dict[str, Any] = Field(description="What was recorded.")
    replayed: dict[str, Any] = Field(description="What came out.")


class Replayed(Shape):
    """Whether recorded decisions come out again."""

    replayed: int = Field(description="Decisions that were made again.")
    same: int = Field(description="Those that came out the same, to the byte.")
    differing: list[Difference] = Field(description="The first of those that did not.")
    record_begins: Instant | None = Field(description="Jobs that ended before are removed; null if none was.")


class Outcome(Shape):
    """What became of the jobs of the past; waits are in seconds."""

    granted: int = Field(description="Runs granted.")
    wait_p50: float = Field(description="Median wait.")
    wait_p95: float = Field(description="The wait that 95 of 100 did not exceed.")
    wait_max: float = Field(description="Longest wait.")
    paid: int = Field(description="Paid runs.")
    overflows: int = Field(description="Overflows.")
    fallbacks: int = Field(description="Fallbacks.")
    starved: int = Field(description="Jobs that never ran, or waited more than an hour and ten times the median.")
    never_run: int = Field(description="Jobs that never ran.")


class WhatIf(Shape):
    """The past on other settings, printed with --what-if."""

    changes: str = Field(description="The changes, as given.")
    jobs: int = Field(description="Jobs of the span.")
    left_out: int = Field(description="Jobs that cannot be simulated.")
    record_begins: Instant | None = Field(description="Jobs that ended before are removed; null if none was.")
    happened: Outcome = Field(description="What happened.")
    simulated: Outcome = Field(description="What a simulation of the settings in force comes to.")
    what_if: Outcome = Field(description="What a simulation of the changed settings comes to.")


class SimulatedJobs(Shape):
    """What became of the jobs of a trace."""

    succeeded: int = Field(description="Jobs that succeeded.")
    failed: int = Field(description="Jobs that failed.")
    queued: int = Field(description="Jobs left queued.")
    reasons: dict[str, int] = Field(description="How many of those wait for what.")


class SimulatedEngine(Shape):
    """How an engine shared a trace's work."""

    name: str = Field(description="Its name.")
    picks: int = Field(description="Runs granted to it.")
    share: float = Field(description="Its share of the runs, a fraction of 1.")
    expected_share: float = Field(description="The share it was offered.")
    busy: float = Field(description="The part of its slots' time in use, a fraction of 1.")
    remark: str = Field(description="Says so where it was not needed; else empty.")
    owed: float = Field(description="Runs it was offered beyond those it got.")


class Waits(Shape):
    """Waits in seconds."""

    p50: float = Field(description="Median.")
    p95: float = Field(description="What 95 of 100 did not exceed.")
    max: float = Field(description="Longest.")
    mean: float = Field(description="Mean.")


class SimulatedDay(Shape):
    """Units taken on a day."""

    day: Day = Field(description="The UTC day.")
    purse: str = Field(description="Whose cap.")
    used: int = Field(description="Units taken.")


class SimulatedCap(Shape):
    """The paid cap over a trace."""

    limit: int = Field(description="Units a day.")
    used: int = Field(description="Units taken in all.")
    outside: int = Field(description="Paid runs that took no unit.")
    days: list[SimulatedDay] = Field(description="The days on which any was taken.")


class Simulated(Shape):
    """What a configuration does with a trace; durations are in seconds."""

    jobs: SimulatedJobs = Field(description="What became of the jobs.")
    decisions: int = Field(description="Decisions made.")
    engines: list[SimulatedEngine] = Field(description="How the engines shared the work.")
    waits: Waits = Field(description="From arrival to grant.")
    overflows: int = Field(description="Overflows.")
    fallbacks: int = Field(description="Fallbacks.")
    cap: SimulatedCap = Field(description="The paid cap.")
    makespan: float = Field(description="From the first arrival to the last end.")


class DemoEngine(Shape):
    """How an engine shared the demo's work."""

    name: str = Field(description="Its name.")
    picks: int = Field(description="Runs granted to it.")
    expected: float = Field(description="Runs it was offered.")
    tier: str = Field(description="Its tier.")
    slots: int = Field(description="Its slots.")
    peak: int = Field(description="Slots in use at once, at most.")
    succeeded: int = Field(description="Runs that succeeded.")


class DemoWaits(Shape):
    """Waits in seconds; null where nothing was granted."""

    p50: float | None = Field(description="Median.")
    p95: float | None = Field(description="What 95 of 100 did not exceed.")
    max: float | None = Field(description="Longest.")


class Demo(Shape):
    """What became of the demo."""

    jobs: int = Field(description="Jobs enqueued.")
    succeeded: int = Field(description="Jobs that succeeded.")
    engines: list[DemoEngine] = Field(description="How the engines shared the work.")
    seconds: float = Field(description="How long it took.")
    work_seconds: float = Field(description="How long the jobs took of that.")
    runs: int = Field(description="Runs granted.")
    project: str = Field(description="The project of the jobs.")
    holds: int = Field(description="Jobs that were held.")
    overflows: int = Field(description="Overflows.")
    cap: Cap = Field(description="The paid cap.")
    audit: Audit = Field(description="Whether every invariant held.")
    waits: DemoWaits = Field(description="From enqueueing to the grant.")
    directory: str = Field(description="The folder it is in.")
    config: str = Field(description="Its configuration file.")


class Figure(Shape):
    """A figure of the bench."""

    row: str = Field(description="The row it belongs to.")
    what: str = Field(description="What was measured.")
    unit: str = Field(description="Its unit.")
    median: float = Field(description="The median over the rounds.")
    low: float = Field(description="The least of them.")
    high: float = Field(description="The greatest of them.")
    samples: list[float] = Field(description="All of them.")
    bar: str | None = Field(description="What it should reach.")
    met: bool | None = Field(description="Whether it does; null without a bar.")


class Bench(Shape):
    """What the bench measured."""

    quick: bool = Field(description="Whether it was a check of the bench alone.")
    rounds: int = Field(description="How often each pair was measured.")
    version: str = Field(description="Vibey's version.")
    machine: dict[str, Any] = Field(description="The machine.")
    peers: dict[str, str] = Field(description="The peers' versions.")
    missing: dict[str, str] = Field(description="Peers that are not installed, and why.")
    missed: bool = Field(description="Whether a bar was missed.")
    rows: list[Figure] = Field(description="The figures.")


# What each command prints; where a command prints one of several, the options that lead to the others come later.
OUTPUTS: Mapping[str, tuple[type[Shape], ...]] = {
    "apply": (Plan, Generations),
    "audit": (Audit,),
    "backup": (BackedUp,),
    "bench": (Bench,),
    "cancel": (Cancelled, CancelledMatching),
    "config check": (ConfigChecked,),
    "config example": (Example, Examples),
    "config show": (ConfigShown,),
    "cost": (Cost,),
    "demo": (Demo,),
    "doctor": (Doctor,),
    "down": (Down,),
    "engine demote": (EngineDemoted,),
    "engine pause": (EngineDone,),
    "engine prefer": (Preferred,),
    "engine reset": (EngineDone,),
    "engine restore": (EngineDone,),
    "engine resume": (EngineDone,),
    "engines": (Engines,),
    "enqueue": (Enqueued, Batch),
    "explain": (Explanation,),
    "init": (Started,),
    "job": (Job,),
    "jobs": (Jobs,),
    "ledger": (Ledger,),
    "logs": (Output,),
    "measure": (Measured,),
    "migrate": (Migrated,),
    "mode": (Mode,),
    "new": (Project,),
    "pages": (Pages,),
    "project list": (Projects,),
    "project set": (Project,),
    "project show": (ShownProject,),
    "prune": (Pruned,),
    "purge": (Purged, OrphansPurged),
    "replay": (Replayed, WhatIf),
    "restore": (Restored,),
    "retry": (Retried,),
    "simulate": (Simulated,),
    "slots": (Slots,),
    "status": (Status,),
    "up": (Up, UnitWritten),
}
