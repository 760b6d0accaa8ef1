"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Text
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LEDGER_GUARD = """
create function vibey_ledger_is_append_only() returns trigger language plpgsql as $$
begin
  raise exception 'the ledger is append-only: % refused', tg_op using errcode = 'restrict_violation';
end $$;
create trigger ledger_append_only before update or delete or truncate on ledger
  for each statement execute function vibey_ledger_is_append_only();
"""


def _stamp(name: str) -> sa.Column[object]:
    """An instant that is the database's own where none is given."""
    return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False)


def upgrade() -> None:
    """Make every table of the first version."""
    op.execute(sa.schema.CreateSequence(sa.Sequence("run_tokens")))
    op.create_table(
        "accounts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("open_reason", sa.Text(), nullable=True),
        sa.Column("probe_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("resets_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("probes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures_in_a_row", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failure", sa.Integer(), server_default=sa.text("0"), nullable=False),
        _stamp("failure_at"),
        sa.Column("probe_run_id", sa.BigInteger(), nullable=True),
        sa.Column("ramp", sa.Integer(), nullable=True),
        sa.Column("login_ok", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("accounts_pkey")),
    )
    op.create_table(
        "audits",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("took_ms", sa.BigInteger(), nullable=False),
        sa.Column("found", postgresql.JSONB(astext_type=Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("audits_pkey")),
    )
    op.create_table(
        "tallies",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("counts", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("total", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("micros", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("tallies_pkey")),
    )
    op.create_table(
        "credits",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("member", sa.Text(), nullable=False),
        sa.Column("credit", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool", "member", name=op.f("credits_pkey")),
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pass_id", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=True),
        sa.Column("requirement_key", sa.BigInteger(), nullable=True),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("asked", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=True),
        sa.Column("tier", sa.Text(), nullable=True),
        sa.Column("trace", postgresql.JSONB(astext_type=Text()), nullable=False),
        sa.CheckConstraint("(job_id is null) <> (requirement_key is null)", name=op.f("decisions_subject")),
        sa.PrimaryKeyConstraint("id", name=op.f("decisions_pkey")),
    )
    op.create_index(
        "decisions_job", "decisions", ["job_id"], unique=False, postgresql_where=sa.text("job_id is not null")
    )
    op.create_index(
        "decisions_group",
        "decisions",
        ["requirement_key", "id"],
        unique=False,
        postgresql_where=sa.text("requirement_key is not null"),
    )
    op.create_index("decisions_pass", "decisions", ["pass_id", "ordinal"], unique=False)
    op.create_table(
        "group_states",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("requirement_key", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        _stamp("since"),
        sa.PrimaryKeyConstraint("pool", "requirement_key", name=op.f("group_states_pkey")),
    )
    op.create_table(
        "installation",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        _stamp("created_at"),
        sa.Column("last_tick_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("judge_after", sa.DateTime(timezone=True), nullable=True),
        _stamp("last_clean_at"),
        sa.Column("age_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("installation_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("installation_pkey")),
    )
    op.create_table(
        "ledger",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        _stamp("at"),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=True),
        sa.Column("job_id", sa.BigInteger(), nullable=True),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("engine", sa.Text(), nullable=True),
        sa.Column("utc_day", sa.Date(), nullable=True),
        sa.Column("data", postgresql.JSONB(astext_type=Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("ledger_pkey")),
    )
    op.create_index(
        "ledger_cap", "ledger", ["utc_day", "project_id"], unique=False, postgresql_where=sa.text("utc_day is not null")
    )
    op.create_index("ledger_job", "ledger", ["job_id"], unique=False)
    op.create_index(
        "ledger_measured",
        "ledger",
        ["project_id", "id"],
        unique=False,
        postgresql_where=sa.text("kind = 'EngineDispatchMeasured'"),
    )
    op.create_index("ledger_project", "ledger", ["project_id", "id"], unique=False)
    op.create_index(
        "ledger_unit",
        "ledger",
        ["run_id", sa.literal_column("(kind = 'EngineOverflowReleased')")],
        unique=True,
        postgresql_where=sa.text("utc_day is not null"),
    )
    op.create_table(
        "passes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column(
            "began_at", sa.DateTime(timezone=True), server_default=sa.text("transaction_timestamp()"), nullable=False
        ),
        _stamp("at"),
        sa.Column("world", postgresql.JSONB(astext_type=Text()), nullable=False),
        sa.Column("asked", postgresql.JSONB(astext_type=Text()), nullable=False),
        sa.Column("classes", postgresql.JSONB(astext_type=Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("passes_pkey")),
    )
    op.create_index("passes_at", "passes", ["at"], unique=False)
    op.create_table(
        "pools",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("definition", postgresql.JSONB(astext_type=Text()), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pools_pkey")),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("policy", postgresql.JSONB(astext_type=Text()), server_default=sa.text("'{}'"), nullable=False),
        _stamp("created_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("projects_pkey")),
        sa.UniqueConstraint("name", name=op.f("projects_name_key")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("token", sa.BigInteger(), server_default=sa.text("nextval('run_tokens')"), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'granted'"), nullable=False),
        sa.Column("why", sa.Text(), server_default=sa.text("'assign'"), nullable=False),
        sa.Column("counted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        _stamp("granted_at"),
        _stamp("sent_at"),
        sa.Column("sends", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("renewed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("failure_class", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("cost_usd", sa.Numeric(precision=12, scale=6), nullable=True),
        sa.Column("tokens_in", sa.BigInteger(), nullable=True),
        sa.Column("tokens_out", sa.BigInteger(), nullable=True),
        sa.Column("output_tail", sa.Text(), nullable=True),
        sa.Column("traceparent", sa.Text(), nullable=True),
        sa.CheckConstraint("(state in ('granted', 'running')) = (ended_at is null)", name=op.f("runs_ended")),
        sa.PrimaryKeyConstraint("id", name=op.f("runs_pkey")),
    )
    op.create_index("runs_due", "runs", ["due_at"], unique=False)
    op.create_index("runs_job", "runs", ["job_id"], unique=False)
    op.create_index(
        "runs_live", "runs", ["engine", "lease_expires_at"], unique=False, postgresql_where=sa.text("ended_at is null")
    )
    op.create_index("runs_one_live", "runs", ["job_id"], unique=True, postgresql_where=sa.text("ended_at is null"))
    op.create_table(
        "sessions",
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("class", sa.Text(), nullable=False),
        sa.Column("member", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("session", "pool", "class", name=op.f("sessions_pkey")),
    )
    op.create_table(
        "adjustments",
        sa.Column("member", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("factor", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.Text(), server_default=sa.text("''"), nullable=False),
        _stamp("at"),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("factor > 0", name=op.f("adjustments_factor")),
        sa.CheckConstraint("kind in ('preference', 'learned')", name=op.f("adjustments_kind")),
        sa.PrimaryKeyConstraint("member", "kind", name=op.f("adjustments_pkey")),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("engines", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("concurrency", sa.Integer(), server_default=sa.text("0"), nullable=False),
        _stamp("started_at"),
        _stamp("seen_at"),
        _stamp("canary_at"),
        sa.PrimaryKeyConstraint("name", name=op.f("workers_pkey")),
    )
    op.create_table(
        "engines",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("tier", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("slots", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("weight", sa.BigInteger(), server_default=sa.text("1000000"), nullable=False),
        sa.Column("price", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("capabilities", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("efforts", sa.ARRAY(sa.SmallInteger()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("configured", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("installed", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("conformant", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("detail", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("busy_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("demoted_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("selected_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("selected_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("overflow_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("fallback_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("expected", sa.Numeric(precision=30, scale=0), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("tier in ('local', 'paid')", name=op.f("engines_tier")),
        sa.CheckConstraint("slots >= 1", name=op.f("engines_slots")),
        sa.ForeignKeyConstraint(["account"], ["accounts.name"], name=op.f("engines_account_fkey")),
        sa.PrimaryKeyConstraint("name", name=op.f("engines_pkey")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("pool", sa.Text(), server_default=sa.text("'main'"), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'queued'"), nullable=False),
        sa.Column("priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("standing", sa.BigInteger(), nullable=False),
        sa.Column("effort", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("effort_now", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("capabilities", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("excluded", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("avoided", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("affinity", sa.Text(), nullable=True),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("traceparent", sa.Text(), nullable=True),
        sa.Column("requirement_key", sa.BigInteger(), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("max_attempts", sa.Integer(), server_default=sa.text("7"), nullable=False),
        sa.Column("refunds", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("handoffs", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        _stamp("due_at"),
        sa.Column("held_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("engine", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("result", postgresql.JSONB(astext_type=Text()), nullable=True),
        sa.Column("task_id", sa.Text(), nullable=True),
        sa.Column("tell_after", sa.DateTime(timezone=True), nullable=True),
        _stamp("created_at"),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state in ('granted', 'running')) = (run_id is not null)", name=op.f("jobs_run")),
        sa.CheckConstraint(
            "(state in ('succeeded', 'failed', 'cancelled')) = (ended_at is not null)", name=op.f("jobs_ended")
        ),
        sa.CheckConstraint(
            "state in ('queued', 'granted', 'running', 'succeeded', 'failed', 'cancelled')", name=op.f("jobs_state")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("jobs_project_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("jobs_pkey")),
    )
    op.create_index(
        "jobs_backoff",
        "jobs",
        ["not_before"],
        unique=False,
        postgresql_where=sa.text("state = 'queued' and not_before is not null"),
    )
    op.create_index(
        "jobs_deadline",
        "jobs",
        ["deadline_at"],
        unique=False,
        postgresql_where=sa.text("deadline_at is not null and ended_at is null"),
    )
    op.create_index(
        "jobs_due",
        "jobs",
        ["pool", "requirement_key", "standing", "id"],
        unique=False,
        postgresql_where=sa.text("state = 'queued' and not_before is null"),
    )
    op.create_index(
        "jobs_held",
        "jobs",
        ["pool", "requirement_key", "held_at"],
        unique=False,
        postgresql_where=sa.text("state = 'queued' and not_before is null"),
    )
    op.create_index(
        "jobs_idempotency",
        "jobs",
        ["project_id", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key is not null"),
    )
    op.create_index("jobs_open", "jobs", ["state", "id"], unique=False, postgresql_where=sa.text("ended_at is null"))
    op.create_index("jobs_project", "jobs", ["project_id", "id"], unique=False)
    op.create_index("jobs_task", "jobs", ["task_id"], unique=False, postgresql_where=sa.text("task_id is not null"))
    op.create_index(
        "jobs_untold",
        "jobs",
        ["tell_after"],
        unique=False,
        postgresql_where=sa.text("tell_after is not null and state in ('failed', 'cancelled')"),
    )
    op.execute(LEDGER_GUARD)
    op.execute("insert into installation (id) values (1)")


def downgrade() -> None:
    """Drop everything."""
    op.drop_table("jobs")
    op.drop_table("engines")
    op.drop_table("workers")
    op.drop_table("adjustments")
    op.drop_table("sessions")
    op.drop_table("runs")
    op.drop_table("projects")
    op.drop_table("pools")
    op.drop_table("passes")
    op.drop_table("ledger")
    op.drop_table("installation")
    op.drop_table("group_states")
    op.drop_table("decisions")
    op.drop_table("credits")
    op.drop_table("tallies")
    op.drop_table("audits")
    op.drop_table("accounts")
    op.execute("drop sequence run_tokens")
    op.execute("drop function vibey_ledger_is_append_only()")
