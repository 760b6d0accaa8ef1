"""Flower's configuration, for `--conf`: Vibey's options, and the router's pages beside Flower's own.

Flower runs this file when it starts. `vibey up` gives it a copy beside its own files, plain `celery -A vibey flower`
finds it where it is; `config/flowerconfig.py` is one of your own to change.
"""

from vibey.flower import seam
from vibey.flower.defaults import *  # noqa: F403  (Flower reads its options off this file)

seam.install()
