"""What an audit says beforehand that it finds, against simulated attacks that have to learn first.

Here the laws of both worlds are given, so that an attack costs milliseconds. A bug is said to be
missed with probability 1e-6 at most: of 200 attacks two or more miss it with 2e-8 at most.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.accounting.arrays import Floats
from pate.auditing.harness import Claim, Plan, Subject, audit, bets_of
from pate.auditing.neighbours import Pair
from tests.support.audits.power import events_of, may_be_chosen, seen_from

ATTACKS = 200
CONFIDENCE = 0.999
CLAIM = Claim(9.0, 1e-2, 0.8)
#: Chances of an answer in the two worlds. Its mu is 1, and it is frequent: it refutes the claim soon.
FREQUENT = (0.69, 0.31)
#: Its mu is 0.86 at most, so that it refutes the claim later; it is rare, and by luck seems better.
RARE = (0.06, 0.008)
#: No decision lies between the two worlds.
ALIKE = (0.5, 0.45)
#: The same answer always, and another one in the other world.
SURE = (1.0, 0.0)


def table(chances: tuple[float, float]) -> Floats:
    return np.array([chances, [1.0 - each for each in chances]])


class Laws:
    """Pairs of worlds, and runs that are drawn from their laws by a seed."""

    def __init__(self, *chances: tuple[float, float]) -> None:
        votes = np.array([5, 3])
        self.pairs = [Pair(votes, votes, None, f"pair {at}") for at in range(len(chances))]
        self.laws = {pair.name: table(each) for pair, each in zip(self.pairs, chances, strict=True)}
        self._bits = np.random.default_rng(14)

    @property
    def events(self) -> dict[str, Floats]:
        return {name: events_of(law) for name, law in self.laws.items()}

    def sample(self, pair: Pair, world: int, runs: int) -> NDArray[np.int64]:
        return self._bits.multinomial(1, self.laws[pair.name][:, world], size=runs)

    def missed(self, runs: int) -> int:
        """Return how many of the attacks do not refute the claim."""
        assert CLAIM.mu is not None
        return sum(mu <= CLAIM.mu for mu in self.mus(CLAIM, runs, CONFIDENCE))

    def mus(self, claim: Claim, runs: int, confidence: float) -> list[float]:
        """Return the bounds on mu of the attacks."""
        subject = Subject(
            name="laws", kind="mechanism", claim=claim, pairs=self.pairs, sample=self.sample,
            queries=1, step=runs,
        )  # fmt: skip
        found = (audit(subject, runs=runs, confidence=confidence) for _ in range(ATTACKS))
        return [each.mu_lower_bound or 0.0 for each in found]


@pytest.mark.parametrize(
    ("laws", "by"),
    [
        (Laws(FREQUENT, *[RARE] * 9), "pair 0"),
        (Laws(FREQUENT, *[FREQUENT] * 9), "pair 0"),
        (Laws(ALIKE, *[RARE] * 4, SURE, *[RARE] * 4), "pair 5"),
        (Laws(ALIKE, *[ALIKE] * 8, FREQUENT), "pair 9"),
    ],
    ids=["others seem better", "all alike", "one is sure", "one of many"],
)
def test_a_bug_is_missed_no_more_often_than_said(laws: Laws, by: str) -> None:
    said = seen_from("planted", laws.events, CLAIM, runs=10**7, confidence=CONFIDENCE)
    assert said.seen
    assert said.runs is not None
    assert said.pair == by
    assert laws.missed(said.runs) <= 1


def chosen_of(tables: list[Floats], runs: int, together: int = 1) -> list[int]:
    bets = bets_of([False] * len(tables))
    plan = Plan.of(runs, bets, CLAIM, CONFIDENCE)
    return may_be_chosen(tables, bets[1], plan, CLAIM, [together] * len(tables))


def test_what_may_be_chosen_are_the_pairs_that_luck_may_make_the_best() -> None:
    laws = Laws(ALIKE, FREQUENT, RARE, ALIKE, SURE)
    tables = list(laws.events.values())
    chosen = {runs: chosen_of(tables, runs) for runs in (200, 100_000)}
    assert {1, 4} <= set(chosen[200]), "of 20 runs in each world nothing is sure"
    assert chosen[100_000] == [4]
    few, many = (chosen_of(tables[:4], runs) for runs in (10_000, 1_000_000))
    assert few == [1, 2], "the rare event may seem to be the better one"
    assert many == [1]
    # Runs that come out alike are fewer than they seem.
    alike = chosen_of(tables[:4], 1_000_000, together=4096)
    assert set(alike) >= {1, 2}


@pytest.mark.parametrize("apart", [[False], [False] * 5, [False] * 3 + [True] * 2, [False, True]])
def test_all_bets_together_spend_the_doubt_once(apart: list[bool]) -> None:
    bets = bets_of(apart)
    assert bets[0] == [0]
    assert sorted(itertools.chain(*bets)) == list(range(len(apart)))
    assert all(len({apart[at] for at in among}) == 1 for among in bets)
    for claim, bounds in ((CLAIM, 2), (Claim(1.0, 1e-2), 1)):
        plan = Plan.of(1000, bets, claim, CONFIDENCE)
        assert len(plan.doubts) == len(plan.counting) == len(bets)
        assert bounds * sum(plan.doubts) <= 1.0 - CONFIDENCE
        assert bounds * sum(plan.doubts) == pytest.approx(1.0 - CONFIDENCE)


def test_two_bets_on_a_claim_that_is_true_refute_it_as_seldom_as_said() -> None:
    """The claim is exactly true of every pair. False alarm of the test: 2e-7, by the binomial law.

    Each attack errs with 0.5 at most, by the confidence; 200 attacks err 137 times with 1e-7.
    """
    from scipy import stats

    laws = Laws(*[(0.7, 0.3)] * 3)
    exact = Claim(9.0, 1e-2, 2 * float(stats.norm.ppf(0.7)))
    assert exact.mu is not None
    wrong = sum(mu > exact.mu for mu in laws.mus(exact, 600, 0.5))
    assert stats.binom.sf(136, ATTACKS, 0.5) <= 1e-6
    assert wrong <= 136
