"""The short top level of a checkout: `celery -A tasks …` is `celery -A vibey …`. It is not installed."""

from vibey.celery import app

__all__ = ["app"]
