"""Audits of mechanisms: each bound against exact probabilities, and what ships stands.

Every shipped mechanism is audited at a confidence of 1 - 1e-8, so that all audits of all tests
together raise a false alarm with probability below 1e-6. Broken ones: :mod:`tests.simulation.audit`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from pate.accounting.composition import Gdp, Zcdp
from pate.accounting.events import GaussianMax, GaussianThreshold
from pate.auditing import harness
from pate.auditing import mechanism as auditing
from pate.auditing.harness import Audit, Claim, Event, Sample, Subject, audit, learn
from pate.auditing.intervals import epsilon_lower_bound, least_chance, mu_lower_bound
from pate.auditing.mechanism import audit_mechanism, claimed, differing, kind_of, run_mechanism
from pate.auditing.neighbours import CLASSES, Pair, distinguishing_pairs
from pate.errors import AccountingError, UsageError
from pate.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Mechanism, Outcome
from pate.noise.exact import SystemNoise
from tests.support.audits.planting import run_together
from tests.support.needs import others_slow
from tests.support.simulated_noise import SimulatedNoise

SURE = 1 - 1e-8
HALF = Fraction(1, 2)


@pytest.fixture(autouse=True)
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the runs of a pair in fewer calls of the samplers: here all draws are independent."""
    monkeypatch.setattr(harness, "CALLS", 8)


def subject(
    sample: Sample, pairs: Sequence[Pair], claim: Claim, *, step: int = 2000, figures: int = 0
) -> Subject:
    return Subject(
        name="x", kind="mechanism", claim=claim, pairs=pairs, sample=sample, queries=1,
        figures=figures, step=step,
    )  # fmt: skip


def clopper_pearson(
    hits: ArrayLike, runs: int, doubt: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    missed = runs - np.asarray(hits, np.float64)
    return least_chance(hits, runs, doubt), 1.0 - least_chance(missed, runs, doubt)


class TestClopperPearson:
    @pytest.mark.parametrize("doubt", [0.3, 0.05, 1e-8, 1e-30])
    @pytest.mark.parametrize(
        ("hits", "runs"), [(1, 7), (500, 1000), (19, 20_000), (19_990, 20_000)]
    )
    def test_it_is_where_the_binomial_tail_is_the_doubt(
        self, hits: int, runs: int, doubt: float
    ) -> None:
        from scipy import stats

        low, high = clopper_pearson(hits, runs, doubt)
        assert stats.binom.sf(hits - 1, runs, low) == pytest.approx(doubt, rel=1e-6)
        assert stats.binom.cdf(hits, runs, high) == pytest.approx(doubt, rel=1e-6)

    def test_the_ends(self) -> None:
        low, high = clopper_pearson([0, 10], 10, 0.01)
        assert (low[0], high[1]) == (0.0, 1.0)
        assert high[0] == pytest.approx(1 - 0.01**0.1)
        assert low[1] == pytest.approx(0.01**0.1)

    @pytest.mark.parametrize("p", [0.003, 0.2, 0.5, 0.97])
    def test_it_is_wrong_no_more_often_than_said(self, p: float) -> None:
        from scipy import stats

        hits = np.arange(41)
        mass = stats.binom.pmf(hits, 40, p)
        low, high = clopper_pearson(hits, 40, 0.1)
        assert mass[low > p].sum() <= 0.1
        assert mass[high < p].sum() <= 0.1

    @pytest.mark.parametrize(
        ("hits", "runs", "doubt"),
        [(-1, 5, 0.1), (6, 5, 0.1), (math.nan, 5, 0.1), (0, 0, 0.1), (1, 5, 0.0), (1, 5, 1.0),
         (1, 5, math.nan)],
    )  # fmt: skip
    def test_what_cannot_be_is_refused(self, hits: float, runs: int, doubt: float) -> None:
        with pytest.raises(AccountingError):
            clopper_pearson(hits, runs, doubt)


class TestLowerBounds:
    """Against a mechanism whose epsilon, or mu, is known and reached: how often are they wrong?"""

    RUNS = 60

    def wrong(self, bounds: NDArray[np.float64], truth: float, p: float, q: float) -> float:
        from scipy import stats

        hits = np.arange(self.RUNS + 1)
        mass = np.outer(stats.binom.pmf(hits, self.RUNS, p), stats.binom.pmf(hits, self.RUNS, q))
        return float(mass[bounds > truth].sum())

    def grid(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        first, second = np.indices((self.RUNS + 1, self.RUNS + 1))
        return first, second

    @pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 3.0])
    @pytest.mark.parametrize(("q", "delta"), [(0.02, 0.05), (0.3, 1e-5), (0.02, 1e-300)])
    def test_epsilon(self, q: float, delta: float, epsilon: float) -> None:
        p = min(1.0, math.exp(epsilon) * q + delta)
        bounds = epsilon_lower_bound(*self.grid(), self.RUNS, delta, 0.2)
        assert (bounds >= 0.0).all()
        assert self.wrong(bounds, epsilon, p, q) <= 0.2

    @pytest.mark.parametrize("mu", [0.0, 0.7, 2.0, 4.0])
    def test_mu(self, mu: float) -> None:
        from scipy import stats

        for at in (-mu, -mu / 2, 0.0):
            p, q = stats.norm.cdf(at + mu), stats.norm.cdf(at)
            bounds = mu_lower_bound(*self.grid(), self.RUNS, 0.2)
            assert np.isfinite(bounds).all()
            assert self.wrong(bounds, mu, p, q) <= 0.2

    def test_they_tell_something(self) -> None:
        # 10,000 runs at the two ends of randomised response with epsilon 2.
        from scipy import stats

        hits, false = 8808, 1192
        assert 1.9 < epsilon_lower_bound(hits, false, 10_000, 1e-9, 0.05) < 2.0
        assert 2.2 < mu_lower_bound(hits, false, 10_000, 0.05) < 2 * stats.norm.ppf(0.8808)

    @given(st.integers(0, 50), st.integers(0, 50), st.floats(1e-9, 0.5))
    def test_delta_and_doubt_only_take_away(self, hits: int, false: int, doubt: float) -> None:
        at = [
            float(epsilon_lower_bound(hits, false, 50, delta, doubt))
            for delta in (1e-300, 1e-3, 0.2)
        ]
        assert at == sorted(at, reverse=True)
        assert epsilon_lower_bound(hits, false, 50, 1e-3, doubt / 2) <= at[1]
        assert at[0] <= 0.0 or hits > false


