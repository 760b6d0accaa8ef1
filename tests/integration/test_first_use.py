"""The first message of a process may be sent by several of its threads at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

FIRST = """
import threading
from vibey.publisher import celery_settings, make_app

def first():
    gate.wait()
    settings = celery_settings("redis://127.0.0.1:1/0", "p:", ["a"], run_timeout_seconds=60, tick_seconds=1)
    made.append(make_app("first", settings))

gate, made = threading.Barrier(8), []
threads = [threading.Thread(target=first) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(made))
"""


@pytest.mark.parametrize("turn", range(4))
def test_celery_is_imported_by_many_threads_at_once(turn: int) -> None:  # noqa: ARG001  chance has to strike once in four
    """Celery puts another module in its own place while it is imported; no thread may be left with the first."""
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, check=True, text=True)
    assert (done.stdout, done.stderr) == ("8\n", "")
