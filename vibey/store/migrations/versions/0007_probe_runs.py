"""An account's probe is a run that exists: what an account waits for cannot be removed."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forget probes whose run was removed, for which their accounts would wait for ever, and let none be again."""
    op.execute(
        """update accounts a set probe_run_id = null
           where probe_run_id is not null and not exists (select 1 from runs r where r.id = a.probe_run_id)"""
    )
    op.create_index("accounts_probe_run_id", "accounts", ["probe_run_id"])
    op.create_foreign_key("accounts_probe_run_id_fkey", "accounts", "runs", ["probe_run_id"], ["id"])


def downgrade() -> None:
    """Let runs be removed that accounts wait for."""
    op.drop_constraint("accounts_probe_run_id_fkey", "accounts", type_="foreignkey")
    op.drop_index("accounts_probe_run_id", "accounts")
