"""Flower's configuration: `celery -A tasks flower --conf=config/flowerconfig.py`; change what you like here."""

from vibey.flower.flowerconfig import (
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
