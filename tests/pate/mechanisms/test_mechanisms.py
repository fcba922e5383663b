"""Mechanisms: their rules, their laws with real noise, their costs, and their texts."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from pate.accounting.events import NoisyHistogram
from pate.errors import ProtocolError, UsageError
from pate.mechanisms import (
    MECHANISMS,
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedGNMax,
    DistributedInteractiveGNMax,
    DistributedNeighbour,
    DistributedTeacherLabels,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Mechanism,
    Neighbour,
    Outcome,
    TeacherLabels,
    TeacherRule,
    mechanism_from_dict,
    round_predictions,
)
from pate.mechanisms.contract import Votes
from pate.noise.exact import SystemNoise
from tests.support.accounting import exact
from tests.support.one_query import answer
from tests.support.simulated_noise import SimulatedNoise

FALSE_ALARM = 1e-6


def votes(*row: int) -> NDArray[np.int64]:
    return np.array(row, dtype=np.int64)


S1, S2 = Fraction(150), Fraction(40)
CONFIDENT = ConfidentGNMax(10, S1, S2, 1)
INTERACTIVE = InteractiveGNMax(5, S1, S2, Fraction(3, 5), 1)


class TestInteractive:
    def test_confidence_is_compared_exactly_and_strictly(self) -> None:
        # 6 of 10 is not above 3/5, although 0.6 * 10 in floats could be either. A sigma of 1/100 is 0.
        sure = replace(INTERACTIVE, sigma1=Fraction(1, 100))
        assert answer(sure, votes(6, 4), SystemNoise(), votes(6, 4)).label is None
        assert answer(sure, votes(7, 3), SystemNoise(), votes(7, 3)).label == 0

    def test_it_needs_a_prediction(self) -> None:
        with pytest.raises(UsageError, match="prediction"):
            answer(INTERACTIVE, votes(2, 8), SystemNoise())

    @pytest.mark.parametrize(
        "prediction", [votes(5, 4), votes(11, -1), votes(5, 3, 2), np.array([0.5, 9.5])]
    )
    def test_a_prediction_that_cannot_be_is_refused(self, prediction: NDArray[np.int64]) -> None:
        with pytest.raises(ProtocolError, match="prediction"):
            answer(INTERACTIVE, votes(2, 8), SystemNoise(), prediction)


SHARE = Fraction(10)
EVERY: tuple[TeacherRule, ...] = (
    GNMax(S2, 1), LNMax(Fraction(20), 1), CONFIDENT, INTERACTIVE, DistributedGNMax(SHARE, 16, 1),
    DistributedConfidentGNMax(10, SHARE, 16, 1),
    DistributedInteractiveGNMax(5, SHARE, 16, Fraction(3, 5), 1),
)  # fmt: skip


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda each: each.name)
class TestEveryMechanism:
    def test_it_never_does_more_than_it_reserves(self, mechanism: TeacherRule) -> None:
        rows = np.random.default_rng(3).multinomial(20, [0.6, 0.3, 0.1], 200).astype(np.int64)
        rows.setflags(write=False)
        expected = np.tile(votes(14, 5, 1), (200, 1))
        outcomes = mechanism.answer_all(rows, SimulatedNoise(1), expected)
        assert len(outcomes) == 200
        for outcome in outcomes:
            assert outcome.events == mechanism.worst[: len(outcome.events)]
            assert outcome.events
        if mechanism.noise_inside:  # the whole histogram was seen, whether there is a label or not
            assert {outcome.events for outcome in outcomes} == {mechanism.worst}
        none = np.zeros((0, 3), dtype=np.int64)
        assert mechanism.answer_all(none, SystemNoise(), none) == ()

    def test_rows_that_cannot_be_votes_are_refused(self, mechanism: TeacherRule) -> None:
        less = [[-(2**62), 2]] if mechanism.noise_inside else [[-1, 2]]
        bad: tuple[Any, ...] = (
            np.array([[1.0, 2.0]]), np.array([[1, 2]], dtype=np.int32),
            np.array([[1, 2]], dtype=np.uint64), np.array(less), np.array([[2**62, 2]]),
            np.array([[3]]), np.array([1, 2]), np.zeros((1, 2, 2), dtype=np.int64),
        )  # fmt: skip
        for rows in bad:
            with pytest.raises(ProtocolError, match="votes"):
                mechanism.answer_all(rows, SystemNoise(), rows)

    def test_its_text_form_is_exact(self, mechanism: TeacherRule) -> None:
        fields = mechanism.to_dict()
        assert mechanism_from_dict(fields) == mechanism
        assert type(mechanism) is MECHANISMS[mechanism.name]
        with pytest.raises(UsageError, match="fields"):
            mechanism_from_dict({**fields, "delta": "1"})
        with pytest.raises(UsageError, match="fields"):
            mechanism_from_dict({k: v for k, v in fields.items() if k != "votes_per_unit"})
        wrong: dict[str, list[Any]] = {key: ["1.5"] for key in fields}
        if mechanism.noise_inside:
            wrong |= {"honest": [True, 10**9, "1.5"], "share": ["1/2"]}
        for key, values in wrong.items():
            for value in values:
                with pytest.raises(UsageError, match=f"mechanism|whole number|{key}"):
                    mechanism_from_dict({**fields, key: value})


def test_names_are_those_of_the_commands() -> None:
    central = {"lnmax", "gnmax", "confident-gnmax", "interactive-gnmax"}
    central |= {"neighbour", "teacher-labels"}
    assert {name for name, kind in MECHANISMS.items() if not kind.noise_inside} == central
    assert set(MECHANISMS) - central == {f"distributed-{name}" for name in central - {"lnmax"}}
    with pytest.raises(UsageError, match="choose among confident-gnmax, distr"):
        mechanism_from_dict({"mechanism": "argmax"})
    with pytest.raises(UsageError, match="unknown mechanism"):
        mechanism_from_dict({})


@pytest.mark.parametrize(
    "build",
    [
        lambda: GNMax(Fraction(0), 1),
        lambda: LNMax(Fraction(-1), 1),
        lambda: GNMax(Fraction(40), 0),
        lambda: GNMax(40.0, 1),  # type: ignore[arg-type]
        lambda: ConfidentGNMax(10, Fraction(0), S2, 1),
        lambda: ConfidentGNMax(10, S1, Fraction(0), 1),
        lambda: ConfidentGNMax(10.5, S1, S2, 1),  # type: ignore[arg-type]
        lambda: ConfidentGNMax(2**60, S1, S2, 1),
        lambda: InteractiveGNMax(5, S1, S2, Fraction(1), 1),
        lambda: InteractiveGNMax(5, S1, S2, Fraction(-1, 2), 1),
        lambda: InteractiveGNMax(5, S1, S2, 0.5, 1),  # type: ignore[arg-type]
        lambda: InteractiveGNMax(5, S1, S2, Fraction(1, 2), 0),
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
        lambda: Outcome(None, "teachers", ()),
        lambda: Outcome(1, None, ()),
    ],
)
def test_bad_parameters_cannot_be_built(build: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        build()


class TestRoundPredictions:
    def test_by_hand(self) -> None:
        assert round_predictions(np.array([[0.26, 0.25, 0.49]]), 10).tolist() == [[3, 2, 5]]
        # Equal remainders: the lowest index. 1/3 each of 10 is 3 each, and one is missing.
        assert round_predictions(np.full((1, 3), 1 / 3), 10).tolist() == [[4, 3, 3]]
        assert round_predictions(np.array([[1.0, 0.0]]), 7).tolist() == [[7, 0]]
        # 49 times the float 1/49 is below 1: all 49 votes are missing, and found.
        assert round_predictions(np.full((1, 49), 1 / 49), 49).tolist() == [[1] * 49]
        assert round_predictions(np.zeros((0, 3)), 5).shape == (0, 3)

    @given(
        hnp.arrays(
            np.float64,
            st.tuples(st.integers(1, 5), st.integers(2, 60)),
            elements=st.floats(min_value=0, max_value=1),
        ),
        st.integers(min_value=1, max_value=10**6),
    )
    def test_rows_sum_to_the_teachers_and_are_near(
        self, raw: NDArray[np.float64], teachers: int
    ) -> None:
        raw[:, 0] += 1e-3
        shares = raw / raw.sum(axis=1, keepdims=True)
        rounded = round_predictions(shares, teachers)
        assert rounded.dtype == np.int64
        assert (rounded.sum(axis=1) == teachers).all()
        assert rounded.min() >= 0
        assert np.abs(rounded - shares * teachers).max() < 1 + 1e-6
        single = shares.astype(np.float32)
        assert (round_predictions(single, teachers).sum(axis=1) == teachers).all()

    @pytest.mark.parametrize(
        "probabilities",
        [
            np.array([[0.5, np.nan]]), np.array([[np.inf, 0.0]]), np.array([[1e308, 1e308]]),
            np.array([[1.2, -0.2]]), np.array([[0.5, 0.6]]), np.array([[0.5, 0.49]]),
            np.array([[0.0, 0.0]]), np.array([[1.0]]), np.array([0.5, 0.5]), np.array([[1, 0]]),
            np.array([[0.5 + 0.5j, 0.5]]),
        ],
    )  # fmt: skip
    def test_what_is_no_distribution_is_refused(self, probabilities: NDArray[np.float64]) -> None:
        with pytest.raises(ProtocolError, match="prediction"):
            round_predictions(probabilities, 10)

    def test_no_teachers_are_refused(self) -> None:
        with pytest.raises(UsageError, match="teachers"):
            round_predictions(np.array([[0.5, 0.5]]), 0)


#: The votes that the student's prediction leads one to expect.
EXPECTED = (1, 3, 1)


def labels_of(row: Sequence[int], law: str, scale: Fraction) -> list[float]:
    """P[argmax_j (row_j + noise_j) = j], the lowest index winning ties."""
    found: list[float] = np.exp(
        exact.log_labels(np.array([row]), exact.Lattice(law, float(scale)))
    )[0].tolist()
    return found


def outcome_law(mechanism: Mechanism, row: Sequence[int]) -> dict[int | None, float]:
    """The exact law of the teachers' label, None where they give none."""
    if isinstance(mechanism, GNMax):
        return dict(enumerate(labels_of(row, "gaussian", mechanism.sigma)))
    if isinstance(mechanism, LNMax):
        return dict(enumerate(labels_of(row, "geometric", mechanism.scale)))
    assert isinstance(mechanism, ConfidentGNMax | InteractiveGNMax)
    margin = max(row)
    if isinstance(mechanism, InteractiveGNMax):
        margin = max(count - r for count, r in zip(row, EXPECTED, strict=True))
    over = np.array([float(margin - mechanism.threshold)])  # P[Z <= it], for the law is symmetric
    passed = math.exp(exact.Lattice("gaussian", float(mechanism.sigma1)).log_upto(over)[0])
    labels = labels_of(row, "gaussian", mechanism.sigma2)
    found: dict[int | None, float] = {j: passed * p for j, p in enumerate(labels)}
    found[None] = 1.0 - passed
    return found


