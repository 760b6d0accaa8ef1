"""Flower's configuration: `celery -A tasks flower --conf=config/flowerconfig.py`; change what you like here.

The last line brings in the router's pages, and the refusal to be open to others without a login.
"""

from vibey.flower import seam
from vibey.flower.defaults import (
    address,
    format_task,
    max_tasks,
    natural_time,
    persistent,
    port,
    purge_offline_workers,
    read_only,
    tasks_columns,
)

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

seam.install()
