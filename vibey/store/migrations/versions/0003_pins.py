"""Pins and workspaces: which engines may run a job, as sets of names that are part of what it asks.

Jobs enqueued before keep what they ask: those that name engines exclude all others known then, which cannot be told
apart from exclusions that were asked for.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NOBODY = sa.text("'{}'")


def upgrade() -> None:
    """Add the columns, which old rows have empty or unknown, and the index that serves applying a configuration."""
    op.add_column("engines", sa.Column("workspace_roots", sa.ARRAY(sa.Text()), nullable=True))
    op.add_column("jobs", sa.Column("handed_off", sa.ARRAY(sa.Text()), server_default=NOBODY, nullable=False))
    op.add_column("jobs", sa.Column("pinned", sa.ARRAY(sa.Text()), server_default=NOBODY, nullable=False))
    op.add_column("jobs", sa.Column("workspace", sa.ARRAY(sa.Text()), nullable=True))
    op.create_index(
        "jobs_workspace",
        "jobs",
        ["requirement_key"],
        postgresql_where=sa.text("workspace is not null and ended_at is null"),
    )


def downgrade() -> None:
    """Drop them: pinned jobs may then run anywhere."""
    op.drop_index("jobs_workspace", table_name="jobs")
    for column in ("workspace", "pinned", "handed_off"):
        op.drop_column("jobs", column)
    op.drop_column("engines", "workspace_roots")