@pytest.mark.parametrize(
    "mechanism",
    [
        GNMax(Fraction(3, 2), 1),
        GNMax(Fraction(4), 1),
        LNMax(Fraction(2), 1),
        ConfidentGNMax(4, Fraction(2), Fraction(1), 1),
    ],
)
def test_answers_have_exactly_the_law_of_the_mechanism(mechanism: Mechanism) -> None:
    # Fails a correct mechanism with probability 1e-6.
    from scipy import stats

    row, number = (3, 2, 3), 60_000
    law = outcome_law(mechanism, row)
    drawn = mechanism.answer_all(np.tile(votes(*row), (number, 1)), SystemNoise())
    seen = Counter(outcome.label for outcome in drawn)
    statistic = sum((seen[label] - p * number) ** 2 / (p * number) for label, p in law.items())
    assert stats.chi2.sf(statistic, len(law) - 1) > FALSE_ALARM


def divergence(p: dict[int | None, float], q: dict[int | None, float], order: float) -> float:
    return math.log(math.fsum(p[x] ** order * q[x] ** (1 - order) for x in p)) / (order - 1)


@pytest.mark.parametrize("unit", [1, 2])
@pytest.mark.parametrize("order", [1.5, 2, 4, 12])
def test_no_neighbour_is_further_than_the_events_say(order: float, unit: int) -> None:
    """Exact divergences of all histograms of 5 teachers and 3 classes, both ways."""
    rows = [row for row in itertools.product(range(6), repeat=3) if sum(row) == 5]
    mechanisms: list[Mechanism] = [
        GNMax(Fraction(3), unit),
        LNMax(Fraction(4), unit),
        ConfidentGNMax(3, Fraction(4), Fraction(5, 2), unit),
        InteractiveGNMax(1, Fraction(4), Fraction(5, 2), Fraction(1, 2), unit),
    ]
    for mechanism in mechanisms:
        laws = {row: outcome_law(mechanism, row) for row in rows}
        # What is pure DP costs no more than its epsilon at any order.
        bound = sum(
            min(float(event.rho) * order, float(getattr(event, "epsilon", math.inf)))
            for event in mechanism.worst
        )
        worst = max(
            divergence(laws[a], laws[b], order)
            for a, b in itertools.permutations(rows, 2)
            if sum(abs(x - y) for x, y in zip(a, b, strict=True)) <= 2 * unit
        )
        assert 0.05 * bound < worst <= bound


