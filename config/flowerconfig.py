"""Flower's configuration: `celery -A tasks flower --conf=config/flowerconfig.py`.

Flower shows workers and tasks as Celery sees them. Slots, cap and queue are the router's: see `vibey
status`. Every build task carries its job, project, engine and run in place of its arguments, so no table
here needs the database.
"""

import os

address = os.environ.get("FLOWER_ADDRESS", "127.0.0.1")
port = int(os.environ.get("FLOWER_PORT", "5555"))
read_only = True
persistent = False
max_tasks = 10_000
purge_offline_workers = 300
natural_time = False
tasks_columns = "name,uuid,state,args,received,started,runtime,worker"


def format_task(task):  # noqa: ANN001, ANN201  Flower passes its own object
    """Show the words of a build, `job 7 · demo · ollama · run 9`, instead of the run's number and token."""
    task.args = (task.args or "").strip("()',")
    return task
