"""Run supervisord so that it outlives a full disk.

Its logs, and those of the programs it runs, are files under the data folder. What it cannot write there is lost, but
it goes on: supervisord itself reports such a failure on a stream that is on the same disk, and ends by it.
"""

from __future__ import annotations

import sys

from supervisor import loggers, supervisord
from typing_extensions import override


class _ForgivingFileHandler(loggers.RotatingFileHandler):  # type: ignore[misc]
    """A log that loses what it cannot write, and is opened again when its file was lost as it was rotated."""

    @override
    def emit(self, record: object) -> None:
        """Write a record, or nothing."""
        try:
            if self.stream.closed:
                self.closed = True
                self.reopen()
            super().emit(record)
        except (OSError, ValueError):
            return

    @override
    def handleError(self) -> None:
        """Say nothing: there is nowhere to say it."""


def main() -> None:
    """Run supervisord with the arguments of the command line."""
    loggers.RotatingFileHandler = _ForgivingFileHandler
    supervisord.main(args=sys.argv[1:])


if __name__ == "__main__":
    main()
