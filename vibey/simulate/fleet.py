"""Fleet: the engines of a simulation at the present instant, their circuits, and what is known of their sessions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vibey.domain import settlement
from vibey.domain.circuit import Circuit, OpenReason
from vibey.domain.engine import Phase, Tier, Usage
from vibey.domain.layer import DAY_MS, scheduled
from vibey.domain.outcome import CapacityKind, Failure, FailureClass
from vibey.domain.weight import decayed
from vibey.settings.facts import engine_facts, root_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.domain.engine import EngineFacts
    from vibey.domain.outcome import Outcome
    from vibey.domain.pool import Pool
    from vibey.settings import Settings
    from vibey.simulate.trace import FleetEvent

# A simulation begins on a Monday; 1970-01-05 was the first.
MONDAY_MS = 4 * DAY_MS
NONE: frozenset[str] = frozenset()
KINDS = {kind.value: kind for kind in CapacityKind}


@dataclass(slots=True)
class _Engine:
    """What befalls one engine. `failing` is how every run there ends, with the wait for its reset."""

    facts: EngineFacts
    slots: int
    up: bool
    demoted: bool = False
    busy_until_ms: int = 0
    failing: tuple[str, int | None] | None = None


class Fleet:
    """Engines and accounts; `facts` changes identity exactly when something in it changes."""

    def __init__(self, settings: Settings) -> None:
        declared = engine_facts(settings)
        self._half_life_ms = settings.engines.health_half_life_seconds * 1000
        self._recheck_ms = settings.engines.recheck_seconds * 1000
        self._poll_ms = settings.engines.slot_poll_seconds * 1000
        self._windows = settings.windows()
        self._tree = root_pool(settings, declared)
        self._engines = {each.name: _Engine(each, each.slots, each.enabled) for each in declared}
        self._circuits = {each.account: Circuit(each.account, jitter=False) for each in declared}
        self._in_use = dict.fromkeys(self._engines, 0)
        self._probes: dict[str, int] = {}
        self._layers: object = None
        self._changed = True
        self._restless = False
        self.facts: tuple[EngineFacts, ...] = declared
        self.pool: Pool = self._tree

    def happens(self, event: FleetEvent) -> None:
        """Let something happen to an engine."""
        engine = self._engines[event.engine]
        if event.event in {"up", "down"}:
            engine.up = event.event == "up"
            engine.failing = None if engine.up else engine.failing
            if engine.up:
                self._repair(engine.facts.account)
        elif event.event in {"demote", "restore"}:
            engine.demoted = event.event == "demote"
        elif event.event == "slots":
            engine.slots = event.slots
        else:
            engine.failing = (event.failure, event.resets_ms)
        self._changed = True

    def look(self, now_ms: int) -> Usage:
        """Bring facts and pool up to this instant; how full the fleet is."""
        if self.is_restless:
            facts = tuple(self._facts(each, now_ms) for each in self._engines.values())
            self.facts = self.facts if facts == self.facts else facts
            self._changed = False
            self._restless = self._any_busy() or not all(each.is_pristine for each in self._circuits.values())
        self._lay(now_ms)
        return Usage(self._in_use.copy(), frozenset(self._probes) if self._probes else NONE)

    @property
    def is_restless(self) -> bool:
        """Whether time alone may change something of the fleet."""
        return self._changed or self._restless

    def grant(self, engine: EngineFacts, run: int) -> None:
        """A run takes a slot; on a half-open account it is the probe."""
        self._in_use[engine.name] += 1
        if engine.phase is Phase.HALF_OPEN:
            self._probes[engine.account] = run

    def end(self, engine: str, run: int, outcome: Outcome, now_ms: int) -> bool:
        """A run gives its slot back and its outcome is heard; whether that was a look ahead of a known reset.

        A provider keeps its word: who asks again before the reset it has named is told the same.
        """
        held = self._engines[engine]
        self._in_use[engine] -= 1
        account = held.facts.account
        if self._probes.get(account) == run:
            del self._probes[account]
        if settlement.is_busy(outcome):
            held.busy_until_ms = now_ms + self._poll_ms
            self._changed = True
        if not settlement.concerns_circuit(outcome):
            return False
        before = self._circuits[account]
        expected = before.early_for(now_ms)
        if isinstance(outcome, Failure):
            outcome = outcome.dated(now_ms)
            if expected is not None and outcome.resets_at_ms is not None:
                outcome = replace(outcome, resets_at_ms=expected)
        elif before.is_pristine:
            return False
        widest = max(each.slots for each in self._engines.values() if each.facts.account == account)
        self._circuits[account] = settlement.feed(
            before, outcome, now_ms, self._half_life_ms, widest, recheck_ms=self._recheck_ms
        )
        self._changed = True
        return expected is not None

    def instants(self, now_ms: int) -> Iterator[int]:
        """When a probe will be due, and when a busy server is looked at again."""
        for circuit in self._circuits.values():
            if circuit.probe_at_ms is not None and circuit.probe_at_ms > now_ms:
                yield circuit.probe_at_ms
        for engine in self._engines.values():
            if engine.busy_until_ms > now_ms:
                yield engine.busy_until_ms

    def failing(self, engine: str) -> Failure | None:
        """How a run on this engine ends at once; None when it is well."""
        said = self._engines[engine].failing
        if said is None:
            return None
        kind = KINDS.get(said[0])
        failure_class = FailureClass.ENGINE if kind is None else FailureClass.CAPACITY
        return Failure(failure_class, said[0], kind, resets_in_ms=said[1] if kind is CapacityKind.WINDOW else None)

    def slots(self) -> dict[str, int]:
        """Configured slots by engine."""
        return {name: each.slots for name, each in self._engines.items()}

    def in_use(self) -> dict[str, int]:
        """Slots in use by engine."""
        return self._in_use.copy()

    def engines(self) -> list[tuple[str, str, int]]:
        """Each engine's name, tier and slots, in declared order."""
        return [(name, each.facts.tier.value, each.slots) for name, each in self._engines.items()]

    def local(self) -> dict[str, EngineFacts]:
        """The local engines that are up, with the slots they are set to, circuits aside."""
        found = (replace(each.facts, slots=each.slots) for each in self._engines.values() if each.up)
        return {each.name: each for each in found if each.tier is Tier.LOCAL}

    def _repair(self, account: str) -> None:
        """A refused login has no clock: what comes up again has been seen to by a person."""
        if self._circuits[account].open_reason is OpenReason.LOGIN_FAILED:
            self._circuits[account] = Circuit(account, jitter=False)

    def _any_busy(self) -> bool:
        return any(each.busy_until_ms for each in self._engines.values())

    def _facts(self, each: _Engine, now_ms: int) -> EngineFacts:
        circuit = self._circuits[each.facts.account]
        if each.busy_until_ms <= now_ms:
            each.busy_until_ms = 0
        return replace(
            each.facts,
            slots=circuit.slots(each.slots),
            enabled=each.up,
            phase=circuit.phase(now_ms),
            failure=decayed(circuit.failure, now_ms - circuit.failure_at_ms, self._half_life_ms),
            busy=each.busy_until_ms > 0,
            demoted=each.demoted,
        )

    def _lay(self, now_ms: int) -> None:
        if not self._windows and self._layers is not None:
            return
        layers = scheduled(self._windows, MONDAY_MS + now_ms)
        if layers != self._layers:
            self._layers = layers
            self.pool = self._tree.laden({name: each.facts.weight for name, each in self._engines.items()}, layers)
