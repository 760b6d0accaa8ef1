"""Marks: what every process of a run carries in its environment, to be found by when all else is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Marks:
    """Whose process this is. `installation` keeps two installations on one host from judging each other."""

    installation: str
    job_id: int
    run_id: int
    token: int

    def variables(self) -> dict[str, str]:
        """The marks as environment variables."""
        return {
            "VIBEY_INSTALLATION": self.installation,
            "VIBEY_JOB": str(self.job_id),
            "VIBEY_RUN": str(self.run_id),
            "VIBEY_TOKEN": str(self.token),
        }

    @classmethod
    def found_in(cls, variables: Mapping[str, str]) -> Marks | None:
        """The marks these variables carry; None if they are missing or not ours."""
        try:
            numbers = (int(variables[name]) for name in ("VIBEY_JOB", "VIBEY_RUN", "VIBEY_TOKEN"))
            return cls(variables["VIBEY_INSTALLATION"], *numbers)
        except (KeyError, ValueError):
            return None