class TestAttack:
    def worth(self, hits: NDArray[np.float64], false: NDArray[np.float64]) -> NDArray[np.float64]:
        return epsilon_lower_bound(hits, false, 2000, 1e-6, 0.01)

    def runs(self, chances: Sequence[float]) -> NDArray[np.int64]:
        rng = np.random.default_rng(4)
        return rng.multinomial(1, chances, 2000).astype(np.int64)

    @pytest.mark.parametrize("swap", [False, True])
    def test_it_bets_on_what_differs_whichever_world_it_speaks_for(self, swap: bool) -> None:
        # The third kind is rare in the first world and ten times rarer in the second.
        worlds = [self.runs([0.5, 0.4, 0.1]), self.runs([0.5, 0.49, 0.01])]
        if swap:
            worlds.reverse()
        worth, event = learn(worlds[0], worlds[1], 2000, self.worth)
        assert event.reverse is swap
        hits, false = event.count_hits(worlds[0], worlds[1])
        rare = int((worlds[int(swap)][:, 2] > 0).sum())
        assert hits == rare > 5 * false
        assert 1.0 < worth < float(self.worth(np.array(hits), np.array(false)))

    def test_worlds_that_do_not_differ_are_worth_nothing(self) -> None:
        runs = self.runs([0.2, 0.3, 0.5])
        worth, event = learn(runs, runs.copy(), 2000, self.worth)
        assert worth == 0.0
        hits, false = event.count_hits(runs, runs)
        assert hits == false

    def test_an_event_is_met_at_its_threshold(self) -> None:
        event = Event(np.array([0.1, 0.2, 0.3]), 0.6, math.inf, reverse=False)
        assert event.hits(np.array([[1, 1, 1], [0, 3, 0], [3, 1, 0], [0, 0, 2]])) == 3

    def test_the_runs_that_count_are_others(self) -> None:
        """The first runs of each world, to learn from, tell everything; the later ones nothing."""
        asked: list[tuple[int, int]] = []

        def sample(pair: Pair, world: int, runs: int) -> NDArray[np.int64]:
            asked.append((world, runs))
            learning = len(asked) <= 2
            return np.tile(np.eye(3, dtype=np.int64)[world if learning else 0], (runs, 1))

        pair = Pair(np.array([5, 3]), np.array([4, 4]))
        told: list[tuple[int, int]] = []
        found = audit(
            subject(sample, [pair], Claim(1.0, 1e-3), step=1000), runs=100, confidence=0.9,
            progress=lambda *each: told.append(each),
        )  # fmt: skip
        assert asked == [(0, 50), (1, 50), (0, 100), (1, 100)]
        assert told[-1] == (300, 300)
        assert (found.lower_bound, found.mu_lower_bound, found.runs) == (0.0, None, 300)

    def test_too_few_runs_or_no_confidence_are_refused(self) -> None:
        pair = Pair(np.array([5, 3]), np.array([4, 4]))

        def sample(pair: Pair, world: int, runs: int) -> NDArray[np.int64]:
            raise AssertionError("nothing should run")

        for pairs, runs, confidence in (
            ([pair], 30, 0.9), ([pair] * 3, 100, 0.9), ([], 1000, 0.9),
            ([pair], 100, 1.0), ([pair], 100, 0.4), ([pair], 100, math.nan),
        ):  # fmt: skip
            with pytest.raises(UsageError):
                audit(
                    subject(sample, pairs, Claim(1.0, 0.1), step=9),
                    runs=runs,
                    confidence=confidence,
                )


