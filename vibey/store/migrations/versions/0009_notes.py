"""Who may write why a pool's groups wait, where that takes more than one transaction."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Keep the claim on each pool's notes."""
    op.create_table(
        "notings",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("claimed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("pool", name=op.f("notings_pkey")),
    )


def downgrade() -> None:
    """Have every pass write all by itself."""
    op.drop_table("notings")
