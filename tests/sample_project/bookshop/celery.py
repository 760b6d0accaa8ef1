"""The bookshop's Celery app, with a broker and a result backend that are its own affair."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("bookshop", include=["bookshop.tasks"])
app.conf.update(
    broker_url=os.environ["BOOKSHOP_REDIS"],
    broker_transport_options={"global_keyprefix": "bookshop:"},
    result_backend=os.environ["BOOKSHOP_REDIS"],
    result_backend_transport_options={"global_keyprefix": "bookshop:"},
    broker_connection_retry_on_startup=True,
    task_track_started=True,
    task_send_sent_event=True,
    vibey_config=os.environ.get("BOOKSHOP_VIBEY"),
)
