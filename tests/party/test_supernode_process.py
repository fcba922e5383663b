"""The pauses of a SuperNode: short while messages come, Flower's own otherwise."""

from __future__ import annotations

import inspect
import re
import sys
import time

from flwr.supernode.start_client_internal import start_client_internal

from party.supernode_process import SLOW_S, Pauses


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_flowers_loop_has_what_is_replaced() -> None:
    loop = sys.modules[start_client_internal.__module__]
    source = inspect.getsource(start_client_internal)
    assert re.search(r"_pull_and_store_message\(", source)
    assert re.search(rf"time\.sleep\({SLOW_S}\)", source)
    assert vars(loop)["time"] is time
    assert callable(vars(loop)["_pull_and_store_message"])


def test_pauses_are_short_after_a_message_and_for_a_while() -> None:
    clock = Clock()
    pauses = Pauses(lambda: clock.now, clock.sleep)
    answers = iter([None, 7, None])
    pull = pauses.noted(lambda **_: next(answers))
    assert pull(state=1) is None
    pauses.sleep(SLOW_S)
    assert pull() == 7
    pauses.sleep(SLOW_S)
    assert pull() is None
    pauses.sleep(SLOW_S)
    clock.now += 1000
    pauses.sleep(SLOW_S)
    assert clock.slept == [3, 0.5, 0.5, 3]


def test_other_pauses_are_not_touched() -> None:
    clock = Clock()
    pauses = Pauses(lambda: clock.now, clock.sleep)
    pauses.noted(lambda: 7)()
    pauses.sleep(0.1)
    assert clock.slept == [0.1]
    assert pauses.monotonic is time.monotonic
