"""A bookshop: plain Celery tasks, and routed ones for the work that needs an engine."""