_SIGMA, _SURE = Fraction(5, 2), Fraction(3, 5)
CASES: tuple[TeacherRule, ...] = (
    LNMax(Fraction(2), 1), GNMax(_SIGMA, 1), ConfidentGNMax(9, Fraction(3), _SIGMA, 1),
    InteractiveGNMax(4, Fraction(3), _SIGMA, _SURE, 1), DistributedGNMax(_SIGMA, 3, 1),
    DistributedConfidentGNMax(9, _SIGMA, 3, 1),
    DistributedInteractiveGNMax(4, _SIGMA, 3, _SURE, 1),
)  # fmt: skip


def plainly(
    mechanism: TeacherRule, rows: Votes, predicted: Votes, noise: SimulatedNoise
) -> list[tuple[int | None, str | None, int]]:
    """Return label, source and number of events of each query."""
    given, inside = mechanism.to_dict(), mechanism.noise_inside
    tests, asked = [0] * len(rows), [True] * len(rows)
    if "sigma1" in given:
        tests = noise.gaussian(Fraction(given["sigma1"]), len(rows)).tolist()
    if "threshold" in given:
        for at, row in enumerate(rows.tolist()):
            less = predicted[at].tolist() if "confidence" in given else [0] * len(row)
            margin = max(count - expected for count, expected in zip(row, less, strict=True))
            asked[at] = margin + tests[at] >= int(given["threshold"])
    number = sum(asked) * rows.shape[1]
    if inside:
        draws = iter([0] * number)
    elif "scale" in given:
        draws = iter(noise.laplace(Fraction(given["scale"]), number).tolist())
    else:
        draws = iter(
            noise.gaussian(Fraction(given.get("sigma", given.get("sigma2", 0))), number).tolist()
        )
    found: list[tuple[int | None, str | None, int]] = []
    for at, row in enumerate(rows.tolist()):
        if asked[at]:
            noisy = [count + next(draws) for count in row]
            found.append((noisy.index(max(noisy)), "teachers", 2 if "sigma1" in given else 1))
            continue
        sure = predicted[at].tolist()
        if "confidence" in given and max(sure) > Fraction(given["confidence"]) * sum(sure):
            found.append((sure.index(max(sure)), "reinforced", 1))
        else:
            found.append((None, None, 1))
    return found