@given(
    st.sampled_from(["lnmax", "gnmax", "confident", "interactive"]),
    st.integers(-300, 300),
    st.fractions(Fraction(1, 50), 300, max_denominator=50),
    st.integers(1, 40),
    st.sampled_from([1, 2, 5]),
)
def test_neighbours_differ_by_the_unit_and_by_no_more(
    name: str, threshold: int, sigma: Fraction, votes: int, queries: int
) -> None:
    mechanisms: dict[str, Mechanism] = {
        "lnmax": LNMax(sigma, 1),
        "gnmax": GNMax(sigma, 1),
        "confident": ConfidentGNMax(threshold, sigma, sigma, 1),
        "interactive": InteractiveGNMax(threshold, sigma, sigma, HALF, 1),
    }
    mechanism = mechanisms[name]
    crossed, winners = set[str](), set[frozenset[int]]()
    for pair in distinguishing_pairs(mechanism, votes, queries):
        assert pair.moved == votes
        assert len(pair.votes) <= queries
        assert len(set(pair.votes.sum(axis=1).tolist())) == 1, "as many teachers vote on each query"
        expected = pair.votes if pair.prediction is None else pair.prediction
        for row, other, foreseen in zip(pair.votes, pair.neighbour, expected, strict=True):
            assert sorted((row - other).tolist()) in ([-votes, 0, 0, votes], [0, 0, 0, 0])
            assert min(row.min(), other.min(), foreseen.min()) >= 0
            assert row.sum() == other.sum() == foreseen.sum()
            if row.argmax() != other.argmax():
                winners.add(frozenset((int(row.argmax()), int(other.argmax()))))
            tops = [int((each - foreseen).max()) for each in (row, other)]
            if name == "confident":
                tops = [int(each.max()) for each in (row, other)]
            if tops[0] >= threshold > tops[1]:
                crossed.add("threshold")
    assert winners == {frozenset(each) for each in itertools.combinations(range(CLASSES), 2)}
    if name in ("confident", "interactive") and threshold >= 2 * votes:
        assert "threshold" in crossed


@pytest.mark.parametrize("swap", [False, True])
def test_it_bets_on_answers_that_differ_though_each_has_the_right_law(swap: bool) -> None:
    """Two answers by one coin, or by two: only whether they differ tells the worlds apart."""
    rng = np.random.default_rng(5)
    one, two = (rng.integers(0, 2, (2000, 2)) for _ in range(2))
    alike = np.stack([one[:, 0], one[:, 0]], axis=1)
    worlds = [
        np.column_stack([np.eye(2, dtype=np.int64)[seen].reshape(len(seen), -1), differing(seen)])
        for seen in (alike, two)
    ]
    if swap:
        worlds.reverse()
    claim, counts = Claim(1.0, 1e-3), dict(zip((0, 1), worlds, strict=True))
    pairs = [Pair(np.array([5, 3]), np.array([4, 4]))]
    seen = subject(lambda _, world, runs: counts[world][:runs], pairs, claim, figures=1)
    assert audit(seen, runs=2000, confidence=0.99).lower_bound > 3.0


