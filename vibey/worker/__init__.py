"""Celery's worker side: the application, what happens when a worker starts and stops, and beat's scheduler."""
