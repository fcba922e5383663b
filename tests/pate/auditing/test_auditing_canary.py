"""Audits of one run, and what an audit says beforehand that it finds."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.optimize import linprog

from pate.accounting.arrays import Floats
from pate.auditing.harness import Claim, Plan, Subject, audit, bets_of
from pate.auditing.intervals import canary_lower_bound, guess_from_labels, p_value
from pate.auditing.neighbours import Pair
from pate.errors import AccountingError, UsageError
from pate.mechanisms import GNMax
from simulation.audit import canaries
from simulation.audit.canaries import Planting, audit_canaries
from simulation.datasets import digits
from tests.support.audits import bugs
from tests.support.audits.bugs import Bug
from tests.support.audits.planting import plant
from tests.support.audits.power import events_of, may_be_chosen, seen_from
from tests.support.needs import others_slow


def success(epsilon: float) -> float:
    return 1 / (1 + math.exp(-epsilon))


def worst_code(canaries: int, right: int, epsilon: float, delta: float) -> float:
    """The largest P[W >= right] of any (epsilon, delta)-DP code, by a linear programme.

    Its unknowns are the chances of each pattern of right guesses, and the excess of each pattern
    over exp(epsilon) times the one where canary i is guessed otherwise.
    """
    patterns = 2**canaries
    width = patterns * (1 + canaries)
    value = np.zeros(width)
    value[:patterns] = [-(pattern.bit_count() >= right) for pattern in range(patterns)]
    rows, limits = [], []
    for i in range(canaries):
        excess = patterns * (1 + i)
        for pattern in range(patterns):
            row = np.zeros(width)
            row[pattern], row[pattern ^ (1 << i)] = 1.0, -math.exp(epsilon)
            row[excess + pattern] = -1.0
            rows.append(row)
            limits.append(0.0)
        row = np.zeros(width)
        row[excess : excess + patterns] = 1.0
        rows.append(row)
        limits.append(delta)
    whole = np.zeros((1, width))
    whole[0, :patterns] = 1.0
    solved = linprog(value, A_ub=np.array(rows), b_ub=limits, A_eq=whole, b_eq=[1.0])
    assert solved.success
    return -float(solved.fun)


class TestTheorem:
    @pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.5])
    @pytest.mark.parametrize("delta", [0.0, 1e-3, 0.02])
    @pytest.mark.parametrize("canaries", [1, 2, 3, 4])
    def test_it_is_what_the_worst_code_reaches(
        self, canaries: int, delta: float, epsilon: float
    ) -> None:
        for right in range(1, canaries + 1):
            exact = worst_code(canaries, right, epsilon, delta)
            bound = p_value(right, canaries, canaries, epsilon, delta)
            assert bound == pytest.approx(exact, rel=1e-7)
            assert bound >= exact * (1 - 1e-9)

    def test_without_delta_it_is_the_binomial_tail(self) -> None:
        from scipy import stats

        for right, guesses, epsilon in ((1, 1, 0.0), (60, 100, 0.2), (400, 500, 1.0), (3, 9, 5.0)):
            tail = stats.binom.sf(right - 1, guesses, success(epsilon))
            assert p_value(right, guesses, 700, epsilon, 0.0) == pytest.approx(tail, rel=1e-7)
            assert p_value(right, guesses, 700, epsilon, 0.0) >= tail

    def test_delta_by_hand(self) -> None:
        # Two of two right, fair coins: 1/4 + 2 delta max(1/4 * 1/4 / (1/2), 1/4 * 3/4 / (2/4)).
        assert p_value(2, 2, 2, 0.0, 0.01) == pytest.approx(0.25 + 0.02 * 0.375, rel=1e-7)
        # Canaries without a guess have a delta too.
        assert p_value(2, 2, 6, 0.0, 0.01) == pytest.approx(0.25 + 0.06 * 0.375, rel=1e-7)

    @given(
        st.integers(1, 3000), st.floats(0, 1), st.floats(0, 30),
        st.sampled_from([0.0, 1e-300, 1e-9, 1e-5, 0.1]),
    )  # fmt: skip
    def test_it_is_a_probability_whatever_the_numbers(
        self, guesses: int, share: float, epsilon: float, delta: float
    ) -> None:
        from scipy import stats

        right = round(share * guesses)
        bound = p_value(right, guesses, guesses, epsilon, delta)
        assert 0.0 <= bound <= 1.0
        assert bound >= stats.binom.sf(right - 1, guesses, success(epsilon)) * (1 - 1e-9)
        assert bound <= p_value(right, guesses, guesses, epsilon, 2 * delta)
        assert bound <= p_value(right, guesses, guesses + 1, epsilon, delta)
        assert p_value(0, guesses, guesses, epsilon, delta) == 1.0

    @pytest.mark.parametrize(
        ("right", "guesses", "canaries", "epsilon", "delta"),
        [
            (-1, 5, 5, 1.0, 0.1), (6, 5, 5, 1.0, 0.1), (3, 5, 4, 1.0, 0.1), (0, 0, 5, 1.0, 0.1),
            (3, 5, 5, -1.0, 0.1), (3, 5, 5, math.nan, 0.1), (3, 5, 5, math.inf, 0.1),
            (3, 5, 5, 1.0, -0.1), (3, 5, 5, 1.0, 1.0), (3, 5, 5, 1.0, math.nan),
        ],
    )  # fmt: skip
    def test_what_cannot_be_is_refused(
        self, right: int, guesses: int, canaries: int, epsilon: float, delta: float
    ) -> None:
        with pytest.raises(AccountingError):
            p_value(right, guesses, canaries, epsilon, delta)


class TestLowerBound:
    @pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.0, 3.0])
    @pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
    def test_randomised_response_is_accused_no_more_often_than_said(
        self, confidence: float, epsilon: float
    ) -> None:
        """Randomised response attains epsilon, and W is binomial."""
        from scipy import stats

        mass = stats.binom.pmf(np.arange(81), 80, success(epsilon))
        bounds = [canary_lower_bound(right, 80, 80, 0.0, confidence) for right in range(81)]
        assert bounds == sorted(bounds)
        wrong = sum(p for p, bound in zip(mass, bounds, strict=True) if bound > epsilon)
        assert wrong <= 1 - confidence
        # Not far from it either: one more right guess would be too many.
        least = next((right for right, bound in enumerate(bounds) if bound > epsilon), 81)
        assert stats.binom.sf(least - 2, 80, success(epsilon)) > 1 - confidence

    @pytest.mark.parametrize("cut", [40, 55, 60])
    def test_the_worst_code_with_delta_is_accused_no_more_often_than_said(self, cut: int) -> None:
        """With some chance it is randomised response that is lucky: at least ``cut`` right of 80."""
        from scipy import stats

        epsilon, delta, coins = 0.4, 2e-3, np.arange(81)
        mass = stats.binom.pmf(coins, 80, success(epsilon))
        tail = mass[cut:].sum()
        lucky = 80 * delta * tail / (cut * mass[cut])
        mass = (1 - lucky) * mass + lucky * np.where(coins >= cut, mass / tail, 0.0)
        for confidence in (0.8, 0.95, 0.99):
            bounds = np.array(
                [canary_lower_bound(right, 80, 80, delta, confidence) for right in range(81)]
            )
            assert mass[bounds > epsilon].sum() <= 1 - confidence

    def test_it_is_the_last_epsilon_that_is_refuted(self) -> None:
        for right, guesses, delta in ((60, 60, 0.0), (90, 100, 1e-5), (700, 1000, 1e-7)):
            bound = canary_lower_bound(right, guesses, guesses, delta, 0.95)
            assert bound > 0.5
            assert p_value(right, guesses, guesses, bound, delta) <= 0.05
            assert p_value(right, guesses, guesses, bound * 1.00001, delta) > 0.05
        # All of 60 right: the 60th root of 5 %.
        q = 0.05 ** (1 / 60)
        everything = canary_lower_bound(60, 60, 60, 0.0, 0.95)
        assert everything == pytest.approx(math.log(q / (1 - q)), rel=1e-5)

    def test_mere_luck_says_nothing(self) -> None:
        assert canary_lower_bound(56, 100, 100, 1e-5, 0.95) == 0.0
        assert canary_lower_bound(1, 1, 100, 1e-5, 0.95) == 0.0
        # A delta that may explain everything leaves nothing for epsilon.
        assert canary_lower_bound(100, 100, 100, 0.2, 0.95) == 0.0


class TestGuesses:
    def test_in_the_order_of_what_they_tell(self) -> None:
        labels, wrong = np.array([-1, 4, 7, 7, -1]), np.array([1, 2, 7, 3, 0])
        assert guess_from_labels(labels, wrong, 1).tolist() == [0, 0, 1, 0, 0]
        assert guess_from_labels(labels, wrong, 3).tolist() == [0, -1, 1, -1, 0]
        assert guess_from_labels(labels, wrong, 5).tolist() == [1, -1, 1, -1, 1]

    @given(
        hnp.arrays(np.int64, 12, elements=st.integers(-1, 3)),
        hnp.arrays(np.int64, 12, elements=st.integers(0, 3)),
        st.integers(1, 12),
    )
    def test_their_number_tells_nothing(
        self, labels: NDArray[np.int64], wrong: NDArray[np.int64], guesses: int
    ) -> None:
        made = guess_from_labels(labels, wrong, guesses)
        assert np.abs(made).sum() == guesses
        assert set(made.tolist()) <= {-1, 0, 1}

    @pytest.mark.parametrize("guesses", [0, 4])
    def test_impossible_numbers_are_refused(self, guesses: int) -> None:
        with pytest.raises(AccountingError):
            guess_from_labels(np.zeros(3, np.int64), np.ones(3, np.int64), guesses)


ONE_TEACHER = Planting(
    aggregator="gnmax", canaries=100, guesses=100, parties=1, teachers=1, delta=1e-5,
    confidence=0.999, parameters=(("sigma2", Fraction(60)),),
)  # fmt: skip


@pytest.fixture
def fewer_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for a teacher to know them, and a sixth of its work."""
    some = digits().take(range(800))
    monkeypatch.setattr(canaries, "digits", lambda: some)


