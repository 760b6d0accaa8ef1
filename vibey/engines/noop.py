"""Kind `noop`: succeeds at once and starts nothing, so that what a job still costs is the router's own."""

from __future__ import annotations

from vibey.domain.outcome import Success
from vibey.engines.contract import Context, Description, EngineConfig, Health, Job, RunSteps

_DONE = Success()


class NoopEngine:
    """An adapter without an engine behind it."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config

    def describe(self) -> Description:
        """What the operator declared."""
        return Description.declared(self._config)

    def doctor(self) -> Health:
        """Always well."""
        return Health(installed=True)

    def run(self, job: Job, context: Context) -> RunSteps:  # noqa: ARG002  (it looks at neither, which is its point)
        """Succeed."""
        yield from ()
        return _DONE
