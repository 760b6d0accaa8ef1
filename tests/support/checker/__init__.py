"""What must hold of an installation after any fault, judged only by its tables and by what the jobs' programs wrote.

Nothing of Vibey's own code is used here: a rule that Vibey has wrong is not copied. `violations` names every breach,
each led by its invariant; an empty list is the proof. It is meant for a fleet at rest: every job ended, or queued for a
reason that can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.checker import ledger, replay, waiting, work
from tests.support.checker.facts import Facts, Work, most_at_once, works
from tests.support.checker.tables import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

__all__ = ["CHECKS", "Facts", "Work", "judged", "most_at_once", "violations", "works"]


def _drawn(invariant: str) -> Callable[[Facts], Iterator[str]]:
    return lambda facts: (words for told, words in replay.draws(facts) if told == invariant)


# Every invariant with what judges it beside the rules of `tables`.
CHECKS: dict[str, tuple[Callable[[Facts], Iterable[str]], ...]] = {
    "I1": (work.slots,),
    "I2": (work.overlaps, work.outlived),
    "I3": (),
    "I4": (),
    "I5": (replay.exceptions,),
    "I6": (),
    "I7": (_drawn("I7"),),
    "I8": (ledger.moves, ledger.attacks),
    "I9": (_drawn("I9"),),
    "I10": (waiting.beside_free_slots,),
    "I11": (work.leases,),
    "I12": (),
}


def violations(database_url: str, labour_log: Path) -> list[str]:
    """Every breach there is, as a sentence with its evidence."""
    return judged(Facts(database_url, labour_log))


def judged(facts: Facts) -> list[str]:
    """Every breach of every invariant by these facts."""
    return [f"{invariant}: {breach}" for invariant in CHECKS for breach in _breaches(invariant, facts)]


def _breaches(invariant: str, facts: Facts) -> Iterator[str]:
    for rule, text in RULES.get(invariant, ()):
        for row in facts.rows(text.replace("{runs}", facts.tables["runs"])):
            yield f"{rule}: {row}"
    for check in CHECKS[invariant]:
        yield from check(facts)
