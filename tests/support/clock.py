"""The clock of a test's own database, which the test sets.

Each name of the server's clock is found in a schema of the test's first, in `search_path` before `pg_catalog`: by
prepared statements, defaults of columns, which are bound to a function when they are made and are made anew here, and
triggers. Sessions that were open before keep the server's clock.
"""

from __future__ import annotations

from tests.support.databases import leave, query

STANDING = "timestamptz '2026-03-10 12:00:00+00'"
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

# In a schema that nobody searches. One table for each of the product's, by its key, written by triggers.
SHADOWS = (
    "create schema truth",
    """create table truth.runs (id bigint primary key, granted timestamptz default pg_catalog.clock_timestamp(),
         started timestamptz, renewed timestamptz, ended timestamptz)""",
    """create table truth.jobs (id bigint primary key, created timestamptz default pg_catalog.clock_timestamp(),
         ended timestamptz)""",
    "create table truth.passes (id bigint primary key, began timestamptz default pg_catalog.transaction_timestamp())",
    "create table truth.ledger (id bigint primary key, at timestamptz default pg_catalog.clock_timestamp())",
    """create function truth.made() returns trigger language plpgsql as $$begin
         execute format('insert into truth.%I (id) values ($1)', tg_table_name) using new.id;
         return null; end$$""",
    """create function truth.run_changed() returns trigger language plpgsql as $$begin
         update truth.runs set
           started = case when old.started_at is distinct from new.started_at then pg_catalog.clock_timestamp()
                     else started end,
           renewed = case when old.renewed_at is distinct from new.renewed_at then pg_catalog.clock_timestamp()
                     else renewed end,
           ended = case when old.ended_at is distinct from new.ended_at then pg_catalog.clock_timestamp() else ended end
         where id = new.id;
         return null; end$$""",
    """create function truth.job_changed() returns trigger language plpgsql as $$begin
         update truth.jobs set ended = pg_catalog.clock_timestamp() where id = new.id;
         return null; end$$""",
    "create trigger made after insert on runs for each row execute function truth.made()",
    "create trigger made after insert on jobs for each row execute function truth.made()",
    "create trigger made after insert on passes for each row execute function truth.made()",
    """create trigger made after insert on ledger for each row when (new.kind = 'CircuitChanged')
       execute function truth.made()""",
    "create trigger changed after update on runs for each row execute function truth.run_changed()",
    """create trigger changed after update on jobs for each row when (old.ended_at is distinct from new.ended_at)
       execute function truth.job_changed()""",
)
# The product's tables as their readers know them, with the true instants in place of those by the database's clock.
TRUE_TABLES = {
    "runs": """(select r.id, r.job_id, r.engine, r.state, r.why, c.granted as granted_at, c.started as started_at,
                  c.renewed as renewed_at, c.ended as ended_at, coalesce(c.renewed, c.granted)
                    + (r.lease_expires_at - coalesce(r.renewed_at, r.granted_at)) as lease_expires_at
                from runs r join truth.runs c using (id))""",
    "jobs": """(select j.id, j.capabilities, j.excluded, c.created as created_at, c.ended as ended_at
                from jobs j join truth.jobs c using (id))""",
    "passes": "(select p.id, p.world, p.asked, c.began as began_at from passes p join truth.passes c using (id))",
    "ledger": "(select l.id, l.kind, l.data, c.at from ledger l join truth.ledger c using (id))",
}


class DatabaseClock:
    """The clock of one database: it stands until it is moved, or runs with the server's, so many seconds beside it."""

    def __init__(self, url: str, *, standing: bool) -> None:
        """Take the clock's place, for all sessions that begin after this."""
        self._url = url
        query(url, "create schema clock")
        query(url, "create sequence clock.moved minvalue -9000000000000000 start 0")
        for name, kind in NAMES.items():
            base = STANDING if standing else f"pg_catalog.{name}()"
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

    def keep_true_instants(self) -> None:
        """Keep by the server's own clock, too, when the things happened that a checker compares with other clocks."""
        for statement in SHADOWS:
            query(self._url, statement)

    def move(self, seconds: float) -> None:
        """Set the clock forward, or back where negative, by so much."""
        self.moved_ms += round(seconds * 1000)
        query(self._url, f"select setval('clock.moved', {self.moved_ms})")
