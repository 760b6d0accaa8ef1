"""Tables of what was read off the others, or is kept of their removed rows, on the same page's rules.

Nothing that admits a job looks at them.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    Date,
    Identity,
    Integer,
    Numeric,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from vibey.store.columns import instant as _instant
from vibey.store.columns import tally as _tally
from vibey.store.tables import metadata

# Histograms of durations, folded from the rows that tell them, up to `cursor`; see `vibey.store.tallies`.
tallies = Table(
    "tallies",
    metadata,
    Column("name", Text, primary_key=True),
    Column("cursor", BigInteger, nullable=False),
    Column("counts", ARRAY(BigInteger), nullable=False),
    _tally("total"),
    _tally("micros"),
)

# One row: how far the record has been pruned; see `vibey.store.horizon`. Passes up to `pass_id` are in the openings.
# The jobs removed, so many with so many runs, have numbers up to `job_id`, and had ended before `before`.
horizon = Table(
    "horizon",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("pass_id", BigInteger, nullable=False, server_default=text("0")),
    Column("job_id", BigInteger, nullable=False, server_default=text("0")),
    _tally("jobs"),
    _tally("runs"),
    _instant("before"),
    CheckConstraint("id = 1", name="single"),
)

# Opening balances of the credits: what the passes up to the horizon moved, in units of 10^-12 of a pick.
openings = Table(
    "openings",
    metadata,
    Column("pool", Text, primary_key=True),
    Column("member", Text, primary_key=True),
    Column("credit", BigInteger, nullable=False),
)

# What runs that are removed have spent, by the UTC day they were granted on.
spendings = Table(
    "spendings",
    metadata,
    Column("day", Date, primary_key=True),
    Column("project_id", Integer, primary_key=True),
    Column("engine", Text, primary_key=True),
    _tally("runs"),
    _tally("tokens_in"),
    _tally("tokens_out"),
    Column("cost_usd", Numeric(18, 6), nullable=False, server_default=text("0")),
)

# What the audits that run by themselves found, each as `vibey audit --json` tells it, and how long they took.
audits = Table(
    "audits",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _instant("as_of", required=True),
    Column("took_ms", BigInteger, nullable=False),
    Column("found", JSONB, nullable=False),
)
