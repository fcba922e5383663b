"""Neighbour votes with geometric noise over the protocol: shares, the party's own figure, terms."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from party.policy.policy import Policy
from pate.accounting.filters import Delta
from pate.mechanisms import DistributedNeighbour, Neighbour
from protos.terms import bits_of
from tests.party.voting.test_neighbour_voter import (
    HELD,
    MOST,
    NAMES,
    ROWS,
    SIZE,
    Hospitals,
    Site,
    nearest_votes,
)
from tests.support.campaign_messages import CampaignMessage, campaign_message, terms_message

SCALE = Fraction(20)
CENTRAL = Neighbour(3, votes_per_unit=1, scale=SCALE)
SHARES = DistributedNeighbour(3, honest=2, votes_per_unit=1, scale=SCALE)
PURE: dict[str, Any] = {"composition": "pure", "cap": "1/10", "epsilon": 0.1, "delta": 0.0}
LOOSE = Policy.default(loopback=True)


@pytest.fixture
def a(tmp_path: Path) -> Site:
    return Site(tmp_path / "a")


class PureHospitals(Hospitals):
    """The four parties, in campaigns of pure epsilon 0.1."""

    def pure(self, id_: bytes = b"c" * 16) -> CampaignMessage:
        members = [(p.name, bytes.fromhex(p.identity), MOST) for p in self.roster]
        return campaign_message(
            self.sites["a"].public,
            terms_message(members, [SHARES], "pure", "1/10"),
            id=id_, aggregator="neighbour", most_votes=MOST, classes=HELD.classes,
            aggregation="masked", min_parties=3, colluders=1, noise="distributed",
            epsilon=0.1, delta=0.0,
        )  # fmt: skip


@pytest.fixture
def hospitals(tmp_path: Path) -> PureHospitals:
    return PureHospitals(tmp_path)


# --- shares in masked sums ----------------------------------------------------------------------


#: Who answers each of the five steps: all, or all but one that stays away before its votes leave.
ATTENDANCE = [[NAMES] * 5, [NAMES] * 2 + [NAMES[:3]] * 3]


@pytest.mark.parametrize("steps", ATTENDANCE, ids=["all", "one stays away"])
def test_a_noisy_sum_of_those_who_stay(
    hospitals: PureHospitals, steps: Sequence[Sequence[str]]
) -> None:
    campaign = hospitals.pure()
    found = hospitals.run(hospitals.aggregation(campaign), steps)
    there = [at for at in range(SIZE) if NAMES[at % 4] in steps[-1]]
    apart = found - nearest_votes(HELD.take(there), ROWS)
    # Eight counts of scale 20 are all as they were with a chance below 1e-12.
    assert np.abs(apart).max() > 0
    # Beyond this with probability 2^-60.
    assert np.abs(apart).max() <= SHARES.shares.reach(len(steps[-1]), apart.size)
    for name in steps[-1]:
        figure = hospitals.sites[name].site.ledger.cumulative_epsilon(Delta(1e-5))
        assert (figure.epsilon, figure.observer) == (0.1, "server")


def test_after_a_restart_a_party_sends_the_same_noise(hospitals: PureHospitals) -> None:
    campaign = hospitals.pure()
    first = hospitals.run(hospitals.aggregation(campaign), [NAMES] * 5)
    for name in NAMES:
        hospitals.start(name)
    again = hospitals.run(hospitals.aggregation(campaign), [NAMES] * 5)
    np.testing.assert_array_equal(again, first)
    assert hospitals.sites["a"].epsilon() == 0.1


def test_the_integers_of_a_sum_have_room_for_the_noise(hospitals: PureHospitals) -> None:
    campaign = hospitals.pure()
    assert bits_of(campaign.offer(), len(ROWS)) == 16
    reach = SHARES.shares.reach(len(NAMES), len(ROWS) * 2)
    assert MOST * len(NAMES) + reach < 2**15
    wide = DistributedNeighbour(3, honest=2, votes_per_unit=1, scale=Fraction(600))
    assert campaign.terms is not None
    campaign.terms.mechanisms = [wide]
    assert bits_of(campaign.offer(), len(ROWS)) == 32


# --- the party's own figure ----------------------------------------------------------------------


def test_the_own_figure_is_the_pure_epsilon_and_adds_up(a: Site) -> None:
    a.votes(a.campaign([CENTRAL], **PURE))
    a.votes(a.campaign([CENTRAL], **PURE))
    assert a.epsilon() == 0.1
    a.votes(a.campaign([CENTRAL], id=b"2" * 16, **PURE), rows=(0, 3, 4, 10))
    assert a.epsilon() == 0.2
    # Gaussian noise has no pure epsilon: rho adds up, 1/200 each, and that of the other.
    before = a.epsilon()
    a.votes(a.campaign(id=b"3" * 16), rows=(0, 3, 4, 11))
    assert before < a.epsilon() < 1
    # What was answered is in the ledger, and read back.
    again = Site(a.home)
    assert again.epsilon() == a.epsilon()


def test_a_cap_above_what_is_announced_gets_no_votes(a: Site) -> None:
    a.refuses(a.ask(a.campaign([CENTRAL], **PURE | {"cap": "1/9"})), "RefusedError", "")
    assert a.answered == 0
