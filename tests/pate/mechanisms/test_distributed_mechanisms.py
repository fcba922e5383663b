"""Mechanisms over noisy histograms: rules by hand, no noise of their own, and exact small worlds."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.accounting.composition import Gdp, Zcdp, tightest, total_cost
from pate.accounting.events import GaussianMax, NoisyHistogram, event_from_dict
from pate.accounting.gdp import delta_from_epsilon, mu_of, squared_step_of
from pate.errors import AccountingError, ProtocolError, UsageError
from pate.mechanisms import (
    MECHANISMS,
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedGNMax,
    DistributedInteractiveGNMax,
    DistributedMechanism,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Outcome,
    mechanism_from_dict,
    over_noisy_sums,
)
from pate.noise.exact import Noise, SystemNoise
from pate.noise.shares import ripple
from pate.noise.simulated import SimulatedNoise
from tests.support.one_query import answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Masses = NDArray[np.float64]


class NoNoise:
    """Fails the test that asks for noise."""

    production: ClassVar[bool] = False

    def gaussian(self, sigma: Fraction, count: int) -> NoReturn:
        raise AssertionError(f"{count} draws of {sigma} were asked for: the noise is in the rows")

    def laplace(self, scale: Fraction, count: int) -> NoReturn:
        raise AssertionError(f"{count} draws of {scale} were asked for: the noise is in the rows")


NONE: Noise = NoNoise()
SHARE = Fraction(10)
EVENT = NoisyHistogram(SHARE, 16, 1)
PLAIN = DistributedGNMax(SHARE, 16, 1)
CONFIDENT = DistributedConfidentGNMax(10, SHARE, 16, 1)
INTERACTIVE = DistributedInteractiveGNMax(5, SHARE, 16, Fraction(3, 5), 1)
EVERY: tuple[DistributedMechanism, ...] = (PLAIN, CONFIDENT, INTERACTIVE)


def votes(*row: int) -> Integers:
    return np.array(row, dtype=np.int64)


class TestRules:
    @pytest.mark.parametrize(
        ("row", "label"),
        [(votes(1, 5, 3), 1), (votes(-3, -2, -1), 2), (votes(4, 7, 7), 1), (votes(0, 0), 0)],
    )
    def test_the_largest_noisy_count_wins(self, row: Integers, label: int) -> None:
        assert answer(PLAIN, row, NONE) == Outcome(label, "teachers", (EVENT,))

    def test_a_threshold_is_for_the_noisy_count_itself(self) -> None:
        assert answer(CONFIDENT, votes(2, 10, 9), NONE) == Outcome(1, "teachers", (EVENT,))
        # The whole histogram was seen: a query without an answer costs as much as one with it.
        assert answer(CONFIDENT, votes(2, 9, 9), NONE) == Outcome(None, None, (EVENT,))
        assert answer(CONFIDENT, votes(-50, 10, 10), NONE).label == 1
        assert answer(DistributedConfidentGNMax(-5, SHARE, 16, 1), votes(-7, -5), NONE).label == 1

    def test_interactive(self) -> None:
        ask = partial(answer, INTERACTIVE)
        # The margin is max(2 - 8, 7 - 2, 1 - 0).
        assert ask(votes(2, 7, 1), NONE, votes(8, 2, 0)) == Outcome(1, "teachers", (EVENT,))
        assert ask(votes(2, 6, 1), NONE, votes(8, 2, 0)) == Outcome(0, "reinforced", (EVENT,))
        assert ask(votes(2, 6, 1), NONE, votes(6, 2, 2)) == Outcome(None, None, (EVENT,))
        # Noisy rows sum to nothing in particular: the predictions are not held against them.
        assert ask(votes(-20, -30, 1), NONE, votes(8, 2, 0)).source == "reinforced"
        # The margin of one class may let the label of another through, as in the paper.
        assert ask(votes(20, 7, 1), NONE, votes(18, 1, 1)).label == 0

    def test_confidence_is_compared_exactly_and_strictly(self) -> None:
        assert answer(INTERACTIVE, votes(6, 4), NONE, votes(6, 4)).label is None
        assert answer(INTERACTIVE, votes(7, 3), NONE, votes(7, 3)).label == 0

    def test_queries_of_a_batch_do_not_mix(self) -> None:
        rows = np.array([[9, 0, 0], [0, 10, 0], [-5, 0, 30], [9, 9, 9]])
        assert [each.label for each in CONFIDENT.answer_all(rows, NONE)] == [None, 1, 2, None]
        expected = np.array([[3, 7, 0], [0, 10, 0], [4, 3, 3], [9, 1, 0]])
        outcomes = INTERACTIVE.answer_all(rows, NONE, expected)
        assert [(each.label, each.source) for each in outcomes] == [
            (0, "teachers"), (1, "reinforced"), (2, "teachers"), (0, "teachers")
        ]  # fmt: skip

    def test_predictions_that_are_missing_or_cannot_be_are_refused(self) -> None:
        with pytest.raises(UsageError, match="prediction"):
            answer(INTERACTIVE, votes(2, 8), NONE)
        for bad in (votes(11, -1), votes(5, 3, 2), np.array([0.5, 9.5])):
            with pytest.raises(ProtocolError, match="prediction"):
                answer(INTERACTIVE, votes(2, 8), NONE, bad)


@pytest.mark.parametrize("mechanism", EVERY)
class TestEveryMechanism:
    def test_the_noise_is_inside(self, mechanism: DistributedMechanism) -> None:
        assert mechanism.noise_inside is True
        assert isinstance(mechanism, DistributedMechanism)
        assert mechanism.name == f"distributed-{mechanism.name.removeprefix('distributed-')}"

    def test_every_query_costs_the_same(self, mechanism: DistributedMechanism) -> None:
        rows = np.random.default_rng(3).integers(-10, 30, (200, 3))
        outcomes = mechanism.answer_all(rows, NONE, np.tile(votes(14, 5, 1), (200, 1)))
        assert len(outcomes) == 200
        assert {each.events for each in outcomes} == {mechanism.worst} == {(EVENT,)}

    def test_no_queries_have_no_answers(self, mechanism: DistributedMechanism) -> None:
        none = np.zeros((0, 3), dtype=np.int64)
        assert mechanism.answer_all(none, NONE, none) == ()

    @pytest.mark.parametrize(
        "rows",
        [
            np.array([[1.0, 2.0]]),
            np.array([[1, 2]], dtype=np.int32),
            np.array([[1, 2]], dtype=np.uint64),
            np.array([[2**62, 2]]),
            np.array([[-(2**62), 2]]),
            np.array([[3]]),
            np.array([1, 2]),
        ],
    )
    def test_rows_that_cannot_be_noisy_votes_are_refused(
        self, mechanism: DistributedMechanism, rows: Integers
    ) -> None:
        with pytest.raises(ProtocolError, match="votes"):
            mechanism.answer_all(rows, NONE, rows)

    def test_rows_are_left_as_they_were(self, mechanism: DistributedMechanism) -> None:
        rows = np.array([[5, 3, 2], [0, 1, 9]])
        rows.setflags(write=False)
        mechanism.answer_all(rows, NONE, rows)

    def test_its_text_form_is_exact(self, mechanism: DistributedMechanism) -> None:
        fields = mechanism.to_dict()
        assert mechanism_from_dict(fields) == mechanism
        assert MECHANISMS[mechanism.name] is type(mechanism)
        with pytest.raises(UsageError, match="fields"):
            mechanism_from_dict({**fields, "sigma2": "40"})
        with pytest.raises(UsageError, match="fields"):
            mechanism_from_dict({k: v for k, v in fields.items() if k != "honest"})
        for key in fields:
            with pytest.raises(UsageError, match="mechanism"):
                mechanism_from_dict({**fields, key: "1.5"})
        with pytest.raises(UsageError, match="whole number"):
            mechanism_from_dict({**fields, "honest": True})
        with pytest.raises(UsageError, match="share"):
            mechanism_from_dict({**fields, "share": "1/2"})
        with pytest.raises(UsageError, match="honest"):
            mechanism_from_dict({**fields, "honest": 10**9})


def test_those_that_draw_noise_say_so_too() -> None:
    inside = {name for name, kind in MECHANISMS.items() if kind.noise_inside}
    matrices = {"distributed-neighbour", "distributed-teacher-labels"}
    assert inside == {mechanism.name for mechanism in EVERY} | matrices
    for kind in (LNMax, GNMax, ConfidentGNMax, InteractiveGNMax):
        assert kind.noise_inside is False


def test_text_forms_are_written_down() -> None:
    # Ledgers hold them: they may never change.
    assert INTERACTIVE.to_dict() == {
        "mechanism": "distributed-interactive-gnmax",
        "threshold": 5,
        "share": "10",
        "honest": 16,
        "confidence": "3/5",
        "votes_per_unit": 1,
    }
    assert set(CONFIDENT.to_dict()) == set(INTERACTIVE.to_dict()) - {"confidence"}
    assert set(PLAIN.to_dict()) == set(CONFIDENT.to_dict()) - {"threshold"}
    assert NoisyHistogram(Fraction(661, 64), 15, 2).to_dict() == {
        "event": "noisy-histogram",
        "share": "661/64",
        "honest": 15,
        "votes_per_unit": 2,
    }


def test_the_rule_of_a_central_mechanism_at_its_noise() -> None:
    assert over_noisy_sums(GNMax(Fraction(40), 2), 16) == DistributedGNMax(SHARE, 16, 2)
    confident = over_noisy_sums(ConfidentGNMax(10, Fraction(150), Fraction(40), 1), 16)
    assert confident == CONFIDENT
    central = InteractiveGNMax(5, Fraction(150), Fraction(40), Fraction(3, 5), 1)
    assert over_noisy_sums(central, 16) == INTERACTIVE
    for other in (LNMax(Fraction(20), 1), PLAIN):
        with pytest.raises(UsageError, match="does not support noise shares"):
            over_noisy_sums(other, 16)


def test_the_answers_are_those_of_the_central_rule_on_the_same_noise() -> None:
    """GNMax draws and adds; here it is added before. Same draws, same labels."""
    rows = np.random.default_rng(1).multinomial(30, [0.4, 0.35, 0.25], 500).astype(np.int64)
    central = GNMax(Fraction(6), 1).answer_all(rows, SimulatedNoise(4))
    noise = SimulatedNoise(4).gaussian(Fraction(6), rows.size).reshape(rows.shape)
    shared = DistributedGNMax(Fraction(6), 1, 1).answer_all(rows + noise, NONE)
    assert [each.label for each in central] == [each.label for each in shared]


@pytest.mark.parametrize(
    "build",
    [
        lambda: DistributedGNMax(Fraction(1, 2), 5, 1),
        lambda: DistributedGNMax(10.0, 5, 1),  # type: ignore[arg-type]
        lambda: DistributedGNMax(SHARE, 0, 1),
        lambda: DistributedGNMax(SHARE, 5, 0),
        lambda: DistributedGNMax(SHARE, 2.0, 1),  # type: ignore[arg-type]
        lambda: DistributedConfidentGNMax(10.5, SHARE, 5, 1),  # type: ignore[arg-type]
        lambda: DistributedConfidentGNMax(2**60, SHARE, 5, 1),
        lambda: DistributedInteractiveGNMax(5, SHARE, 5, Fraction(1), 1),
        lambda: DistributedInteractiveGNMax(5, SHARE, 5, 0.5, 1),  # type: ignore[arg-type]
        lambda: NoisyHistogram(Fraction(10**9), 5, 1),
        lambda: NoisyHistogram(SHARE, True, 1),
        lambda: NoisyHistogram(SHARE, 5, 2**40),
    ],
)
def test_bad_parameters_cannot_be_built(build: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        build()


@pytest.mark.parametrize(
    "fields",
    [
        {"event": "noisy-histogram"},
        {"event": "noisy-histogram", "share": "10", "honest": 5},
        {"event": "noisy-histogram", "sigma": "10", "honest": 5, "votes_per_unit": 1},
        {"event": "noisy-histogram", "share": "10", "honest": "5", "votes_per_unit": 1},
        {"event": "noisy-histogram", "share": "10", "honest": True, "votes_per_unit": 1},
        {"event": "noisy-histogram", "share": "10", "honest": 5, "votes_per_unit": "1"},
        {"event": "noisy-histogram", "share": "20/2", "honest": 5, "votes_per_unit": 1},
        {"event": "noisy-histogram", "share": "1/2", "honest": 5, "votes_per_unit": 1},
        {"event": "noisy-histogram", "share": "10", "honest": 0, "votes_per_unit": 1},
        {"event": "noisy-histogram", "share": "10", "honest": 5, "votes_per_unit": 1, "more": 1},
    ],
)
def test_bad_text_is_refused(fields: dict[str, str | int]) -> None:
    with pytest.raises(AccountingError):
        event_from_dict(fields)


noisy_histograms = st.builds(
    NoisyHistogram,
    st.integers(64, 64 * 200).map(lambda parts: Fraction(parts, 64)),
    st.integers(1, 300),
    st.integers(1, 20),
)


def ripple_in_floats(event: NoisyHistogram) -> float:
    """tau of docs/proofs/discrete-gaussian.md, section 6."""
    added = np.arange(1.0, event.honest)
    exponent = 2.0 * math.pi**2 * float(event.share) ** 2 * added / (added + 1.0)
    waves = 2.0 * sum(np.exp(-(j**2) * exponent) for j in range(1, 6))
    return float((np.log1p(waves) - np.log1p(-waves)).sum())


class TestCost:
    def test_by_hand(self) -> None:
        assert EVENT.rho == Fraction(1, 1600) + 2 * ripple(SHARE, 16)
        assert float(EVENT.rho * 1600 - 1) < 1e-24
        alone = NoisyHistogram(Fraction(40), 1, 3)
        assert alone.rho == GaussianMax(Fraction(40), 3).rho
        assert Gdp().cost(alone) == Gdp().cost(GaussianMax(Fraction(40), 3))
        # Narrow shares pay for their lattice.
        narrow = NoisyHistogram(Fraction(1), 10, 1)
        assert 6e-4 < float(narrow.rho - Fraction(1, 10)) < 7e-4

    @given(noisy_histograms)
    def test_it_is_no_less_than_the_bound_in_floats(self, event: NoisyHistogram) -> None:
        orders = [1.0001, 1.5, 2.0, 14.0, 100.0]
        k, share = event.votes_per_unit, float(event.share) ** 2
        for order in orders:
            least = order * k**2 / (event.honest * share) + 2 * k * ripple_in_floats(event)
            assert event.rdp(order) >= least * (1 - 1e-12)
        assert event_from_dict(event.to_dict()) == event
        assert len(str(event.rho)) < 160, "a ledger holds it"

    @given(noisy_histograms)
    def test_more_honest_shares_and_wider_ones_cost_less(self, event: NoisyHistogram) -> None:
        k = event.votes_per_unit
        others = [NoisyHistogram(event.share + Fraction(1, 64), event.honest, k)]
        if event.share >= 2:  # ripples of many narrow shares add up, if to little
            others.append(NoisyHistogram(event.share, event.honest + 1, k))
        for other in others:
            assert other.rho < event.rho
            if Gdp().supports(event):
                assert Gdp().cost(other) < Gdp().cost(event)
        assert NoisyHistogram(event.share, event.honest, k + 1).rho > event.rho

    @given(noisy_histograms)
    def test_in_gdp_it_is_that_of_one_draw_and_its_ripple(self, event: NoisyHistogram) -> None:
        assert Zcdp().supports(event)
        if not Gdp().supports(event):
            assert event.variance < 4 or event.ripple > Fraction(1, 8)
            with pytest.raises(AccountingError, match="Gaussian-DP"):
                Gdp().cost(event)
            return
        mu = math.sqrt(2 * event.votes_per_unit**2 * squared_step_of(event.variance))
        wanted = (mu + 3 * float(event.ripple)) ** 2 / 2
        cost = float(Gdp().cost(event))
        assert cost >= wanted * (1 - 1e-12)
        assert cost <= wanted + 1.5 * float(event.ripple) * (1 + mu**2) + 1e-12 * wanted

    def test_one_view_is_cheaper_than_two(self) -> None:
        """k^2/sigma^2 of one, and of a check and a label on histograms of their own."""
        one = NoisyHistogram(Fraction(40), 1, 1).rho
        two = one + NoisyHistogram(Fraction(150), 1, 1).rho
        assert float(two / one) == pytest.approx(1 + (40 / 150) ** 2)
        same = 1 / math.sqrt(1 / 40**2 + 1 / 150**2)
        assert same == pytest.approx(38.65, abs=0.01)
        assert NoisyHistogram(Fraction(387, 10), 1, 1).rho < two

    def test_campaigns_of_wide_shares_count_in_gdp(self) -> None:
        assert tightest(CONFIDENT.worst).name == "gdp"
        assert tightest(DistributedGNMax(Fraction(1), 2, 1).worst).name == "zcdp"
        assert total_cost(Gdp(), CONFIDENT.worst) == Gdp().cost(EVENT)


# Exact laws of small worlds: all noisy histograms of three classes, cell by cell.

ROWS = [row for row in itertools.product(range(4), repeat=3) if sum(row) == 3]
#: The votes that a student's predictions lead one to expect.
EXPECTED = votes(1, 2, 0)


@cache
def sums_of_shares(share: Fraction, honest: int) -> Masses:
    reach = math.ceil(9 * share)
    one = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * float(share) ** 2))
    law = one = one / one.sum()
    for _ in range(honest - 1):
        law = np.convolve(law, one)
    middle = (len(law) - 1) // 2
    far = min(middle, math.ceil(6.5 * float(share) * math.sqrt(honest)))
    made: Masses = law[middle - far : middle + far + 1]
    return made


def world(share: Fraction, honest: int) -> tuple[Integers, dict[tuple[int, ...], Masses]]:
    """Return all noisy histograms that matter, and the law of each row's over them."""
    law = sums_of_shares(share, honest)
    far = (len(law) - 1) // 2
    cells = np.arange(-far, far + 4)
    grid = np.stack(np.meshgrid(cells, cells, cells, indexing="ij"), axis=-1).reshape(-1, 3)
    laws = {}
    for row in ROWS:
        each = []
        for count in row:
            placed = np.zeros(len(cells))
            placed[count : count + len(law)] = law
            each.append(placed)
        laws[row] = np.einsum("i,j,k->ijk", *each).ravel()
    return grid, laws


