"""Flower's configuration, for `--conf`; `vibey up` gives it a copy beside its own files.

Flower shows workers and tasks as Celery sees them. Slots, cap and queue are the router's: see `vibey status`. Every
build task carries its job, project, engine and run in place of its arguments, so no table here needs the database.

Flower executes this file when it starts, and an address that others can reach is refused there without a login.
"""

import ipaddress
import os
import sys
from typing import Any

LOGINS = ("basic-auth", "basic_auth", "auth", "auth-provider", "auth_provider")

address = os.environ.get("FLOWER_ADDRESS", "127.0.0.1")
port = int(os.environ.get("FLOWER_PORT", "5555"))
read_only = True
persistent = False
max_tasks = 10_000
purge_offline_workers = 300
natural_time = False
tasks_columns = "name,uuid,state,args,received,started,runtime,worker"


def format_task(task: Any) -> Any:  # noqa: ANN401  Flower's own object
    """Show the words of a build, `job 7 · demo · ollama · run 9`, instead of the run's number and token."""
    task.args = (task.args or "").strip("()',")
    return task


def is_open(where: str) -> bool:
    """Whether an address to listen on can be reached from other machines."""
    if where in {"localhost", ""} or where.startswith("/"):
        return where == ""
    try:
        return not ipaddress.ip_address(where).is_loopback
    except ValueError:
        return True


def _given(name: str) -> str | None:
    prefix = f"--{name}="
    return next((word.removeprefix(prefix) for word in sys.argv if word.startswith(prefix)), None)


def _has_login() -> bool:
    by_variable = any(os.environ.get(f"FLOWER_{name.upper()}") for name in LOGINS if "-" not in name)
    return by_variable or any(_given(name) for name in LOGINS)


_address = _given("address") or address
if "flower" in sys.argv and is_open(_address) and not _has_login():
    raise SystemExit(
        f"vibey: Flower would listen on {_address!r} without a login; keep it on 127.0.0.1, "
        "or set FLOWER_BASIC_AUTH=user:password"
    )