@pytest.mark.parametrize("mechanism", CASES, ids=lambda each: each.name)
def test_a_case_answers_as_its_algorithm(mechanism: TeacherRule) -> None:
    rng = np.random.default_rng(7)
    shares = rng.dirichlet(np.full(4, 0.4), 3000)
    rows = np.array([rng.multinomial(12, share) for share in shares])
    predicted = round_predictions(rng.dirichlet(np.full(4, 0.3), 3000), 12)
    if mechanism.noise_inside:
        rows += SimulatedNoise(2).gaussian(_SIGMA, rows.size).reshape(rows.shape)
    noise, same = SimulatedNoise(3), SimulatedNoise(3)
    outcomes = mechanism.answer_all(rows, noise, predicted)
    assert [(each.label, each.source, len(each.events)) for each in outcomes] == plainly(
        mechanism, rows, predicted, same
    )
    assert all(each.events == mechanism.worst[: len(each.events)] for each in outcomes)
    assert noise.gaussian(Fraction(999), 4).tolist() == same.gaussian(Fraction(999), 4).tolist()
    sources = {each.source for each in outcomes}
    assert len(sources) == (
        3 if mechanism.interactive else 2 if hasattr(mechanism, "threshold") else 1
    )


@dataclass(frozen=True)
class OnlyTested(TeacherRule):
    """A case with noise of its test, and none of its labels."""

    threshold: int
    sigma1: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "only-tested"


