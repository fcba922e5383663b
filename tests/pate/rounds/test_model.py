"""Rounds: their plan, their charge, the solver, and the model that is shown."""

from __future__ import annotations

import itertools
import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pate.accounting.composition import Gdp
from pate.accounting.events import NoisyArray
from pate.accounting.gdp import mu_squared_from_epsilon
from pate.answers import MOST_CLASSES
from pate.campaign.terms import round_mechanisms
from pate.codes import GRID, MOST_DIRECTIONS, code_of
from pate.errors import DataError, ProtocolError, UsageError
from pate.mechanisms import rounds_cost
from pate.rounds.model import MOST_CUT, MOST_WEIGHT, WEIGHT_GRID, RoundModel
from pate.rounds.plan import (
    DIRECTIONS,
    MOST_ROUNDS,
    directions_of,
    noise_ratio,
    parts_of,
    plan_of,
    rare_length,
    told_apart,
)
from pate.rounds.record_array import residual_sums
from pate.rounds.solver import Released, Start, chances, confirmed, next_model
from tests.support.audits import laws
from tests.support.world.kinds import Kind

WEIGHTS = np.array([[3, -4], [0, MOST_WEIGHT], [-MOST_WEIGHT, 7]], dtype=np.int64)


def test_a_model_has_one_byte_string_and_its_own_digest() -> None:
    made = RoundModel(WEIGHTS, 700)
    raw = made.to_bytes()
    assert len(raw) == 6 + 4 * WEIGHTS.size
    assert RoundModel.from_bytes(raw) == made
    assert np.array_equal(RoundModel.from_bytes(raw).weights, WEIGHTS)
    others = [
        RoundModel(WEIGHTS, 701),
        RoundModel(WEIGHTS[:, ::-1], 700),
        RoundModel(WEIGHTS.T.copy(), 700),
    ]
    assert len({each.digest for each in (made, *others)}) == 4
    assert made not in others
    assert made != raw
    assert len({made, RoundModel.from_bytes(raw)}) == 1


def test_a_model_stays_as_it_was_made() -> None:
    given = WEIGHTS.copy()
    made = RoundModel(given, 1)
    given[0, 0] = 99
    assert made.weights[0, 0] == 3
    with pytest.raises(ValueError, match="read-only"):
        made.weights[0, 0] = 5


@pytest.mark.parametrize(
    ("weights", "cut"),
    [
        (WEIGHTS, 0),
        (WEIGHTS, -1),
        (WEIGHTS, MOST_CUT + 1),
        (WEIGHTS, True),
        (WEIGHTS, 5.0),
        (WEIGHTS + 1, 5),
        (WEIGHTS - 1, 5),
        (np.full((2, 2), np.iinfo(np.int64).min), 5),
        (WEIGHTS.astype(np.float64), 5),
        (WEIGHTS.astype(np.int32), 5),
        (WEIGHTS[0], 5),
        (WEIGHTS[:1], 5),
        (WEIGHTS[:, :1], 5),
        (np.zeros((MOST_DIRECTIONS + 1, 2), np.int64), 5),
        (np.zeros((2, MOST_CLASSES + 1), np.int64), 5),
        (WEIGHTS.tolist(), 5),
    ],
)
def test_another_model_is_refused(weights: Any, cut: Any) -> None:
    with pytest.raises(ProtocolError, match="a shown model"):
        RoundModel(weights, cut)


def test_a_model_of_another_campaign_is_refused() -> None:
    made = RoundModel(WEIGHTS, 5)
    made.check_shape(3, 2)
    for shape in ((2, 3), (3, 3), (2, 2)):
        with pytest.raises(ProtocolError, match="not"):
            made.check_shape(*shape)


