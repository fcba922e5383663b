"""Progress of features is reported as a percentage, only within the requesting block."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from party.voting.neighbour import NeighbourVotes
from pate.data.values import Dataset, Images
from pate.features.progress import Parts, telling, told
from pate.features.space import ImageSpace


@pytest.mark.parametrize("name", ["scattering", "gradients", "upright"])
def test_features_of_many_images_tell_how_far_they_are(name: str) -> None:
    images = Images(np.zeros((2000, 16, 16, 1), dtype=np.uint8))
    said: list[tuple[int, int]] = []
    space = ImageSpace(name, images.size)
    with telling(lambda done, total: said.append((done, total))):
        inside = space.embed(images)
    assert said[-1] == (100, 100)
    assert len(said) > 1
    before = len(said)
    np.testing.assert_array_equal(space.embed(images), inside)
    assert len(said) == before


def test_a_single_block_is_not_told() -> None:
    said: list[int] = []
    with telling(lambda done, _: said.append(done)):
        assert list(told(range(0, 10, 10))) == [0]
        assert list(told(range(0, 30, 10))) == [0, 10, 20]
    assert said == [33, 66, 100]


def test_several_parts_are_one_task_that_never_turns_back() -> None:
    """A part may have parts, and may report twice; without somebody to tell it is silent."""
    said: list[int] = []

    def work() -> None:
        parts = Parts(1, 3)
        with parts.next():
            for _ in range(2):
                list(told(range(0, 40, 10)))
        with parts.next():
            cuts = Parts(1, 1)
            with cuts.next():
                list(told(range(0, 20, 10)))
            with cuts.next():
                pass

    with telling(lambda done, total: said.append(100 * done // total)):
        work()
    work()
    assert said == [6, 12, 18, 25, 43, 62, 100]


def test_what_a_party_describes_for_one_vote_is_one_task() -> None:
    """Its public inputs, the queries and its records, in their proportion."""
    chance = np.random.default_rng(0)
    pixels = chance.integers(0, 256, (2400, 16, 16, 1)).astype(np.uint8)
    public, own = Images(pixels[:200]), Images(pixels[200:])
    records = Dataset(own, np.arange(len(own)) % 2, ("a", "b"))
    said: list[int] = []
    with telling(lambda done, _: said.append(done)):
        votes = NeighbourVotes(records, b"key")
        votes.vote(public, range(100), ("a", "b"), votes_per_patient=None, most_votes=4095)
    assert said == sorted(set(said))
    assert said[-1] == 100
    assert 8 in said  # 200 of 2,500
    assert 12 in said  # 300 of 2,500
    assert max(after - before for before, after in itertools.pairwise(said)) < 10
