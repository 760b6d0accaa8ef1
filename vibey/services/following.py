"""Following: a process that runs engines keeps its reading of its own file in step with the generation in force.

What runs an engine is never taken from Postgres. So a process that learns of another generation reads its file again,
and goes by it only for those engines whose digests agree with the generation's; for the others it says what differs,
and gives back what it was granted. A file that cannot be read leaves the reading before in use.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vibey.domain.errors import SettingsError
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

    def follow(self, generation: int | None) -> Installation:
        """The installation under this generation; the file is read again where it is another one than before."""
        is_fresh, self._is_fresh = self._is_fresh, False
        if generation == self.installation.generation:
            return self.installation
        opened = self.installation
        if not is_fresh:
            try:
                opened, self.problem = opened.reread(self._read()), ""
            except SettingsError as error:
                self.problem = f"its file cannot be read: {' '.join(str(error).split())}"
                log.error("generation %s: %s; the reading before stays in use", generation, self.problem)  # noqa: TRY400
        self.installation = opened.database.statement(lambda connection: opened.under(connection, generation))
        return self.installation

    def catch_up(self) -> Installation:
        """The installation under the generation in force by now."""
        return self.follow(self.installation.database.statement(generations.number))
