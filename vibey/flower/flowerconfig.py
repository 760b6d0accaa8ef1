"""Flower's configuration, and what brings the router's pages into it (see `vibey.flower.seam`).

Flower runs this file when it starts, after its command line was read once. `config/flowerconfig.py` is one of your own
to change, which keeps what it imports from here; `vibey up` and plain `celery -A tasks flower` use this one.
"""

import os
from typing import Any

from flower.options import default_options
from flower.utils import strtobool

from vibey.flower import seam

address = os.environ.get("FLOWER_ADDRESS") or "127.0.0.1"
port = int(os.environ.get("FLOWER_PORT") or "5555")
read_only = bool(strtobool(os.environ.get("FLOWER_READ_ONLY") or "true"))
persistent = False
max_tasks = 10_000
purge_offline_workers = 300
natural_time = False
tasks_columns = "name,uuid,state,args,received,started,runtime,worker"


def format_task(task: Any) -> Any:  # noqa: ANN401  Flower's own object
    """Show the words of a build, `job 7 · demo · ollama · run 9`, instead of the run's number and token."""
    task.args = (task.args or "").strip("()',")
    return task


seam.install()
seam.guard(default_options)