def test_bytes_of_anybody_are_a_model_or_refused() -> None:
    """Cut, grown, changed in one byte, and drawn: what is read is written as it was."""
    raw = RoundModel(WEIGHTS, 700).to_bytes()
    drawn = np.random.default_rng(1)
    tried = [raw[:at] for at in range(len(raw))]
    tried += [raw + b"\0", raw + raw, b"", bytes(6), struct.pack("<HHH", 65535, 65535, 65535)]
    tried += [
        raw[:at] + bytes([value]) + raw[at + 1 :]
        for at in range(len(raw))
        for value in (0, 1, 127, 255)
    ]
    tried += [drawn.bytes(int(size)) for size in drawn.integers(0, 40, 500)]
    # Heads that fit their length.
    for _ in range(500):
        shape = drawn.integers(0, 5, 2)
        head = struct.pack("<HHH", *shape, int(drawn.integers(0, 2 * MOST_CUT)))
        size = (4 * int(shape.prod()),)
        tried.append(head + drawn.bytes(*size))
    read = 0
    for each in tried:
        try:
            found = RoundModel.from_bytes(each)
        except ProtocolError:
            continue
        read += 1
        assert found.to_bytes() == each
        assert 1 <= found.cut <= 2 * GRID
        assert np.abs(found.weights).max() <= MOST_WEIGHT
    assert 0 < read < len(tried) / 2
    odd: Any = bytearray(raw)
    with pytest.raises(ProtocolError):
        RoundModel.from_bytes(odd)


def mu(epsilon: float) -> float:
    return math.sqrt(mu_squared_from_epsilon(epsilon, 1e-5))


@pytest.mark.parametrize(("classes", "records"), [(2, 550), (4, 5_000), (10, 21_000), (77, 7_500)])
def test_less_noise_never_has_fewer_rounds_or_directions(classes: int, records: int) -> None:
    epsilons = (0.01, 0.1, 0.5, 1.0, 4.0, 8.0, 50.0)
    for more in (1, 10):
        plans = [plan_of(classes, 128, more * records, mu(epsilon)) for epsilon in epsilons]
        for before, after in itertools.pairwise(plans):
            assert before.rounds <= after.rounds
            assert before.kappa <= after.kappa
        numbers = [directions_of(classes, more * records, mu(each), 4_000) for each in epsilons]
        assert numbers == sorted(numbers)
        assert set(numbers) <= {8, *DIRECTIONS}


def test_there_are_no_more_directions_than_public_rows() -> None:
    assert directions_of(2, 10**6, 1.0, 100) == DIRECTIONS[0]
    assert directions_of(2, 10**6, 1.0, 50) == 50


@pytest.mark.parametrize("rounds", [1, 2, 3, 7, MOST_ROUNDS])
def test_parts_add_up_to_the_whole_exactly(rounds: int) -> None:
    whole = mu_squared_from_epsilon(1.0, 1e-5)
    parts = parts_of(whole, rounds)
    assert len(parts) == rounds + 1
    assert sum(parts) == whole
    assert min(parts) > 0


def test_each_of_several_labels_is_a_question_of_two_classes() -> None:
    """Nine groups of diagnoses of 45,493 patients, altered: the rows of docs/votes.md."""
    found = {}
    for epsilon in (0.1, 0.5, 1.0):
        classes = told_apart(10, several=True)
        number = directions_of(classes, 45_493, mu(epsilon) / 2, 9_967)
        plan = plan_of(classes, number, 45_493, mu(epsilon) / 2, several=True, rare=2.0)
        found[epsilon] = number, plan.kappa
    assert found == {0.1: (64, 0.5), 0.5: (256, 0.5), 1.0: (256, 1.0)}
    assert told_apart(10, several=False) == 10


def test_arrays_are_longer_only_where_noise_is_small_and_a_class_is_rare() -> None:
    """The noise of longer arrays, nu kappa^2, is at most what the draw of records adds."""
    even, rare = rare_length([1 / 3] * 3), rare_length([0.05, 0.45, 0.5])
    assert even == pytest.approx(1)
    assert rare > 1.5
    for records, kappa in ((10**2, 0.5), (2_000, 0.78), (8_000, 1.56), (10**5, 9.0)):
        plan = plan_of(3, 64, records, 0.22, rare=rare)
        assert plan.kappa == pytest.approx(min(kappa, rare), abs=0.01)
        assert kappa == 0.5 or noise_ratio(3, 64, records, 0.22) * plan.kappa**2 <= 1 + 1e-9
        assert plan_of(3, 64, records, 0.22, rare=even).kappa == pytest.approx(min(plan.kappa, 1))
    assert plan_of(2, 64, 10**6, 0.22, rare=9.0).kappa == 2.0


