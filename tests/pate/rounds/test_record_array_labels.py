"""Several labels in rounds: what one unit changes, each array to the last bit, and the model."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import pytest

from pate.answers import Answer, answer_of
from pate.codes import GRID, Change, code_of
from pate.errors import DataError, UsageError
from pate.rounds import record_array
from pate.rounds.model import MOST_CUT, MOST_WEIGHT, RoundModel
from pate.rounds.record_array import CHANCE_GRID, label_chances, labels_unit, residual_sums
from pate.rounds.solver import Released, Start, chances, confirmed, next_model
from tests.support.changes import joined, largest, within

#: Codes of opposite records of the greatest length, and of others.
SPOTS: Final = ((GRID, 0), (-GRID, 0), (700, -700), (3, 1))
#: Two labels, and the column that counts records.
SAID: Final = tuple((*flags, 1) for flags in itertools.product((0, 1), repeat=2))
KINDS: Final = tuple(itertools.product(SPOTS, SAID))
MODELS: Final[dict[str, RoundModel | None]] = {
    "none, labels are counted": None,
    "usual": RoundModel(np.array([[2000, -1500, 0], [-300, 800, 0]]), GRID // 3),
    "extreme, cut at once": RoundModel(MOST_WEIGHT * np.array([[1, -1, 1], [-1, 1, 1]]), 1),
    "extreme, never cut": RoundModel(MOST_WEIGHT * np.array([[-1, 1, 0], [1, 1, 0]]), MOST_CUT),
    "even, cut at once": RoundModel(np.zeros((2, 3), np.int64), 1),
}
CLAIMED: Final = code_of("dense-2 residual-labels").change(1)
#: Added or removed: half the length.
HALF: Final = Change(CLAIMED.total // 2, CLAIMED.squared // 4, CLAIMED.counts)


def summed(kinds: Any, shown: RoundModel | None, units: Any = None) -> Any:
    chosen = [KINDS[at] for at in kinds]
    codes = np.array([spot for spot, _ in chosen], np.int64).reshape(-1, 2)
    labels = np.array([said for _, said in chosen], np.int64).reshape(-1, 3)
    return residual_sums(codes, labels, 3, shown, None if units is None else np.array(units))


@pytest.mark.parametrize("name", MODELS)
def test_a_patient_changes_what_is_claimed_and_no_more(name: str) -> None:
    """Of residual-labels: all 969 patients of up to three records come, go, and become each other."""
    patients = [
        world
        for size in range(4)
        for world in itertools.combinations_with_replacement(range(len(KINDS)), size)
    ]
    assert len(patients) == 969
    arrays = np.stack([summed(each, MODELS[name], [7] * len(each)) for each in patients])
    flat = arrays.reshape(len(arrays), -1)
    taken, altered = largest(flat), joined([largest(flat - each) for each in flat])
    assert within(taken, HALF)
    assert within(altered, CLAIMED)
    if name == "even, cut at once":  # opposite records come near to it
        assert altered.squared > 0.99 * CLAIMED.squared
    # A record is a patient of one, and adds the same beside others, whose units they are not.
    one = {each[0]: array for each, array in zip(patients, arrays, strict=True) if len(each) == 1}
    assert all(np.array_equal(summed([at], MODELS[name]), found) for at, found in one.items())
    together = summed(range(len(KINDS)), MODELS[name])
    assert np.array_equal(together, sum(one.values()))


def crowd(number: int, directions: int, labels: int) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(6)
    points = drawn.normal(size=(number, directions)) * drawn.lognormal(size=directions)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    codes = np.trunc(points * GRID * drawn.uniform(0.3, 1, (number, 1))).astype(np.int64)
    return codes, np.hstack(
        [drawn.integers(0, 2, (number, labels)), np.ones((number, 1), np.int64)]
    )


@pytest.mark.parametrize("labels", [2, 9, 255])
def test_an_array_is_its_records_own_and_no_longer(
    labels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, said = crowd(60, 8, labels)
    drawn = np.random.default_rng(5)
    usual = drawn.integers(-6000, 6000, (8, labels + 1))
    for shown in (None, RoundModel(usual, 300), RoundModel(usual, MOST_CUT), RoundModel(usual, 1)):
        arrays = record_array._arrays(codes, said, labels + 1, shown)
        assert np.array_equal(arrays, np.trunc(arrays))
        assert np.square(arrays).sum(axis=(1, 2)).max() <= GRID**2
        for parts in (1, 7, 10**6):
            monkeypatch.setattr(record_array, "_AT_ONCE", parts * 8 * (labels + 1))
            order = drawn.permutation(60)
            found = residual_sums(codes[order], said[order], labels + 1, shown)
            assert np.array_equal(found, arrays.sum(axis=0))


def test_an_array_is_the_gradient_of_each_label_but_for_rounding() -> None:
    codes, said = crowd(300, 16, 4)
    weights = np.random.default_rng(10).integers(-6000, 6000, (16, 5))
    likely = 1 / (1 + np.exp(-(codes @ weights) / (GRID * 2**10)))
    assert np.abs(label_chances(codes, RoundModel(weights, 1)) / CHANCE_GRID - likely).max() < 1e-4
    apart = likely - said
    apart[:, -1] = 0
    exact = codes[:, :, None] / GRID * apart[:, None, :]
    length = np.sqrt(np.square(exact).sum(axis=(1, 2)))[:, None, None]
    for cut in (100, 600, MOST_CUT):
        found = record_array._arrays(codes, said, 5, RoundModel(weights, cut)) / GRID
        assert np.abs(found - exact / np.maximum(length, cut / GRID)).max() < 1.2 / GRID


def test_the_first_round_counts_labels_and_records() -> None:
    codes, said = crowd(90, 5, 3)
    found = residual_sums(codes, said, 4, None)
    assert found[0].tolist() == (labels_unit(4) * said.sum(axis=0)).tolist()
    assert not found[1:].any()
    start = Start.of_first(found[0] / GRID, 0.0, answer_of("residual-labels"))
    assert start.records == 90
    assert np.allclose(start.shares, said[:, :-1].mean(axis=0))


def test_rounds_find_a_model_of_each_label() -> None:
    """From 5,000 records with little noise: the mean error of a probability has a margin of a third."""
    drawn = np.random.default_rng(1)
    points = np.hstack([drawn.normal(size=(6000, 3)), np.full((6000, 1), 1.0)])
    points /= 1.01 * np.linalg.norm(points, axis=1, keepdims=True)
    codes = np.trunc(points * GRID).astype(np.int64)
    weights = np.array([[3.0, 0, -2], [0, 2, 1], [0, -2, 1], [-1, 0.5, 0]])
    true = 1 / (1 + np.exp(-codes / GRID @ weights))
    said = np.hstack([drawn.random((6000, 3)) < true, np.ones((6000, 1), bool)]).astype(np.int64)
    rows = codes[5000:] / GRID
    first = residual_sums(codes[:5000], said[:5000], 4, None)
    start = Start.of_first(first[0] / GRID, 3.0 / GRID, answer_of("residual-labels"))
    released: list[Released] = []
    errors = []
    for _ in range(4):
        shown = next_model(rows, start, released)
        assert not shown.weights[:, -1].any()
        sums = residual_sums(codes[:5000], said[:5000], 4, shown) / GRID
        released.append(Released(shown, sums + drawn.normal(0, 5, sums.shape), 5.0))
        found = chances(rows, next_model(rows, start, released), start)
        assert np.allclose(found.mean(axis=0), start.shares, atol=1e-6)
        errors.append(np.abs(found - true[5000:]).mean())
    assert errors[-1] < 0.03
    assert errors[-1] <= errors[0]
    assert confirmed(rows, start, released) > 4


def test_what_is_no_answer_of_several_labels_is_refused() -> None:
    answer = answer_of("residual-labels")
    assert (answer.permission, answer.one_hot, answer.in_rounds) == ("labels", False, True)
    answer.check_columns(("u", "v", "none"))
    for names in (None, ("u", "none"), ("none", "u", "v"), ("u", "v", "w")):
        with pytest.raises(UsageError, match="residual-labels"):
            answer.check_columns(names)
    with pytest.raises(UsageError, match="dense codes"):
        code_of("nearest residual-labels")
    codes, said = crowd(3, 4, 2)
    for wrong in (said * 2, said[:2], said[:, :2], 1 - said):
        with pytest.raises(DataError):
            residual_sums(codes, wrong, 3, None)
    assert str(Answer("residual-labels")) == "residual-labels"
