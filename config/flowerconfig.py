"""Flower's configuration: `celery -A vibey flower --conf=config/flowerconfig.py`.

Set what you like below the imports, as `max_tasks = 50_000`. The last line brings in the router's pages, and the
refusal to be open to others without a login.
"""

from vibey.flower import seam
from vibey.flower.defaults import *  # noqa: F403  (Flower reads its options off this file)

seam.install()