def test_what_has_no_plan_is_refused() -> None:
    for wrong in ((1, 64, 100, 1.0), (2, 0, 100, 1.0), (2, 64, 0, 1.0), (2, 64, 100, 0.0)):
        with pytest.raises(UsageError):
            plan_of(*wrong)
    with pytest.raises(UsageError):
        plan_of(2, 64, float("nan"), 1.0)
    for rounds in (0, -1, MOST_ROUNDS + 1):
        with pytest.raises(UsageError):
            parts_of(Fraction(1), rounds)


DELTA = 1e-5
KIND = Kind(
    "neighbour", "capped", "dense", "residual", "record", "alone", "plain", "central", "gaussian",
    "table", "unproved", "labels",
)  # fmt: skip


def moved() -> int:
    """By how much a record that says another class moves the difference of two counts in a round.

    The server shows the model that makes arrays the longest: undecided, and cut at once.
    """
    shown = RoundModel(np.zeros((2, 2), np.int64), 1)
    code = np.array([[GRID, 0]])
    here, there = (residual_sums(code, np.array([label]), 2, shown) for label in (0, 1))
    assert not (here - there)[1].any()
    first, second = (here - there)[0].tolist()
    return abs(int(first) - int(second))


def found(sigma: Fraction, rounds: int) -> float:
    """The epsilon at DELTA that follows from exact probabilities of one event in both worlds.

    The event: the differences of the two counts, of all rounds together, reach a level.
    """
    noise = laws.total(laws.gaussian(sigma), 2 * rounds)
    above = noise[::-1].cumsum()[::-1]
    shift = rounds * moved()
    # What the convolution may be wrong by is far below the least that is looked at.
    here, there = above[:-shift], above[shift:]
    seen = (here > 2 * DELTA) & (there > 1e-9)
    return float(np.log((here[seen] - DELTA) / there[seen]).max())


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.5, 2), (2.0, 3), (6.0, 4)])
def test_a_liar_finds_nearly_what_is_charged_and_no_more(epsilon: float, rounds: int) -> None:
    spec = KIND.spec(epsilon=epsilon, delta=DELTA, rounds=1 + rounds)
    counts, residuals = round_mechanisms(spec, 1)
    cost = rounds_cost(Gdp(), (counts, residuals), 1 + rounds)
    assert 0.999 * epsilon <= Gdp().epsilon(cost, DELTA) <= epsilon
    assert isinstance(residuals.worst[0], NoisyArray)
    assert residuals.worst[0].squared == code_of(spec.code).change(1).squared == 4 * GRID**2
    sigma = residuals.worst[0].share
    # Without the class counts, that are a hundredth and a half of it.
    assert 0.95 * epsilon <= found(sigma, rounds) <= epsilon
    # A round that is not charged is seen, and so is a sum that is charged as if it could not be altered.
    assert found(sigma, rounds + 1) > epsilon
    assert found(sigma / 2, rounds) > epsilon


def world(classes: int, records: int = 4_000, seed: int = 0) -> tuple[Any, Any, Any]:
    """Codes of records with a constant coordinate, their labels by a linear model, and public rows."""
    draw = np.random.default_rng(seed)
    points = draw.normal(size=(records + 600, 6)) * np.linspace(1, 0.3, 6)
    points[:, 0] = 0.7
    codes = np.trunc(points / np.linalg.norm(points, axis=1).max() * GRID).astype(np.int64)
    scores = codes / GRID @ draw.normal(size=(6, classes)) * 25
    labels = (scores + draw.gumbel(size=scores.shape)).argmax(axis=1)
    return codes[:records], labels[:records], (codes[records:] / GRID, scores[records:])


