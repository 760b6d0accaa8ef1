"""Following: a process that runs engines keeps its reading of its own file in step with the generation in force.

What runs an engine is never taken from Postgres. So a process that learns of another generation reads its file again,
and goes by it only for those engines whose digests agree with the generation's; for the others it says what differs,
and gives back what it was granted. A file that cannot be read leaves the reading before in use.

While an engine's digests disagree, or the file could not be read, the process also reads the file again when the file
itself has changed: a correction counts without another generation. While all agree it does not, for an edit is to
count only once it is applied.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vibey.domain.errors import SettingsError
from vibey.settings.source import file_state
from vibey.store import generations

if TYPE_CHECKING:
    from collections.abc import Callable

    from vibey.services.installation import Installation
    from vibey.settings import Settings

log = logging.getLogger("vibey.following")


class Follower:
    """This process's installation, under the generation it has read its file for."""

    def __init__(self, installation: Installation, read: Callable[[], Settings]) -> None:
        """Begin with an installation as opened; `read` reads the file again."""
        self.installation = installation
        self.problem = ""
        self._read = read
        self._is_fresh = True
        # The file's state when it was last read; unknown for the reading that the installation was opened with.
        self._state: tuple[int, ...] | None = ()

    def follow(self, generation: int | None) -> Installation:
        """The installation under this generation, with the file read again where it has to be."""
        is_fresh, self._is_fresh = self._is_fresh, False
        # Looked at before the file is read: a change in between is then noticed the next time.
        state = file_state(self.installation.file.path)
        is_corrected = self._is_in_doubt() and state != self._state
        if generation == self.installation.generation and not is_corrected:
            return self.installation
        opened, problem = (self.installation, "") if is_fresh else self._read_again()
        self.installation = opened.database.statement(lambda connection: opened.under(connection, generation))
        self.problem = problem
        if not is_fresh:
            self._state = state
        return self.installation

    def catch_up(self) -> Installation:
        """The installation under the generation in force by now."""
        return self.follow(self.installation.database.statement(generations.number))

    def _is_in_doubt(self) -> bool:
        """Whether the file could not be read, or would run an engine in another way than the generation asks."""
        return bool(self.problem or self.installation.disagreements())

    def _read_again(self) -> tuple[Installation, str]:
        """The installation with its file read again, and why it could not be read, if so."""
        try:
            return self.installation.reread(self._read()), ""
        except SettingsError as error:
            problem = f"its file cannot be read: {' '.join(str(error).split())}"
            log.error("%s; the reading before stays in use", problem)  # noqa: TRY400
            return self.installation, problem
