"""A Postgres cluster on disk: making it, its roles, its processes, and SQL without a server.

A cluster has two roles. `vibey_admin` is the superuser: it has no password, so nobody can log in as it, and only SQL
without a server (`run_sql`) runs as it. `vibey`, the role of the application, owns its database and may make further
ones, and that is all. In clusters of earlier versions `vibey` was the superuser; `separate_roles` brings them into this
form.
"""

from __future__ import annotations

import re
import secrets
import shutil
import signal
from typing import TYPE_CHECKING

import psutil

from vibey.domain.errors import ServiceUnavailable
from vibey.embedded.home import Owner, programs
from vibey.embedded.processes import end, is_alive, processes
from vibey.embedded.record import write_private

if TYPE_CHECKING:
    from pathlib import Path

SETUP_SECONDS = 120.0
# The same order of texts on every machine, whatever its locale.
INITDB = (
    "--username=vibey_admin",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
)


# Written into a cluster whose roles are separate.
SEPARATED = "vibey_roles"
APPLICATION_ROLE = "CREATE ROLE vibey LOGIN CREATEDB PASSWORD '{password}'"
# The superuser that initdb made has the number 10, and cannot cease to be one. So it gets another name, which takes a
# session of another superuser, and a new role gets its name. Each step may have been done by a start that was killed.
SEPARATION = (
    "DO $$ BEGIN IF to_regrole('vibey_setup') IS NULL THEN CREATE ROLE vibey_setup SUPERUSER; END IF; END $$",
    "SET SESSION AUTHORIZATION vibey_setup",
    "DO $$ BEGIN IF to_regrole('vibey') = 10::oid THEN ALTER ROLE vibey RENAME TO vibey_admin; END IF; END $$",
    "DO $$ BEGIN IF to_regrole('vibey') IS NULL THEN {application_role}; END IF; END $$",
    "ALTER ROLE vibey_admin PASSWORD NULL",
    "SET SESSION AUTHORIZATION vibey_admin",
    "DROP ROLE vibey_setup",
)
DATABASES = "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate AND datname <> 'postgres'"
# REASSIGN OWNED refuses for the superuser that initdb made, as the server's own objects are among those it owns.
OWNERSHIP = """DO $$
    DECLARE command text;
    BEGIN
      FOR command IN
        WITH ours AS (SELECT oid FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'),
          parts AS (SELECT classid, objid FROM pg_depend
                    WHERE deptype IN ('e', 'i')
                      OR deptype = 'a' AND classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass)
        SELECT format('ALTER SCHEMA %I OWNER TO vibey', nspname) FROM pg_namespace
          WHERE nspowner = 10 AND oid IN (SELECT oid FROM ours)
        UNION ALL
        SELECT format('ALTER TABLE %s OWNER TO vibey', oid::regclass)
          FROM pg_class WHERE relowner = 10 AND relnamespace IN (SELECT oid FROM ours)
            AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
            AND ('pg_class'::regclass, oid) NOT IN (SELECT classid, objid FROM parts)
        UNION ALL
        SELECT format('ALTER ROUTINE %s OWNER TO vibey', oid::regprocedure)
          FROM pg_proc WHERE proowner = 10 AND pronamespace IN (SELECT oid FROM ours)
            AND ('pg_proc'::regclass, oid) NOT IN (SELECT classid, objid FROM parts)
        UNION ALL
        SELECT format('ALTER TYPE %s OWNER TO vibey', oid::regtype)
          FROM pg_type WHERE typowner = 10 AND typnamespace IN (SELECT oid FROM ours)
            AND (typtype IN ('d', 'e', 'r') OR typrelid IN (SELECT oid FROM pg_class WHERE relkind = 'c'))
            AND ('pg_type'::regclass, oid) NOT IN (SELECT classid, objid FROM parts)
      LOOP EXECUTE command; END LOOP;
      EXECUTE format('ALTER DATABASE %I OWNER TO vibey', current_database());
    END $$"""