@pytest.mark.parametrize("swap", [False, True])
def test_it_bets_on_a_single_value_of_a_score(swap: bool) -> None:
    """Of four answers two couples are alike: their number of ones is even, and has the right mean."""
    rng = np.random.default_rng(5)
    ones = [2 * rng.binomial(2, 0.5, 2000), rng.binomial(4, 0.5, 2000)]
    worlds = [np.column_stack([4 - each, each]).astype(np.int64) for each in ones]
    if swap:
        worlds.reverse()
    pairs, claim = [Pair(np.array([5, 3]), np.array([4, 4]))], Claim(1.0, 1e-3)
    seen = subject(lambda _, world, runs: worlds[world][:runs], pairs, claim)
    assert audit(seen, runs=2000, confidence=0.99).lower_bound > 3.0


def test_neighbours_of_different_size_cannot_be_built() -> None:
    for votes, other in (([5, 3], [5, 2]), ([5, 3], [5, 3, 0])):
        with pytest.raises(UsageError):
            Pair(np.array(votes), np.array(other))
    with pytest.raises(UsageError):
        Pair(np.array([5, 3]), np.array([4, 4]), np.array([5, 4]))
    with pytest.raises(UsageError):
        distinguishing_pairs(GNMax(Fraction(2), 1), 0, 2)


def test_kinds_of_answers() -> None:
    events = (GaussianThreshold(Fraction(4), 1), GaussianMax(Fraction(4), 1))
    assert kind_of(Outcome(2, "teachers", events), 3) == 2
    assert kind_of(Outcome(None, None, events[:1]), 3) == 3
    assert kind_of(Outcome(1, "reinforced", events[:1]), 3) == 4


