"""Flower's options as Vibey sets them, for its configuration files: on loopback, reading only, remembering little.

The command line changes them, `--port=5556`. Flower's variables do not, but for those of its login.

Every build task carries its job, project, engine and run in place of its arguments, so no table of Flower's needs the
database.
"""

from typing import Any

__all__ = [
    "address",
    "format_task",
    "max_tasks",
    "natural_time",
    "persistent",
    "port",
    "purge_offline_workers",
    "read_only",
    "tasks_columns",
]

address = "127.0.0.1"
port = 5555
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
