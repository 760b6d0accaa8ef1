"""The horizon: what is kept of jobs that are removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables that pruning writes."""
    op.create_table(
        "horizon",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("pass_id", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("job_id", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("jobs", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("runs", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("before", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("horizon_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("horizon_pkey")),
    )
    op.create_table(
        "openings",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("member", sa.Text(), nullable=False),
        sa.Column("credit", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool", "member", name=op.f("openings_pkey")),
    )
    op.create_table(
        "spendings",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("runs", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cost_usd", sa.Numeric(precision=18, scale=6), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("day", "project_id", "engine", name=op.f("spendings_pkey")),
    )
    op.execute("insert into horizon (id) values (1)")


def downgrade() -> None:
    """Drop them; what was removed does not come back, and an audit then misses it."""
    op.drop_table("spendings")
    op.drop_table("openings")
    op.drop_table("horizon")