def test_a_case_without_noise_of_its_labels_releases_nothing() -> None:
    case = OnlyTested(1, Fraction(1), 1)
    with pytest.raises(UsageError, match="nothing is released"):
        case.answer_all(np.array([[90, 10]]), SimulatedNoise(1))


F = Fraction
TEXTS = Path(__file__).with_name("texts.txt").read_text().splitlines()
#: Those of the lines of texts.txt, in order.
MADE: tuple[Mechanism, ...] = (
    LNMax(F(20), 1),
    LNMax(F(5, 64), 3),
    GNMax(F(40), 1),
    GNMax(F(129, 64), 250),
    ConfidentGNMax(200, F(150), F(40), 1),
    ConfidentGNMax(-3, F(1, 3), F(7, 2), 2),
    InteractiveGNMax(5, F(150), F(40), F(3, 5), 1),
    InteractiveGNMax(0, F(9), F(5, 2), F(0), 4),
    DistributedGNMax(F(10), 16, 1),
    DistributedConfidentGNMax(10, F(661, 64), 15, 2),
    DistributedInteractiveGNMax(5, F(10), 16, F(3, 5), 1),
    Neighbour(3, F(40), 1),
    Neighbour(114, votes_per_unit=2, scale=F(20)),
    Neighbour(0, F(87, 2), 1, code="dense-64"),
    DistributedNeighbour(3, F(10), 4, 1),
    DistributedNeighbour(80, None, 3, 1, F(20)),
    TeacherLabels(0, F(40), 1, code="each-100 labels-14-of-14"),
    DistributedTeacherLabels(0, F(21, 2), 4, 2, code="each-100 labels-14-of-14"),
    TeacherLabels(80, F(40), 1, code="each-100"),
    DistributedTeacherLabels(0, F(2500), 4, 2, code="axes-32", adjacency="remove"),
)


def test_texts_are_what_they_were() -> None:
    assert {mechanism.name for mechanism in MADE} == set(MECHANISMS)
    for mechanism, line in zip(MADE, TEXTS, strict=True):
        stored = (mechanism, *mechanism.worst)
        assert " | ".join(json.dumps(each.to_dict()) for each in stored) == line
        assert mechanism_from_dict(json.loads(line.split(" | ")[0])) == mechanism
