"""The next model: what it finds, what it leaves to the prior, and what input it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pate.codes import GRID
from pate.errors import DataError
from pate.rounds.model import MOST_WEIGHT, RoundModel
from pate.rounds.record_array import residual_sums
from pate.rounds.solver import Released, Start, chances, confirmed, next_model


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
    """Labels at random are confirmed one time in 44 at most: more than 11 of 100 have a chance below 1e-6."""
    codes, labels, (rows, _) = world(2, records=500)
    passed = {"records": 0, "noise": 0}
    for seed in range(100):
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
    assert passed["noise"] <= 11
    assert passed["records"] >= 60
    assert confirmed(rows, start, released[:1]) == confirmed(rows, start, []) == 0


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
