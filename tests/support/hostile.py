"""The shell of a person who works on another Celery project: variables and modules that could steer ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Modules that Celery looks for by itself, or that its users have by its documentation's advice.
FIRST_STEPS = """
from celery import Celery
from vibey import RoutedTask

app = Celery("tasks", broker={broker!r}, backend={broker!r})
app.conf.update(
    vibey_config={config!r},
    broker_transport_options={{"global_keyprefix": "theirs:"}},
    result_backend_transport_options={{"global_keyprefix": "theirs:"}},
)


@app.task(base=RoutedTask)
def add(x, y):
    return x + y
"""
BROKEN = "raise RuntimeError('a module of another project was imported')\n"


def hostile_variables(broker: str) -> dict[str, str]:
    """Every variable by which Celery, its command line or Flower can be told something, told something else."""
    addresses = (
        "BROKER_URL",
        "CELERY_BROKER",
        "CELERY_BROKER_READ_URL",
        "CELERY_BROKER_URL",
        "CELERY_BROKER_WRITE_URL",
        "CELERY_RESULT_BACKEND",
        "RESULT_BACKEND",
    )
    return dict.fromkeys(addresses, broker) | {
        "APP": "theirs",
        "CELERY_APP": "theirs",
        "CELERY_BEAT_MAX_INTERVAL": "3600",
        "CELERY_BEAT_SCHEDULE": "/nowhere/schedule",
        "CELERY_BEAT_SCHEDULER": "theirs:Scheduler",
        "CELERY_CONFIG": "celeryconfig",
        "CELERY_CONFIG_MODULE": "celeryconfig",
        "CELERY_LOADER": "theirs:Loader",
        "CELERY_NO_COLOR": "please",
        "CELERY_QUIET": "please",
        "CELERY_VERSION": "5",
        "CELERY_WORKDIR": "/",
        "CELERY_WORKER_AUTOSCALE": "1,1",
        "CELERY_WORKER_CONCURRENCY": "1",
        "CELERY_WORKER_HOSTNAME": "theirs",
        "CELERY_WORKER_MAX_TASKS_PER_CHILD": "1",
        "CELERY_WORKER_POOL": "solo",
        "CELERY_WORKER_QUEUES": "theirs",
        "CONFIG_MODULE": "celeryconfig",
        "DJANGO_SETTINGS_MODULE": "theirs.settings",
        "FLOWER_ADDRESS": "0.0.0.0",  # noqa: S104  that is the point
        "FLOWER_CONF": "/nowhere/flowerconfig.py",
        "FLOWER_PORT": "tcp://192.0.2.1:5555",  # as Kubernetes sets it for a service named flower
        "FLOWER_UNAUTHENTICATED_API": "true",
        "FLOWER_URL_PREFIX": "theirs",
        "LOADER": "theirs:Loader",
        "NO_COLOR": "please",
        "REMAP_SIGTERM": "SIGQUIT",
        "SKIP_CHECKS": "please",
    }


def write_first_steps(folder: Path, broker: str, config: Path) -> None:
    """Celery's own first-steps project, its module `tasks`, and a configuration module that must not be imported."""
    (folder / "tasks.py").write_text(FIRST_STEPS.format(broker=broker, config=str(config)), encoding="utf-8")
    (folder / "celeryconfig.py").write_text(BROKEN, encoding="utf-8")
