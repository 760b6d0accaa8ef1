"""The lease clock: leases are judged by time that ticks have counted, not by instants of the database's clock."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Start the clock; live runs count as renewed by now."""
    for table in ("installation", "runs"):
        op.add_column(table, sa.Column("lease_clock_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.alter_column("installation", "judge_after", new_column_name="steady_since")
    op.execute("update installation set steady_since = null")
    op.drop_index("runs_live", "runs")
    op.create_index("runs_live", "runs", ["engine"], postgresql_where=sa.text("ended_at is null"))


def downgrade() -> None:
    """Judge leases by instants."""
    op.drop_index("runs_live", "runs")
    op.create_index("runs_live", "runs", ["engine", "lease_expires_at"], postgresql_where=sa.text("ended_at is null"))
    op.execute("update installation set steady_since = null")
    op.alter_column("installation", "steady_since", new_column_name="judge_after")
    for table in ("installation", "runs"):
        op.drop_column(table, "lease_clock_ms")
