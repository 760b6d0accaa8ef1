"""The clock of a test's own database, which the test sets.

Each name of the server's clock is found in a schema of the test's first, in `search_path` before `pg_catalog`: by
prepared statements, defaults of columns, which are bound to a function when they are made and are made anew here, and
triggers. Sessions that were open before keep the server's clock.
"""

from __future__ import annotations

from tests.support.databases import leave, query

STANDING = "timestamptz '2026-03-10 12:00:00+00'"
RUNNING = "pg_catalog.clock_timestamp()"
NAMES = {
    "clock_timestamp": "volatile",
    "statement_timestamp": "stable",
    "transaction_timestamp": "stable",
    "now": "stable",
}
DEFAULTS = """select format('alter table %s alter %I set default %s', d.adrelid::regclass, a.attname,
                regexp_replace(pg_get_expr(d.adbin, d.adrelid), '(pg_catalog\\.)?(\\w+)\\(\\)', 'clock.\\2()'))
              from pg_attrdef d join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum
              where pg_get_expr(d.adbin, d.adrelid) ~ '(clock|statement|transaction)_timestamp\\(\\)|now\\(\\)'"""


class DatabaseClock:
    """The clock of one database: it stands until it is moved, or runs with the server's, so many seconds beside it."""

    def __init__(self, url: str, *, standing: bool) -> None:
        """Take the clock's place, for all sessions that begin after this."""
        self._url = url
        base = STANDING if standing else RUNNING
        query(url, "create schema clock")
        query(url, "create sequence clock.moved minvalue -9000000000000000 start 0")
        for name, kind in NAMES.items():
            query(
                url,
                f"create function clock.{name}() returns timestamptz language sql {kind} as "
                f"$$select {base} + (select last_value from clock.moved) * interval '1 millisecond'$$",
            )
        for (statement,) in query(url, DEFAULTS):
            query(url, str(statement))
        ((database,),) = query(url, "select current_database()")
        query(url, f'alter database "{database}" set search_path = clock, public, pg_catalog')
        leave(url)
        self.moved_ms = 0
        self.move(0)

    def move(self, seconds: float) -> None:
        """Set the clock forward, or back where negative, by so much."""
        self.moved_ms += round(seconds * 1000)
        query(self._url, f"select setval('clock.moved', {self.moved_ms})")
