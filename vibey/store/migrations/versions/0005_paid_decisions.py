"""An index of the decisions for paid engines, to count a day's paid runs without reading all of the day's decisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index."""
    op.create_index("decisions_paid", "decisions", ["pass_id"], unique=False, postgresql_where=sa.text("tier = 'paid'"))


def downgrade() -> None:
    """Drop it."""
    op.drop_index("decisions_paid", table_name="decisions")