def play(classes: int, rounds: int, sigma: float, *, labels: Any = None) -> Any:
    """The chances of public rows after rounds with exact arrays, and those of the true model."""
    codes, own, (rows, scores) = world(classes)
    labels = own if labels is None else labels
    draw = np.random.default_rng(7)
    counts = np.bincount(labels, minlength=classes) + sigma * draw.normal(size=classes)
    start = Start.of(counts, sigma)
    released: list[Released] = []
    for _ in range(rounds):
        shown = next_model(rows, start, released)
        sums = residual_sums(codes, labels, classes, shown) / GRID
        released.append(Released(shown, sums + sigma * draw.normal(size=sums.shape), sigma))
    true = np.exp(scores - scores.max(axis=1, keepdims=True))
    found = chances(rows, next_model(rows, start, released), start)
    return found, true / true.sum(axis=1, keepdims=True), start


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_without_noise_rounds_find_the_true_model(classes: int) -> None:
    """Each round is closer; with two classes, too, where steps of plain curvature are twice too long."""
    apart = []
    for rounds in (0, 1, 3, 6):
        found, true, _ = play(classes, rounds, 0.0)
        apart.append(float(np.abs(found - true).sum(axis=1).mean()) / 2)
    assert apart == sorted(apart, reverse=True)
    assert apart[-1] < 0.2 * apart[0]