def divergence(p: Masses, q: Masses, order: float) -> float:
    both = (p > 0) & (q > 0)
    return math.log(float((p[both] ** order * q[both] ** (1 - order)).sum())) / (order - 1)


def pairs_within(unit: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [
        (a, b)
        for a, b in itertools.permutations(ROWS, 2)
        if sum(abs(x - y) for x, y in zip(a, b, strict=True)) <= 2 * unit
    ]


SMALL = [(Fraction(1), 2), (Fraction(1), 4), (Fraction(3, 2), 3)]


@pytest.mark.parametrize(("share", "honest"), SMALL)
def test_no_neighbour_is_further_than_the_event_says(share: Fraction, honest: int) -> None:
    """Whole histograms, both ways. Cutting the tails at 6.5 sigma hides less than 1e-9 of these."""
    _, laws = world(share, honest)
    for unit, order in itertools.product((1, 2), (1.1, 1.5, 2.0)):
        bound = NoisyHistogram(share, honest, unit).rdp(order)
        worst = max(divergence(laws[a], laws[b], order) for a, b in pairs_within(unit))
        assert 0.98 * bound < worst + 2 * unit * float(ripple(share, honest)) * order
        assert worst <= bound * (1 + 1e-9)


@pytest.mark.parametrize(("share", "honest"), [(Fraction(1), 4), (Fraction(3, 2), 3)])
def test_no_neighbour_is_told_more_easily_than_the_gaussian_pair(
    share: Fraction, honest: int
) -> None:
    """The hockey-stick divergence at many epsilons against the profile of the cost in GDP."""
    event = NoisyHistogram(share, honest, 1)
    _, laws = world(share, honest)
    mu = mu_of(2 * Gdp().cost(event))
    for a, b in pairs_within(1):
        for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
            delta = float(np.maximum(laws[a] - math.exp(epsilon) * laws[b], 0.0).sum())
            assert delta <= delta_from_epsilon(mu, epsilon) * (1 + 1e-9) + 1e-9
    # And not by much: a pair as far apart as can be, where the profile counts.
    delta = float(np.maximum(laws[3, 0, 0] - laws[2, 1, 0], 0.0).sum())
    assert delta > 0.9 * delta_from_epsilon(mu, 0.0)


@pytest.mark.parametrize("order", [1.5, 2.0, 12.0])
def test_labels_tell_no_more_than_the_histogram(order: float) -> None:
    """The shipped rules on all noisy histograms: exact laws of what comes out."""
    share, honest = Fraction(1), 4
    grid, laws = world(share, honest)
    for mechanism in (
        DistributedGNMax(share, honest, 1),
        DistributedConfidentGNMax(3, share, honest, 1),
        DistributedInteractiveGNMax(2, share, honest, Fraction(1, 2), 1),
    ):
        outcomes = mechanism.answer_all(grid, NONE, np.tile(EXPECTED, (len(grid), 1)))
        kinds = {kind: at for at, kind in enumerate({(o.label, o.source) for o in outcomes})}
        places = np.array([kinds[o.label, o.source] for o in outcomes])
        seen: dict[tuple[int, ...], Masses] = {
            row: np.array([law[places == kind].sum() for kind in range(len(kinds))])
            for row, law in laws.items()
        }
        worst = max(divergence(seen[a], seen[b], order) for a, b in pairs_within(1))
        bound = mechanism.worst[0].rdp(order)
        assert 0.05 * bound < worst <= bound


def test_real_shares_give_what_the_rules_say() -> None:
    """Sums of shares from the shipped sampler: right labels of 60,000, Bernstein's inequality."""
    share, honest, number = Fraction(1), 4, 60_000
    mechanism = DistributedConfidentGNMax(3, share, honest, 1)
    grid, laws = world(share, honest)
    row = (1, 2, 0)
    of_grid = mechanism.answer_all(grid, NONE)
    drawn = SystemNoise().gaussian(share, honest * number * 3).reshape(honest, number, 3)
    outcomes = mechanism.answer_all(np.array(row) + drawn.sum(axis=0), NONE)
    for label in (None, 0, 1, 2):
        chance = float(laws[row][[each.label == label for each in of_grid]].sum())
        seen = sum(each.label == label for each in outcomes)
        level = math.log(2 * 4 / 1e-6)
        allowed = level / 3 + math.sqrt((level / 3) ** 2 + 2 * number * chance * level)
        assert abs(seen - number * chance) <= allowed
        assert allowed < 0.1 * number * chance, "it could not fail otherwise"
