"""Owner: who acts, as the ledger's events and the generations say."""

from __future__ import annotations

import getpass
import os
import socket


def owner() -> str:
    """Whose process this is, and where: `user@host`."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # KeyError: before Python 3.13, for a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
