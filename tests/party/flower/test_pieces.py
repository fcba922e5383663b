"""A message that never arrives does not block a party's next one."""

from __future__ import annotations

import inspect
import threading

import pytest
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectUnavailableError,
    pull_objects,
)
from flwr.supernode import start_client_internal

from party.flower.supernode_process import SILENCE_S, Pauses, unless_silent


class Store:
    """Pieces that a server has, and a clock that each look at it moves by a second."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0
        self.has: dict[str, float] = {}

    def clock(self) -> float:
        return self.now

    def pull(self, run: int, name: str) -> bytes:
        assert run == 7
        self.looks += 1
        self.now += 1.0
        if self.has.get(name, 1e9) > self.now:
            raise ObjectUnavailableError(name)
        return name.encode()


def fetched(store: Store, *names: str) -> dict[str, bytes]:
    """Fetch pieces as a SuperNode does, but without pauses."""
    pull = unless_silent(store.pull, store.clock)
    return pull_objects(
        list(names), lambda name: pull(7, name), max_concurrent_pulls=1, initial_backoff=0.0
    )


def test_pieces_that_come_are_waited_for() -> None:
    """Each a little before the patience with it ends, and together much later."""
    store = Store()
    names = [f"piece {at}" for at in range(5)]
    store.has = {name: (at + 1) * (SILENCE_S - 5) for at, name in enumerate(names)}
    assert fetched(store, *names) == {name: name.encode() for name in names}
    assert store.now > 4 * SILENCE_S


def test_a_piece_that_never_comes_is_given_up() -> None:
    store = Store()
    store.has = {"first": 30.0}
    with pytest.raises(ObjectPullError, match="nothing of it for 60 s"):
        fetched(store, "first", "never")
    assert 30 + SILENCE_S <= store.now <= 30 + SILENCE_S + 5


def test_one_that_is_on_its_way_is_progress() -> None:
    """A slow link: one piece takes minutes, and others are asked for in vain meanwhile."""
    store, comes = Store(), threading.Event()
    slow_began = threading.Event()

    def pull(name: str) -> bytes:
        if name == "slow":
            slow_began.set()
            assert comes.wait(10)
            return b"slow"
        return store.pull(7, name)

    pulling = unless_silent(pull, store.clock)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(pulling("slow")))
    thread.start()
    assert slow_began.wait(10)
    for _ in range(200):
        with pytest.raises(ObjectUnavailableError):
            pulling("other")
    comes.set()
    thread.join()
    assert found == [b"slow"]


def test_flowers_loop_fetches_pieces_with_what_is_replaced() -> None:
    """By this name the loop gets it, and calls it with the run and the piece."""
    loop = inspect.getsource(start_client_internal)
    assert "pull_object=pull_object," in loop
    assert "pull_object(run_id, obj_id)" in loop
    given: list[object] = []

    def pull(**kwargs: object) -> None:
        given.append(kwargs["pull_object"])

    def original(_run: int, name: str) -> bytes:
        return name.encode()

    noted = Pauses().noted(pull)
    noted(receive=lambda: None, pull_object=original)
    noted(receive=lambda: None, pull_object=original)
    (first, second) = given
    assert callable(first)
    assert first(7, "x") == b"x"
    assert len({id(original), id(first), id(second)}) == 3, "each message has its own patience"