def test_runs_are_counted_by_what_came_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With sigma 1/100 noise is 0, and each answer is what the votes say."""
    monkeypatch.setattr(auditing, "ROWS", 24)  # several calls of the mechanism
    sure = Fraction(1, 100)
    pair = Pair(np.array([7, 3, 0]), np.array([3, 7, 0]), np.array([9, 1, 0]))
    noise = SimulatedNoise(3)
    for mechanism, kinds in (
        (GNMax(sure, 4), [(0, 5), (1, 5)]),
        (ConfidentGNMax(8, sure, sure, 4), [(3, 5), (3, 5)]),
        (InteractiveGNMax(4, sure, sure, HALF, 4), [(4, 5), (1, 5)]),
    ):
        for world, (kind, times) in enumerate(kinds):
            counts = run_mechanism(mechanism, noise, 5, pair, world, 31)
            expected = np.zeros(6, np.int64)  # the last: no two answers differ
            expected[kind] = times
            np.testing.assert_array_equal(counts, np.tile(expected, (31, 1)))


class TestClaims:
    def test_it_is_the_campaigns_figure(self) -> None:
        events = (GaussianThreshold(Fraction(30), 1), GaussianMax(Fraction(10), 1))
        claim = claimed(ConfidentGNMax(9, Fraction(30), Fraction(10), 1), 7, 1e-5)
        cost = 7 * sum((Gdp().cost(event) for event in events), Fraction(0))
        assert claim.epsilon == Gdp().epsilon(cost, 1e-5)
        assert claim.mu == pytest.approx(math.sqrt(2 * cost))
        assert claim.mu is not None
        assert Fraction(claim.mu) ** 2 >= 2 * cost

    def test_narrow_noise_is_claimed_in_rho(self) -> None:
        claim = claimed(GNMax(Fraction(1), 1), 3, 1e-5)
        assert claim == Claim(Zcdp().epsilon(Fraction(3), 1e-5), 1e-5, None)

    def test_laplace_noise_is_claimed_at_the_smaller_figure(self) -> None:
        assert claimed(LNMax(Fraction(2), 3), 2, 1e-5) == Claim(6.0, 1e-5, None)
        many = claimed(LNMax(Fraction(20), 1), 1000, 1e-5)
        assert many == Claim(Zcdp().epsilon(Fraction(1000, 200), 1e-5), 1e-5, None)
        assert many.epsilon < 100

    def test_claims_and_audits_that_cannot_be(self) -> None:
        for bad in (math.nan, -1.0):
            with pytest.raises(AccountingError):
                Claim(bad, 1e-5)
            with pytest.raises(AccountingError):
                Claim(1.0, 1e-5, bad)
            with pytest.raises(AccountingError):
                made(lower_bound=bad)
            with pytest.raises(AccountingError):
                made(claimed=bad)
        with pytest.raises(AccountingError):
            Claim(1.0, 0.0)
        with pytest.raises(AccountingError):
            made(lower_bound=math.inf)
        with pytest.raises(UsageError):
            claimed(GNMax(Fraction(4), 1), 0, 1e-5)

    def test_a_claim_falls_by_either_figure(self) -> None:
        assert made().holds
        assert made(lower_bound=1.0).holds
        assert not made(lower_bound=1.01).holds
        assert made(mu_claimed=0.5, mu_lower_bound=0.5).holds
        assert not made(mu_claimed=0.5, mu_lower_bound=0.51).holds
        assert made(lower_bound=2.0).to_dict()["holds"] is False


def made(**changes: float) -> Audit:
    fields: dict[str, float] = {
        "claimed": 1.0, "lower_bound": 0.5, "delta": 1e-5, "confidence": 0.9, **changes,
    }  # fmt: skip
    return Audit(
        subject="x", kind="mechanism", runs=1, queries=1,
        unit="record", adjacency="one vote", observer="public", **fields,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    "mechanism",
    others_slow(
        [
            LNMax(Fraction(4), 1),
            GNMax(Fraction(3), 1),
            ConfidentGNMax(60, Fraction(3), Fraction(3), 1),
            InteractiveGNMax(20, Fraction(3), Fraction(3), HALF, 1),
            GNMax(Fraction(1), 1),  # too narrow for the exact Gaussian figure
            ConfidentGNMax(60, Fraction(6), Fraction(8), 3),
        ],
        lambda mechanism: mechanism.name == "interactive-gnmax",
    ),
    ids=["lnmax", "gnmax", "confident", "interactive", "narrow", "of three votes"],
)
def test_what_ships_stands(mechanism: Mechanism) -> None:
    """False alarm: below 1e-8 each, by the confidence of the audit, however many its runs are."""
    found = audit_mechanism(
        mechanism, SystemNoise(), queries=4, runs=1000, delta=1e-3, confidence=SURE
    )
    assert found.holds
    assert found.lower_bound <= found.claimed
    assert (found.kind, found.subject, found.queries) == ("mechanism", mechanism.name, 4)
    assert "cast otherwise" in found.adjacency


@pytest.mark.parametrize(
    ("mechanism", "runs", "share"),
    others_slow([
        (GNMax(Fraction(3), 1), 3000, 0.25),
        (LNMax(Fraction(1), 1), 1500, 0.25),
        (InteractiveGNMax(20, Fraction(3), Fraction(3), HALF, 1), 8000, 0.2),
    ], lambda case: case[0].name == "lnmax"),
)  # fmt: skip
def test_an_attack_on_what_ships_comes_somewhere_near(
    mechanism: Mechanism, runs: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded, so that it comes out the same always: an attack that finds nothing tests nothing.

    Runs that are calls of their own are made together with others: the law of what ships is the same.
    """
    run_together(monkeypatch)
    noise = SimulatedNoise(2)
    found = audit_mechanism(mechanism, noise, queries=4, runs=runs, delta=1e-3, confidence=0.999)
    assert share * found.claimed < found.lower_bound < found.claimed
    assert found.mu_claimed is None or 0.2 * found.mu_claimed < (found.mu_lower_bound or 0.0)


def test_a_pair_that_moves_more_than_a_unit_is_refused() -> None:
    pair = Pair(np.array([34, 30]), np.array([32, 32]))
    with pytest.raises(UsageError, match="moves more"):
        audit_mechanism(
            GNMax(Fraction(2), 1), SystemNoise(), queries=1, runs=2000, delta=0.01, confidence=SURE,
            pairs=[pair],
        )  # fmt: skip
