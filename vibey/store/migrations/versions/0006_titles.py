"""Titles and labels of jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both to jobs, and the table that finds jobs by label; jobs enqueued before have neither."""
    op.add_column("jobs", sa.Column("title", sa.Text(), server_default=sa.text("''"), nullable=False))
    op.add_column("jobs", sa.Column("labels", JSONB(), server_default=sa.text("'{}'"), nullable=False))
    op.create_table(
        "job_labels",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("key", "value", "job_id", name=op.f("job_labels_pkey")),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("job_labels")
    op.drop_column("jobs", "labels")
    op.drop_column("jobs", "title")
