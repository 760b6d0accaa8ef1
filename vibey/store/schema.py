"""Schema: every table there is, for whoever needs them all."""

from vibey.store import readings, tables
from vibey.store.tables import metadata

__all__ = ["metadata", "readings", "tables"]
