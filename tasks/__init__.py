"""The Celery application and its thin tasks: `celery -A tasks worker|beat|flower`.

Importing this package defines the application and registers the tasks; settings are read, and the embedded
servers started if none are configured, when Celery first asks for its configuration, not before.
"""

from tasks.app import app
from tasks.bodies import build, canary, enqueue, measure, route, tick

__all__ = ["app", "build", "canary", "enqueue", "measure", "route", "tick"]
