"""Generations: applied configurations, numbered; what the database holds becomes the first one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# What a database of the versions before held: the default project's policy, engines and pools. The other keys of
# `[engines]`, schedules and what runs an engine stay as each process's file says until the first `vibey apply`.
FIRST = """
insert into generations (number, who, difference, content)
select 1, 'upgrade', 'made of what the database held', jsonb_build_object(
  'engines', p.policy || jsonb_build_object('priority_age_seconds', i.age_ms / 1000),
  'engine', (select coalesce(jsonb_object_agg(name, jsonb_build_object(
      'account', account, 'kind', kind, 'tier', tier, 'ordinal', ordinal, 'slots', slots, 'weight', weight,
      'price', price, 'capabilities', to_jsonb(capabilities), 'enabled', enabled,
      'efforts', (select coalesce(jsonb_agg((array['trivial', 'low', 'standard', 'high', 'max', 'ultra'])[level + 1]
                                            order by level), '[]') from unnest(efforts) level))), '{}')
    from engines where configured),
  'pool', (select coalesce(jsonb_object_agg(name, definition), '{}') from pools where definition is not null))
from installation i, projects p where i.id = 1 and p.name = 'default'
"""


def upgrade() -> None:
    """Make the table, the columns, and the first generation of an installation that is at work already."""
    op.create_table(
        "generations",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("difference", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("content", postgresql.JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("generations_pkey")),
    )
    op.add_column("installation", sa.Column("generation", sa.Integer(), nullable=True))
    op.add_column("workers", sa.Column("slots", postgresql.ARRAY(sa.Integer()), nullable=True))
    op.add_column("workers", sa.Column("generation", sa.Integer(), nullable=True))
    op.add_column("workers", sa.Column("version", sa.Text(), server_default=sa.text("''"), nullable=False))
    op.add_column("workers", sa.Column("problems", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False))
    op.execute(FIRST)
    op.execute("update installation set generation = (select max(number) from generations)")


def downgrade() -> None:
    """Drop them; engines, pools and policies stay as they are."""
    for name in ("problems", "version", "generation", "slots"):
        op.drop_column("workers", name)
    op.drop_column("installation", "generation")
    op.drop_table("generations")
