"""Tables of what was read off the others, on the same page's rules: nothing that admits a job looks at them."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, Column, Identity, Table, Text
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

# What the audits that run by themselves found, each as `vibey audit --json` tells it, and how long they took.
audits = Table(
    "audits",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _instant("as_of", required=True),
    Column("took_ms", BigInteger, nullable=False),
    Column("found", JSONB, nullable=False),
)