def create(cluster: Path, password: str) -> None:
    """Make a cluster with the role and database `vibey`; it appears under its name in one step.

    Raises ServiceUnavailable with what initdb said when it fails.
    """
    home = cluster.parent
    owner = Owner.of(home)
    draft, secret = home / "cluster.new", home / "password"
    if draft.exists():
        shutil.rmtree(draft)
    # initdb asks for a password, and the superuser loses it at once.
    write_private(secret, secrets.token_hex(24), owner=owner.ids)
    initdb = programs(owner) / "initdb"
    try:
        made = owner.run([initdb, *INITDB, "-D", draft, "--pwfile", secret], seconds=SETUP_SECONDS)
    finally:
        secret.unlink()
    if made.returncode != 0:
        raise _setup_failed("initdb", made.stdout)
    run_sql(
        draft,
        "ALTER ROLE vibey_admin PASSWORD NULL",
        APPLICATION_ROLE.format(password=password),
        "CREATE DATABASE vibey OWNER vibey",
    )
    _mark_separated(draft, owner)
    draft.rename(cluster)


def separate_roles(cluster: Path, password: str) -> None:
    """Take the superuser's rights from the role of the application, in a cluster of an earlier version.

    `password` is that role's. What it owns stays its own, in all databases of the cluster, which nobody may serve.
    Raises ServiceUnavailable with what Postgres said; the next call then does it again.
    """
    if (cluster / SEPARATED).exists():
        return
    role = APPLICATION_ROLE.format(password=password)
    run_sql(cluster, *(step.replace("{application_role}", role) for step in SEPARATION))
    for name in re.findall(r'datname = "(.*)"\t', run_sql(cluster, DATABASES)):
        run_sql(cluster, OWNERSHIP, database=name)
    _mark_separated(cluster, Owner.of(cluster))


def run_sql(cluster: Path, *statements: str, database: str = "postgres") -> str:
    """Run statements as the superuser in a cluster nobody serves; what Postgres printed, rows in its own form.

    Raises ServiceUnavailable with what Postgres said.
    """
    owner = Owner.of(cluster)
    command: list[str | Path] = [programs(owner) / "postgres", "--single", "-D", cluster, database]
    lines = "".join(f"{' '.join(statement.split())}\n" for statement in statements)
    done = owner.run(command, stdin=lines.encode(), seconds=SETUP_SECONDS)
    # This mode ends with 0 whatever became of a statement.
    if done.returncode != 0 or b"ERROR:" in done.stdout:
        raise _setup_failed("setting it up", done.stdout)
    return done.stdout.decode(errors="replace")


def setting(cluster: Path, name: str) -> str:
    """The value that a setting of the cluster's files has for a server that is started now; empty if it has none."""
    owner = Owner.of(cluster)
    done = owner.run([programs(owner) / "postgres", "-D", cluster, "-C", name], seconds=SETUP_SECONDS)
    # Whatever Postgres warns of comes before the value.
    lines = done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else []
    return lines[-1].strip() if lines else ""


def _mark_separated(cluster: Path, owner: Owner) -> None:
    write_private(cluster / SEPARATED, "vibey is no superuser here\n", owner=owner.ids)


def postmaster(cluster: Path) -> psutil.Process | None:
    """Return the live process that serves this cluster, by its pid file and its command line; else None."""
    pid = _recorded_pid(cluster)
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        ours = is_alive(process) and str(cluster) in process.cmdline()
    except psutil.Error:
        return None
    return process if ours else None


def clear_remains(cluster: Path) -> None:
    """Make a cluster without postmaster startable: end what a killed one left, drop a misleading pid file.

    Postgres sees by itself that a process id is gone. It cannot see that the id is now another process's, and
    would refuse to start; but the file also guards against backends still at work, so these are ended first.
    """
    left = processes(lambda process: process.cwd() == str(cluster), name="postgres")
    if not end(left, signal.SIGQUIT, seconds=5) and not end(left, signal.SIGKILL, seconds=5):
        pids = ", ".join(str(process.pid) for process in left)
        raise ServiceUnavailable(
            "the embedded Postgres",
            f"processes {pids} of a killed server do not end",
            f"end them: kill -9 {pids}",
        )
    pid = _recorded_pid(cluster)
    if pid is not None and psutil.pid_exists(pid):
        (cluster / "postmaster.pid").unlink()


def _recorded_pid(cluster: Path) -> int | None:
    try:
        pid = int((cluster / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pid if pid > 0 else None


def _setup_failed(step: str, said: bytes) -> ServiceUnavailable:
    lines = [line for line in said.decode("utf-8", errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "FATAL" in line] or lines or ["no output"]
    return ServiceUnavailable(
        "the embedded Postgres",
        f"{step} failed: {telling[0].strip()}",
        "mend that, or set services.database_url to a Postgres of your own",
    )
