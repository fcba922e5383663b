"""A campaign of broken messages: their number, their readers, and the results."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.fuzz.guard import attempt, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fuzz.targets import Target


@dataclass
class Tally:
    """What came of the messages of one target.

    Attributes:
        outcomes: how many were taken, or refused with which error.
        slowest: seconds.
        faults: what went wrong, with the number of the message; none is the goal.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    faults: list[str] = field(default_factory=list)


def run(
    targets: Sequence[Target],
    messages: int,
    seed: int,
    progress: Callable[[str, Tally], None] = lambda *_: None,
) -> dict[str, Tally]:
    """Feed broken messages, evenly, to all targets; a message follows from seed, target and number.

    Args:
        targets: the readers.
        messages: total number.
        seed: any integer.
        progress: called after each target.
    """
    found: dict[str, Tally] = {}
    each = -(-messages // len(targets))
    with guarded():
        for target in targets:
            tally = found[f"{target.side}: {target.name}"] = Tally()
            for number in range(each):
                _feed(target, number, seed, tally)
            progress(f"{target.side}: {target.name}", tally)
    return found


def _feed(target: Target, number: int, seed: int, tally: Tally) -> None:
    feed = target.make(random.Random(f"{seed}/{target.side}/{target.name}/{number}"))  # noqa: S311
    began = time.perf_counter()
    try:
        tally.outcomes[attempt(feed)] += 1
    except Exception as error:  # noqa: BLE001 - that nothing else comes is what is tested
        tally.faults.append(f"message {number}: {type(error).__name__}: {error}")
    tally.slowest = max(tally.slowest, time.perf_counter() - began)