@pytest.mark.usefixtures("fewer_digits")
@pytest.mark.parametrize(
    "bug",
    others_slow([bugs.NO_NOISE, bugs.ONE_DRAW], lambda bug: bug is bugs.ONE_DRAW),
    ids=lambda each: each.name,
)
def test_a_bug_that_was_said_to_be_seen_is(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its one teacher learned by heart comes out again: 100 of 100 guesses are right.

    85 right would do. The teacher repeats planted labels, and answers another query with one
    particular wrong label in less than 1 of 50 cases, so the chance to miss that is below 1e-10.
    """
    plant(monkeypatch, bug, GNMax(Fraction(60), 1), counted=False)
    audit = audit_canaries(ONE_TEACHER)
    assert canary_lower_bound(85, 100, 100, 1e-5, 0.999) > audit.claimed > 0.5
    assert audit.lower_bound > audit.claimed
    assert not audit.holds


@pytest.mark.usefixtures("fewer_digits")
@pytest.mark.parametrize(
    "planting",
    [
        replace(ONE_TEACHER, parties=3),
        Planting("confident-gnmax", 60, 30, 6, 5, 1e-5, 0.999),
        Planting("lnmax", 60, 30, 6, 5, 1e-5, 0.999),
    ],
    ids=["three teachers", "confident", "lnmax"],
)
def test_an_honest_campaign_stands(planting: Planting) -> None:
    """A false alarm needs more than three quarters of the guesses right: far below 1e-7."""
    from scipy import stats

    told: list[tuple[int, int]] = []
    audit = audit_canaries(planting, progress=lambda *each: told.append(each))
    assert audit.holds
    guesses = planting.guesses
    enough = next(
        right
        for right in range(guesses + 1)
        if canary_lower_bound(right, guesses, planting.canaries, 1e-5, 0.999) > audit.claimed
        or right == guesses
    )
    assert stats.binom.sf(enough - 1, guesses, 0.5) < 1e-7
    assert told[-1] == (planting.parties, planting.parties)
    assert (audit.unit, audit.observer, audit.kind) == ("patient", "public", "canary")


@pytest.mark.parametrize(
    "changes",
    [
        {"aggregator": "interactive-gnmax"}, {"guesses": 0}, {"guesses": 101}, {"copies": 2},
        {"copies": 0},
    ],
)  # fmt: skip
def test_a_senseless_planting_cannot_be_built(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        replace(ONE_TEACHER, **changes)  # type: ignore[arg-type]


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
        """Return how many of 40 attacks do not refute the claim."""
        assert CLAIM.mu is not None
        return sum(mu <= CLAIM.mu for mu in self.mus(40, CLAIM, runs, CONFIDENCE))

    def mus(self, attacks: int, claim: Claim, runs: int, confidence: float) -> list[float]:
        """Return the bounds on mu of the attacks."""
        subject = Subject(
            name="laws", kind="mechanism", claim=claim, pairs=self.pairs, sample=self.sample,
            queries=1, step=runs,
        )  # fmt: skip
        found = (audit(subject, runs=runs, confidence=confidence) for _ in range(attacks))
        return [each.mu_lower_bound or 0.0 for each in found]


@pytest.mark.parametrize(
    ("laws", "by"),
    [
        pytest.param(Laws(FREQUENT, *[RARE] * 9), "pair 0", id="others seem better"),
        pytest.param(
            Laws(FREQUENT, *[FREQUENT] * 9), "pair 0", id="all alike", marks=pytest.mark.slow
        ),
        pytest.param(Laws(ALIKE, *[RARE] * 4, SURE, *[RARE] * 4), "pair 5", id="one is sure"),
        pytest.param(
            Laws(ALIKE, *[ALIKE] * 8, FREQUENT), "pair 9", id="one of many", marks=pytest.mark.slow
        ),
    ],
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
    """The claim is exactly true of every pair. A fixed experiment: two of 100 attacks err.

    11 err if each bet has all of the doubt, 15 if epsilon and mu have.
    """
    from scipy import stats

    laws = Laws(*[(0.7, 0.3)] * 3)
    exact = Claim(9.0, 1e-2, 2 * float(stats.norm.ppf(0.7)))
    assert exact.mu is not None
    assert sum(mu > exact.mu for mu in laws.mus(100, exact, 600, 0.5)) <= 6
