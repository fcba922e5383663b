"""A campaign of broken messages: their number, their readers, and the results."""

from __future__ import annotations

import logging
import multiprocessing
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from tests.fuzz.guard import attempt, guarded


@dataclass(frozen=True)
class Target:
    """One reader of foreign bytes."""

    name: str  # for people
    side: str  # who reads: party, server or student
    # makes one broken message and returns what feeds it
    make: Callable[[random.Random], Callable[[], object]]


@dataclass
class Tally:
    """What came of the messages of one target."""

    # how many were taken, or refused with which error
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0  # seconds
    # what went wrong, with the number of the message; none is the goal
    faults: list[str] = field(default_factory=list)


def run(
    targets: Sequence[Target],  # the readers
    messages: int,  # total number
    seed: int,  # any integer
    progress: Callable[[str, Tally], None] = lambda *_: None,  # called after each target
) -> dict[str, Tally]:
    """Feed broken messages, evenly, to all targets; a message follows from seed, target and number."""
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


def run_apart(
    # a function of a module, which makes the targets in the child
    make: Callable[[Path], Sequence[Target]],
    folder: Path,  # for their files
    messages: int,  # total number
    seed: int,  # any integer
    progress: Callable[[str, Tally], None] = lambda *_: None,  # called after each target
) -> dict[str, Tally]:
    """Feed as :func:`run` does, in a child process: what ends it is a fault, and another goes on."""
    context = multiprocessing.get_context("spawn")
    found: dict[str, Tally] = {}
    at = (0, 0)
    while True:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(
            target=_feed_all, args=(make, folder, messages, seed, at, theirs), daemon=True
        )
        child.start()
        theirs.close()
        name = ""
        try:
            while True:
                number, name, told = ours.recv()
                tally = found.setdefault(name, Tally())
                if told is None:
                    at = number
                else:
                    tally.outcomes += told.outcomes
                    tally.faults += told.faults
                    tally.slowest = max(tally.slowest, told.slowest)
        except EOFError:
            child.join()
        finally:
            ours.close()
        code = child.exitcode or 0
        if code == 0:
            break
        assert name, f"the child ended with {code} before its first message"
        ended = signal.Signals(-code).name if code < 0 else code
        found[name].faults.append(f"message {at[1]}: the process ended with {ended}")
        at = (at[0], at[1] + 1)
    for name, tally in found.items():
        progress(name, tally)
    return found


def _feed_all(
    make: Callable[[Path], Sequence[Target]],
    folder: Path,
    messages: int,
    seed: int,
    first: tuple[int, int],
    pipe: Connection,
) -> None:
    """Feed from the first on, a target's place and a message's number; say which before, and how after."""
    logging.disable(logging.CRITICAL)
    targets = make(folder)
    each = -(-messages // len(targets))
    for target in targets:  # what a reader imports counts for no message
        _feed(target, -1, seed, Tally())
    with guarded():
        for at, target in enumerate(targets):
            for number in range(each):
                if (at, number) >= first:
                    name, tally = f"{target.side}: {target.name}", Tally()
                    pipe.send(((at, number), name, None))
                    _feed(target, number, seed, tally)
                    pipe.send(((at, number), name, tally))
    pipe.close()