def test_steps_do_not_go_too_far_with_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven of ten records have the class of their place: from even chances a whole step says ten."""
    places, draw = np.repeat(np.arange(40), 50), np.random.default_rng(3)
    labels = np.where(draw.random(2_000) < 0.7, places, draw.integers(40, size=2_000))
    codes = GRID * np.eye(40, dtype=np.int64)[places]
    rows, start = np.eye(40), Start.of(np.full(40, 50.0), 0.0)
    shown = next_model(rows, start, [])
    released = [Released(shown, residual_sums(codes, labels, 40, shown) / GRID, 0.5)]

    def surest() -> float:
        return float(chances(rows, next_model(rows, start, released), start).max(axis=1).mean())

    assert 0.5 < surest() < 0.95
    monkeypatch.setattr("pate.rounds.solver._HALVED", 0)
    assert surest() > 0.99


def test_labels_at_random_are_shrunk_to_the_class_shares() -> None:
    labels = np.random.default_rng(1).choice(3, size=4_000, p=(0.2, 0.3, 0.5))
    for sigma in (0.0, 30.0):
        found, _, start = play(3, 4, sigma, labels=labels)
        np.testing.assert_allclose(found, np.broadcast_to(start.shares, found.shape), atol=0.12)
        assert np.abs(found - start.shares).mean() < 0.02


def test_more_rounds_than_needed_cost_little() -> None:
    """The noise of each of nine rounds is three times that of one; all of them count."""
    codes, labels, (rows, scores) = world(2)
    right = {}
    for rounds in (1, 9):
        sigma, hits = 40.0 * np.sqrt(rounds), []
        for seed in range(12):
            draw = np.random.default_rng(seed)
            start = Start.of(np.bincount(labels).astype(float), 0.0)
            released: list[Released] = []
            for _ in range(rounds):
                shown = next_model(rows, start, released)
                sums = residual_sums(codes, labels, 2, shown) / GRID
                released.append(Released(shown, sums + sigma * draw.normal(size=sums.shape), sigma))
            found = chances(rows, next_model(rows, start, released), start)
            hits.append((found.argmax(axis=1) == scores.argmax(axis=1)).mean())
        right[rounds] = float(np.mean(hits))
    assert right[9] > right[1] - 0.02


def test_rounds_confirm_what_records_say_and_seldom_what_noise_says() -> None:
    """Labels at random are confirmed one time in 44 at most: more than 9 of 60 have a chance below 1e-6."""
    codes, labels, (rows, _) = world(2, records=500)
    passed = {"records": 0, "noise": 0}
    for seed in range(60):
        draw = np.random.default_rng(seed)
        # As if their number were hidden.
        start = Start.of(np.bincount(labels, minlength=2) + 400.0 * draw.normal(size=2), 400.0)
        for name, said in (("records", labels), ("noise", draw.permutation(labels))):
            released: list[Released] = []
            for _ in range(4):
                shown = next_model(rows, start, released)
                sums = residual_sums(codes, said, 2, shown) / GRID
                sums = sums + 40 * draw.normal(size=sums.shape)
                released.append(Released(shown, sums, 40.0))
            passed[name] += confirmed(rows, start, released) > 2
    assert passed["noise"] <= 9
    assert passed["records"] >= 36
    assert confirmed(rows, start, released[:1]) == confirmed(rows, start, []) == 0


@pytest.mark.parametrize("sigma", [0.0, 5.0, 60.0])
def test_two_classes_are_two_labels_of_which_each_record_has_one(sigma: float) -> None:
    """The draw of records adds the same to both; only the weights of two classes share the difference."""
    codes, labels, (rows, _) = world(2)
    counts = np.bincount(labels).astype(float)
    classes = Start(counts / counts.sum(), counts.sum())
    each = Start(classes.shares, classes.records, several=True)
    draw, of_classes, of_labels = np.random.default_rng(2), list[Released](), list[Released]()
    for _ in range(4):
        shown, other = next_model(rows, classes, of_classes), next_model(rows, each, of_labels)
        apart = shown.weights[:, 1] - shown.weights[:, 0]
        np.testing.assert_allclose(apart, other.weights[:, 1], rtol=0.02, atol=20)
        assert shown.cut == pytest.approx(other.cut, abs=2)
        sums = residual_sums(codes, labels, 2, shown) / GRID
        sums = sums + sigma * np.outer(draw.normal(size=len(sums)), (-1, 1))
        of_classes.append(Released(shown, sums, sigma))
        of_labels.append(Released(other, np.hstack([sums, 0 * sums[:, :1]]), sigma))


def test_where_noise_is_loud_models_are_shrunk_more() -> None:
    codes, labels, (rows, _) = world(2)
    start = Start.of(np.bincount(labels).astype(float), 0.0)
    shown = next_model(rows, start, [])
    sums = residual_sums(codes, labels, 2, shown) / GRID
    sizes = [
        float(np.linalg.norm(next_model(rows, start, [Released(shown, sums, 5.0)], kappa).weights))
        for kappa in (0.5, 0.51, 2.0)
    ]
    assert sizes[0] < sizes[1] == sizes[2]


def test_longer_arrays_tell_more_of_a_rare_class() -> None:
    """Cut to the usual length those of one class in 20 are all equally long, however wrong a model is."""
    codes, _, (rows, _) = world(2, records=10_000)
    weights = np.array([-22.0, 6.0, 0.0, 0.0, 6.0, 0.0])
    scores, true = codes / GRID @ weights, rows @ weights
    labels = (scores + np.random.default_rng(5).logistic(size=len(scores)) > 0).astype(np.int64)
    assert 0.04 < labels.mean() < 0.06
    start = Start.of(np.bincount(labels).astype(float), 0.0)
    alike, slopes = [], []
    for kappa in (0.5, 1.0, 2.0):
        released: list[Released] = []
        for _ in range(4):
            shown = next_model(rows, start, released, kappa)
            sums = residual_sums(codes, labels, 2, shown) / GRID
            released.append(Released(shown, sums, 0.0))
        found = next_model(rows, start, released, kappa).weights / WEIGHT_GRID
        said = rows @ (found[:, 1] - found[:, 0])
        alike.append(np.corrcoef(said, true)[0, 1])
        slopes.append(np.polyfit(true, said, 1)[0])
    assert alike == sorted(alike)
    assert slopes == sorted(slopes)
    assert slopes[1] < 0.8 < slopes[2]


def test_the_mean_chances_are_the_released_shares() -> None:
    found, _, start = play(3, 2, 5.0)
    np.testing.assert_allclose(found.mean(axis=0), start.shares, atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_the_next_model_is_the_same_again() -> None:
    codes, labels, (rows, _) = world(3)
    start = Start.of(np.bincount(labels).astype(float), 2.0)
    first = next_model(rows, start, [])
    assert 1 <= first.cut <= GRID
    sums = residual_sums(codes, labels, 3, first) / GRID
    made = [next_model(rows, start, [Released(first, sums, 2.0)], 0.5) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0].cut < next_model(rows, start, [Released(first, sums, 2.0)]).cut


@pytest.mark.parametrize(
    ("counts", "sigma", "shares"),
    [
        ((0, 0, 0), 0.0, (1 / 3, 1 / 3, 1 / 3)),
        ((100, 0), 0.0, (0.995, 0.005)),
        ((-500, -400), 900.0, (0.5, 0.5)),
        ((60, 140), 1.0, (0.3, 0.7)),
    ],
    ids=["nobody", "one class", "only noise", "two"],
)
def test_a_start_is_never_negative(counts: Any, sigma: float, shares: Any) -> None:
    start = Start.of(np.array(counts, float), sigma)
    np.testing.assert_allclose(start.shares, shares, atol=0.01)
    assert start.shares.min() > 0
    assert start.records >= 1


@pytest.mark.parametrize("spot", [(0.0, 0.0), (0.6, -0.8)], ids=["middle", "edge"])
def test_rows_all_in_one_place_have_the_class_shares(spot: Any) -> None:
    rows, start = np.tile(spot, (20, 1)), Start.of(np.array([30.0, 70.0]), 1.0)
    first = next_model(rows, start, [])
    after = next_model(rows, start, [Released(first, np.array([[1e6, -1e6]] * 2), 1.0)])
    assert np.abs(after.weights).max() <= MOST_WEIGHT
    np.testing.assert_allclose(chances(rows, after, start)[0], start.shares, atol=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_sums_of_a_party_that_lies_end_no_campaign(seed: int) -> None:
    """Another party may put any numbers into a masked sum. 13 of these 40 had no inverse."""
    draw = np.random.default_rng(seed)
    directions, classes, size = (
        int(draw.integers(low, high)) for low, high in [(2, 9), (2, 5), (3, 30)]
    )
    rows = draw.normal(size=(size, directions))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    start = Start.of(10 ** draw.uniform(0, 12) * draw.uniform(size=classes), 2.0)
    released: list[Released] = []
    for _ in range(8):
        shown = next_model(rows, start, released)
        sums = np.rint(10 ** draw.uniform(0, 12) * draw.normal(size=(directions, classes)))
        released.append(Released(shown, sums, 2.0))
    assert np.isfinite(chances(rows, shown, start)).all()
    assert math.isfinite(confirmed(rows, start, released))


def test_what_is_not_finite_or_does_not_fit_is_refused() -> None:
    rows, start = np.eye(3), Start.of(np.array([5.0, 6.0]), 1.0)
    shown = next_model(rows, start, [])
    good = np.zeros((3, 2))
    for sums in (good + np.nan, good + np.inf, np.zeros((2, 2)), np.zeros((3, 3))):
        with pytest.raises(DataError):
            next_model(rows, start, [Released(shown, sums, 1.0)])
    other = RoundModel(np.zeros((2, 2), np.int64), 1)
    for model, sigma in ((other, 1.0), (shown, np.nan), (shown, -1.0), (shown, np.inf)):
        with pytest.raises(DataError):
            next_model(rows, start, [Released(model, good, sigma)])
    for wrong in (np.full((2, 3), np.nan), np.zeros((0, 3)), np.zeros(3)):
        with pytest.raises(DataError):
            next_model(wrong, start, [])
    for counts, sigma in (((np.nan, 1.0), 1.0), ((1.0,), 1.0), ((1.0, 2.0), np.nan)):
        with pytest.raises(DataError):
            Start.of(np.array(counts), sigma)
