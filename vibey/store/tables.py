"""The schema on one page, as SQLAlchemy Core tables. Migrations arrive exactly here; a test proves it.

Instants are `timestamptz` written by the database's own clock. Weights, shares and averages are integers in
the unit their comment names. Every index names the query it serves.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Numeric,
    Sequence,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from vibey.store.columns import CONVENTION
from vibey.store.columns import count as _count
from vibey.store.columns import flag as _flag
from vibey.store.columns import instant as _instant
from vibey.store.columns import names as _names
from vibey.store.columns import tally as _tally
from vibey.store.columns import words as _text

metadata = MetaData(naming_convention=CONVENTION)

# One row. `lease_clock_ms` is the clock that leases are judged by: only ticks move it (see `vibey.services.tick`).
# `steady_since` is since when ticks have come on time, by a database clock that was not set back.
# Where jobs stand was reckoned with `age_ms`. `generation` is the one in force; null before the first was applied.
installation = Table(
    "installation",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    _instant("created_at", now=True),
    _instant("last_tick_at"),
    _instant("steady_since"),
    _instant("last_clean_at", now=True),
    Column("lease_clock_ms", BigInteger, nullable=False, server_default=text("0")),
    Column("age_ms", BigInteger, nullable=False, server_default=text("0")),
    Column("generation", Integer),
    CheckConstraint("id = 1", name="single"),
)

# Every configuration that was applied, with the text of its difference from the one before. `content` is what routing
# depends on, and digests of what runs each engine (see `vibey.settings.applied`); engines, pools and the default
# project's policy are kept in their own rows besides.
generations = Table(
    "generations",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    _instant("at", now=True),
    _text("who", required=True),
    _text("difference", ""),
    Column("content", JSONB, nullable=False),
)

projects = Table(
    "projects",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("policy", JSONB, nullable=False, server_default=text("'{}'")),
    _instant("created_at", now=True),
)

# The vendor login or host behind engines, with its circuit. `failure` is an average in millionths; `ramp` is how many
# slots each of its engines has after a probe, null for all. `resets_at` is the reset its provider named, while known.
# `probe_run_id` is the run that was its last probe; while that run is live, the account waits for it.
accounts = Table(
    "accounts",
    metadata,
    Column("name", Text, primary_key=True),
    _text("open_reason"),
    _instant("probe_at"),
    _instant("resets_at"),
    _count("probes"),
    _count("failures_in_a_row"),
    _count("failure"),
    _instant("failure_at", now=True),
    Column("probe_run_id", BigInteger, ForeignKey("runs.id"), index=True),
    _count("ramp", None),
    _flag("login_ok", default=True),
)

# `weight` is in millionths, `price` in micro-dollars per million tokens in and out, `expected` in 10^-12 picks.
# `demoted_until` is how long its quota counts as nearly spent, `selected_at` when it was picked last; of the picks
# `selected_count`, so many were overflows and fallbacks. `workspace_roots` are the folders that hold its jobs'
# repositories, by name; null until a version that knows them has written the engine.
engines = Table(
    "engines",
    metadata,
    Column("name", Text, primary_key=True),
    Column("account", Text, ForeignKey("accounts.name"), nullable=False),
    _text("kind", required=True),
    _text("tier", required=True),
    _count("ordinal"),
    _count("slots", 1),
    Column("weight", BigInteger, nullable=False, server_default=text("1000000")),
    Column("price", BigInteger, nullable=False, server_default=text("0")),
    _names("capabilities"),
    Column("efforts", ARRAY(SmallInteger), nullable=False, server_default=text("'{}'")),
    Column("workspace_roots", ARRAY(Text)),
    _flag("configured", default=True),
    _flag("enabled", default=True),
    _flag("paused", default=False),
    _flag("installed", default=True),
    _flag("conformant", default=True),
    _text("detail", ""),
    _instant("busy_until"),
    _instant("demoted_until"),
    _instant("selected_at"),
    _tally("selected_count"),
    _tally("overflow_count"),
    _tally("fallback_count"),
    Column("expected", Numeric(30, 0), nullable=False, server_default=text("0")),
    CheckConstraint("tier in ('local', 'paid')", name="tier"),
    CheckConstraint("slots >= 1", name="slots"),
)

# Pool trees as configured; a pool without a definition is the default tree.
pools = Table(
    "pools",
    metadata,
    Column("name", Text, primary_key=True),
    Column("definition", JSONB),
)

# `due_at` is when the attempt became due, and so when the router first looked at it; `held_at` is its first hold.
# `attempt` counts the attempts used, the live one included. `effort` is what the job asked for, `effort_now`,
# `avoided`, `handed_off` and `affinity` what its next attempt asks; `pinned` names the only engines that may run it,
# `workspace` those that can work in the repository its payload names, null where it names none. `requirement_key` is
# the digest of all of that. `traceparent` is the span that enqueued it, as the W3C writes it. `task_id` is the
# Celery call a job carries out, if it does; `tell_after` is when that call's result backend may be told of an end the
# call's own run did not tell it of, null once that is done or not wanted.
jobs = Table(
    "jobs",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("project_id", Integer, ForeignKey("projects.id"), nullable=False),
    _text("pool", "main"),
    _text("state", "queued"),
    _count("priority"),
    Column("standing", BigInteger, nullable=False),
    Column("effort", SmallInteger, nullable=False, server_default=text("1")),
    Column("effort_now", SmallInteger, nullable=False, server_default=text("1")),
    _names("capabilities"),
    _names("excluded"),
    _names("avoided"),
    _names("handed_off"),
    _names("pinned"),
    Column("workspace", ARRAY(Text)),
    _text("affinity"),
    _text("session"),
    _text("traceparent"),
    Column("requirement_key", BigInteger, nullable=False),
    Column("payload", JSONB, nullable=False, server_default=text("'{}'")),
    _text("idempotency_key"),
    _count("attempt"),
    _count("max_attempts", 7),
    _count("refunds"),
    _count("handoffs"),
    _instant("not_before"),
    _instant("due_at", now=True),
    _instant("held_at"),
    _instant("deadline_at"),
    _instant("cancel_requested_at"),
    Column("run_id", BigInteger),
    _text("engine"),
    _text("reason", ""),
    Column("result", JSONB),
    _text("task_id"),
    _instant("tell_after"),
    _text("title", ""),
    Column("labels", JSONB, nullable=False, server_default=text("'{}'")),
    _instant("created_at", now=True),
    _instant("ended_at"),
    CheckConstraint("state in ('queued', 'granted', 'running', 'succeeded', 'failed', 'cancelled')", name="state"),
    CheckConstraint("(state in ('granted', 'running')) = (run_id is not null)", name="run"),
    CheckConstraint("(state in ('succeeded', 'failed', 'cancelled')) = (ended_at is not null)", name="ended"),
)
# serves: routing's list of groups, and the head of each in queue order
Index(
    "jobs_due",
    jobs.c.pool,
    jobs.c.requirement_key,
    jobs.c.standing,
    jobs.c.id,
    postgresql_where=text("state = 'queued' and not_before is null"),
)
# serves: writing first holds of a group, and finding its jobs that were held long enough
Index(
    "jobs_held",
    jobs.c.pool,
    jobs.c.requirement_key,
    jobs.c.held_at,
    postgresql_where=text("state = 'queued' and not_before is null"),
)
# serves: promoting jobs whose backoff is over, and the next instant one will be
Index("jobs_backoff", jobs.c.not_before, postgresql_where=text("state = 'queued' and not_before is not null"))
# serves: failing queued jobs whose deadline has passed
Index("jobs_deadline", jobs.c.deadline_at, postgresql_where=text("deadline_at is not null and ended_at is null"))
# serves: a duplicate enqueue finding the first job
Index(
    "jobs_idempotency",
    jobs.c.project_id,
    jobs.c.idempotency_key,
    unique=True,
    postgresql_where=text("idempotency_key is not null"),
)
# serves: lists of one project's jobs, newest first
Index("jobs_project", jobs.c.project_id, jobs.c.id)
# serves: the jobs of one Celery call
Index("jobs_task", jobs.c.task_id, postgresql_where=text("task_id is not null"))
# serves: ends that no result backend has been told of
Index(
    "jobs_untold",
    jobs.c.tell_after,
    postgresql_where=text("tell_after is not null and state in ('failed', 'cancelled')"),
)
# serves: finding anew which engines can work in the repositories that jobs name
Index(
    "jobs_workspace",
    jobs.c.requirement_key,
    postgresql_where=text("workspace is not null and ended_at is null"),
)
# serves: counts and lists of jobs not yet ended, by state
Index("jobs_open", jobs.c.state, jobs.c.id, postgresql_where=text("ended_at is null"))

# The labels of jobs, once more: its key finds the newest jobs of a label in order, which no index on a JSON value does.
job_labels = Table(
    "job_labels",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, primary_key=True),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
)

run_tokens = Sequence("run_tokens", metadata=metadata)

# No foreign keys: what makes a run has just locked its job and its engine, and a job is removed with its runs.
# `traceparent` is the span that granted it; where nothing is traced, its job's. `lease_clock_ms` is what the lease
# clock showed when the lease was last given or renewed, and decides; `lease_expires_at` is shown. Where the database's
# clock is set back during a run, its end is written as no earlier than what came before.
runs = Table(
    "runs",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("token", BigInteger, nullable=False, server_default=text("nextval('run_tokens')")),
    Column("job_id", BigInteger, nullable=False),
    Column("engine", Text, nullable=False),
    _text("account", required=True),
    Column("attempt", Integer, nullable=False),
    _text("state", "granted"),
    _text("why", "assign"),
    _flag("counted", default=False),
    _instant("due_at"),
    _instant("granted_at", now=True),
    _instant("sent_at", now=True),
    _count("sends", 1),
    _instant("started_at"),
    _instant("renewed_at"),
    _instant("lease_expires_at", required=True),
    _instant("ended_at"),
    _text("holder"),
    _text("host"),
    _count("pid", None),
    _text("failure_class"),
    _text("detail", ""),
    Column("cost_usd", Numeric(12, 6)),
    Column("tokens_in", BigInteger),
    Column("tokens_out", BigInteger),
    _text("output_tail"),
    _text("traceparent"),
    Column("lease_clock_ms", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("(state in ('granted', 'running')) = (ended_at is null)", name="ended"),
)
# serves: the locked count of live runs per engine, and the search for expired leases
Index("runs_live", runs.c.engine, postgresql_where=text("ended_at is null"))
# serves: the promise of one live run per job
Index("runs_one_live", runs.c.job_id, unique=True, postgresql_where=text("ended_at is null"))
# serves: the demand of a measurement's window
Index("runs_due", runs.c.due_at)
# serves: the runs of one job
Index("runs_job", runs.c.job_id)

# Rotation state in units of 10^-12 of a pick, by pool and member key, never by position.
credits = Table(
    "credits",
    metadata,
    Column("pool", Text, primary_key=True),
    Column("member", Text, primary_key=True),
    Column("credit", BigInteger, nullable=False),
)

# One routing pass, or one part of a large one, with what its decisions have in common kept once: the world they started
# from, the requirements they are about, and the classes of pools they drew from (see `vibey.services.record`). Parts of
# one pass have the same `began_at`.
passes = Table(
    "passes",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _text("pool", required=True),
    _instant("began_at", clock="transaction_timestamp()"),
    _instant("at", now=True),
    Column("world", JSONB, nullable=False),
    Column("asked", JSONB, nullable=False),
    Column("classes", JSONB, nullable=False),
)
# serves: the passes since an instant, and through them the decisions
Index("passes_at", passes.c.at)

# One outcome each, in the order of their pass (`ordinal`): of a job that was granted a run, or of a group whose jobs
# wait, by its `requirement_key`. `asked` is the place of its requirement in the pass; `trace` holds the steps through
# the pool tree, or the reason.
decisions = Table(
    "decisions",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("pass_id", BigInteger, nullable=False),
    _count("ordinal"),
    Column("job_id", BigInteger),
    Column("requirement_key", BigInteger),
    Column("run_id", BigInteger),
    Column("attempt", Integer),
    Column("asked", Integer, nullable=False),
    _text("outcome", required=True),
    _text("engine"),
    _text("tier"),
    Column("trace", JSONB, nullable=False),
    CheckConstraint("(job_id is null) <> (requirement_key is null)", name="subject"),
)
# serves: the decisions about one job
Index("decisions_job", decisions.c.job_id, postgresql_where=text("job_id is not null"))
# serves: the latest decision about a group
Index(
    "decisions_group",
    decisions.c.requirement_key,
    decisions.c.id,
    postgresql_where=text("requirement_key is not null"),
)
# serves: the decisions of one pass in order, for replay
Index("decisions_pass", decisions.c.pass_id, decisions.c.ordinal)
# serves: the paid runs of a day
Index("decisions_paid", decisions.c.pass_id, postgresql_where=text("tier = 'paid'"))

# Why the queued jobs of one group are not running; written only when it changes.
group_states = Table(
    "group_states",
    metadata,
    Column("pool", Text, primary_key=True),
    Column("requirement_key", BigInteger, primary_key=True),
    _text("reason", required=True),
    _instant("since", now=True),
)

# Who writes them, where that takes several transactions: `number` grows with every claim, and with whatever ends one.
notings = Table(
    "notings",
    metadata,
    Column("pool", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("claimed", Boolean, nullable=False),
)

# Append-only: a trigger refuses UPDATE, DELETE and TRUNCATE. `utc_day` is set on the events that are or return a unit
# of the cap, and is the day they are counted by.
ledger = Table(
    "ledger",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _instant("at", now=True),
    _text("kind", required=True),
    Column("project_id", Integer),
    Column("job_id", BigInteger),
    Column("run_id", BigInteger),
    _text("engine"),
    Column("utc_day", Date),
    Column("data", JSONB, nullable=False, server_default=text("'{}'")),
)
# serves: the cap's count of a day; and the promise that a run takes one unit and gives it back once
Index("ledger_cap", ledger.c.utc_day, ledger.c.project_id, postgresql_where=text("utc_day is not null"))
Index(
    "ledger_unit",
    ledger.c.run_id,
    text("(kind = 'EngineOverflowReleased')"),
    unique=True,
    postgresql_where=text("utc_day is not null"),
)
# serves: a project's latest measurement
Index("ledger_measured", ledger.c.project_id, ledger.c.id, postgresql_where=text("kind = 'EngineDispatchMeasured'"))
# serves: the events of one job
Index("ledger_job", ledger.c.job_id)
# serves: the events of one project, newest first
Index("ledger_project", ledger.c.project_id, ledger.c.id)

# Which member each class of a pool gave a session last. `session` is `project/name`: two projects may use one name.
sessions = Table(
    "sessions",
    metadata,
    Column("session", Text, primary_key=True),
    Column("pool", Text, primary_key=True),
    Column("class", Text, primary_key=True),
    _text("member", required=True),
    _instant("expires_at", required=True),
)

# Factors a person, or the record of its runs, laid on a member's weight for a while, in millionths; one of each kind.
adjustments = Table(
    "adjustments",
    metadata,
    Column("member", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("factor", BigInteger, nullable=False),
    _text("note", ""),
    _instant("at", now=True),
    _instant("expires_at", required=True),
    CheckConstraint("kind in ('preference', 'learned')", name="kind"),
    CheckConstraint("factor > 0", name="factor"),
)

# Which engines have a live worker. `canary_at` is the last time the worker proved that it consumes. `slots` says how
# many runs of each of its `engines` it can have at work, null for as many as there are; `generation` is the one it has
# read its own file for, and `problems` say by engine why it does not serve some of that generation's.
workers = Table(
    "workers",
    metadata,
    Column("name", Text, primary_key=True),
    _text("host", required=True),
    Column("pid", Integer, nullable=False),
    _names("engines"),
    _count("concurrency"),
    _instant("started_at", now=True),
    _instant("seen_at", now=True),
    _instant("canary_at", now=True),
    Column("slots", ARRAY(Integer)),
    Column("generation", Integer),
    _text("version", ""),
    Column("problems", JSONB, nullable=False, server_default=text("'{}'")),
)
