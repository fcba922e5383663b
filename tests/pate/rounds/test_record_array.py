"""What one unit changes in the sum of residuals: every tiny world, every model, and planted bugs."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

from pate.answers import MOST_CLASSES
from pate.codes import GRID, Change, code_of
from pate.errors import DataError, ProtocolError
from pate.rounds import record_array
from pate.rounds.model import MOST_CUT, MOST_WEIGHT, RoundModel
from pate.rounds.record_array import CHANCE_GRID, chances, residual_sums
from tests.support.changes import joined, largest, within
from tests.support.needs import others_slow

Sums: TypeAlias = Callable[..., np.ndarray]

#: Opposite records of the greatest length, others, and one at the middle.
SPOTS: Final = ((GRID, 0), (-GRID, 0), (700, -700), (3, 1), (0, 0))
CLASSES: Final = 2
KINDS: Final = tuple(itertools.product(SPOTS, range(CLASSES)))
MODELS: Final[dict[str, RoundModel | None]] = {
    "none, classes are counted": None,
    "of class shares": RoundModel(np.array([[500, -500], [0, 0]]), GRID // 2),
    "usual": RoundModel(np.array([[2000, -1500], [-300, 800]]), GRID // 3),
    "extreme, cut at once": RoundModel(MOST_WEIGHT * np.array([[1, -1], [-1, 1]]), 1),
    "extreme, never cut": RoundModel(MOST_WEIGHT * np.array([[-1, 1], [1, 1]]), 2 * GRID),
    "even, cut at once": RoundModel(np.zeros((2, 2), np.int64), 1),
    "even, never cut": RoundModel(np.zeros((2, 2), np.int64), 2 * GRID),
}
CLAIMED: Final = code_of("dense-2 residual").change(1)
#: Added or removed: half the length.
HALF: Final = Change(CLAIMED.total // 2, CLAIMED.squared // 4, CLAIMED.counts)


def summed(
    kinds: Any, shown: RoundModel | None, units: Any = None, sums: Sums = residual_sums
) -> Any:
    """The sum of records of these kinds."""
    chosen = [KINDS[at] for at in kinds]
    codes = np.array([spot for spot, _ in chosen], np.int64).reshape(-1, 2)
    labels = np.array([label for _, label in chosen], np.int64)
    whose = None if units is None else np.array(units, np.int64)
    return sums(codes, labels, CLASSES, shown, whose)


def record_worlds(
    shown: RoundModel | None, sums: Sums = residual_sums, records: int = 2
) -> dict[tuple[int, ...], Any]:
    """Sums of all worlds of at most so many records in every order: of two 111, of three 1,111."""
    return {
        world: summed(world, shown, sums=sums)
        for size in range(records + 1)
        for world in itertools.product(range(len(KINDS)), repeat=size)
    }


def record_changes(made: dict[tuple[int, ...], Any]) -> tuple[Change, Change]:
    """The largest change by a record that is added or removed, and by one that is altered."""
    taken, altered = [], []
    for world, found in made.items():
        for at in range(len(world)):
            taken.append(found - made[world[:at] + world[at + 1 :]])
            altered += [
                found - made[(*world[:at], other, *world[at + 1 :])] for other in range(len(KINDS))
            ]
    return largest(np.array(taken)), largest(np.array(altered))


#: Which of a model's tiny worlds are tried: of at most so many records.
WORLDS: Final = [*itertools.product(MODELS, [2]), *itertools.product(MODELS, [3])]


@pytest.mark.parametrize(
    ("name", "records"), others_slow(WORLDS, lambda case: case[1] == 2 or case[0] == "usual")
)
def test_one_record_changes_what_is_claimed_and_no_more(name: str, records: int) -> None:
    """Each record with each class, added, removed and altered, beside one or two others."""
    made = record_worlds(MODELS[name], records=records)
    one = [made[at,] for at in range(len(KINDS))]
    for world, found in made.items():
        assert np.array_equal(found, sum((one[at] for at in world), np.zeros((2, 2), np.int64)))
    taken, altered = record_changes(made)
    assert within(taken, HALF)
    assert within(altered, CLAIMED)
    if name == "even, cut at once":  # opposite records, or classes, come near to it
        assert altered.squared > 0.99 * CLAIMED.squared


@cache
def patients(records: int) -> tuple[tuple[int, ...], ...]:
    """All patients of at most so many records, in one order: of three 286, of four 1,001."""
    return tuple(
        world
        for size in range(records + 1)
        for world in itertools.combinations_with_replacement(range(len(KINDS)), size)
    )


def patient_changes(
    shown: RoundModel | None, sums: Sums = residual_sums, records: int = 3
) -> tuple[Change, Change]:
    """The largest change by a patient who comes or goes, and by one with other records."""
    arrays = np.stack([summed(each, shown, [7] * len(each), sums) for each in patients(records)])
    flat = arrays.reshape(len(arrays), -1)
    pairs = [largest(flat - each) for each in flat]
    return largest(flat), joined(pairs)


@pytest.mark.parametrize(
    ("name", "records"),
    others_slow(itertools.product(MODELS, [3, 4]), lambda case: case[1] == 3),
)
def test_one_patient_changes_what_is_claimed_and_no_more(name: str, records: int) -> None:
    """With one to four records of any kinds, or none, and any others before or after."""
    taken, altered = patient_changes(MODELS[name], records=records)
    assert within(taken, HALF)
    assert within(altered, CLAIMED)
    assert taken.squared > 0.99 * HALF.squared


@pytest.mark.parametrize("name", MODELS)
def test_a_patient_adds_what_is_its_own_in_any_order_and_beside_anyone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, drawn = MODELS[name], np.random.default_rng(3)
    for number in range(70):
        whose = drawn.integers(0, 4, drawn.integers(1, 12))
        kinds = drawn.integers(0, len(KINDS), len(whose))
        own = [summed(kinds[whose == at], shown, whose[whose == at]) for at in set(whose.tolist())]
        order = drawn.permutation(len(whose))
        # From one array in memory to all of them.
        monkeypatch.setattr(record_array, "_AT_ONCE", 4 * (1 + number % 7))
        found = summed(kinds[order], shown, (whose * 10**12 - 5)[order])
        assert np.array_equal(found, sum(own))
        # A patient of one record is that record.
        alone = summed(kinds, shown, np.arange(len(kinds)))
        assert np.array_equal(alone, summed(kinds, shown))


# --- a record's own array, to the last bit --------------------------------------------------------


def crowd(number: int, directions: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(seed)
    points = drawn.normal(size=(number, directions)) * drawn.lognormal(size=directions)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    codes = np.trunc(points * GRID * drawn.uniform(0.3, 1, (number, 1))).astype(np.int64)
    return codes, drawn.integers(0, classes, number)


def shown_models(directions: int, classes: int) -> list[RoundModel]:
    drawn = np.random.default_rng(5)
    usual = drawn.integers(-6000, 6000, (directions, classes))
    signs = drawn.choice([-1, 1], (directions, classes))
    return [
        RoundModel(usual, 300),
        RoundModel(usual, MOST_CUT),
        RoundModel(MOST_WEIGHT * signs, 1),
        RoundModel(drawn.integers(-MOST_WEIGHT, MOST_WEIGHT, (directions, classes)), MOST_CUT),
    ]


def is_own(shown: RoundModel | None, classes: int, sums: Sums = residual_sums) -> bool:
    """Whether records add what each adds by itself: all, in another order, in parts, beside others."""
    directions, number = (16 if shown is None else shown.weights.shape[0]), 203
    codes, labels = crowd(number, directions, classes, 6)
    one = [sums(codes[at : at + 1], labels[at : at + 1], classes, shown) for at in range(number)]
    drawn = np.random.default_rng(7)
    chosen = [
        np.arange(number),
        drawn.permutation(number),
        np.arange(7, 100),
        np.arange(0, number, 2),
    ]
    chosen += [drawn.choice(number, size, replace=False) for size in (2, 3, 5, 9, 17, 33)]
    for some in chosen:
        if not np.array_equal(
            sums(codes[some], labels[some], classes, shown), sum(one[at] for at in some)
        ):
            return False
    return True


@pytest.mark.parametrize(("directions", "classes"), [(2, 2), (16, 3), (64, 10)])
def test_an_array_is_its_records_own_to_the_last_bit(
    directions: int, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shown in shown_models(directions, classes):
        for parts in (1, 3, 50, 10**6):
            monkeypatch.setattr(record_array, "_AT_ONCE", parts * directions * classes)
            assert is_own(shown, classes)
    assert is_own(None, classes)


@pytest.mark.parametrize(
    ("directions", "classes"), [(2, 2), (64, 10), (1024, 3), (2, MOST_CLASSES)]
)
def test_no_model_makes_an_array_longer(directions: int, classes: int) -> None:
    codes, labels = crowd(64, directions, classes, 8)
    codes[0], codes[1] = 0, 0
    codes[1, 0] = -GRID
    for shown in shown_models(directions, classes):
        arrays = record_array._arrays(codes, labels, classes, shown)
        assert np.isfinite(arrays).all()
        assert np.array_equal(arrays, np.trunc(arrays))
        assert np.square(arrays).sum(axis=(1, 2)).max() <= GRID**2
        assert not arrays[0].any()
        found = chances(codes, shown)
        assert found.min() >= 0
        # Each is rounded by itself.
        assert np.abs(found.sum(axis=1) - CHANCE_GRID).max() <= classes / 2
    # In whole numbers nearly all of a cut array is left.
    cut = record_array._arrays(codes[1:], labels[1:], classes, shown_models(directions, classes)[2])
    length = np.sqrt(np.square(cut).sum(axis=(1, 2)))
    assert length.max() > (0.99 if directions * classes < 1000 else 0.9) * GRID


def test_an_array_is_the_gradient_of_the_shown_model_but_for_rounding() -> None:
    codes, labels = crowd(500, 16, 4, 9)
    weights = np.random.default_rng(10).integers(-6000, 6000, (16, 4))
    logits = codes @ weights / (GRID * 2**10)
    likely = np.exp(logits - logits.max(axis=1, keepdims=True))
    apart = likely / likely.sum(axis=1, keepdims=True) - np.eye(4)[labels]
    exact = codes[:, :, None] / GRID * apart[:, None, :]
    length = np.sqrt(np.square(exact).sum(axis=(1, 2)))[:, None, None]
    for cut in (100, 600, MOST_CUT):
        wanted = exact / np.maximum(length, cut / GRID)
        found = record_array._arrays(codes, labels, 4, RoundModel(weights, cut)) / GRID
        assert np.abs(found - wanted).max() < 1.2 / GRID
    assert (
        np.abs(
            chances(codes, RoundModel(weights, 1)) / CHANCE_GRID - (apart + np.eye(4)[labels])
        ).max()
        < 1e-4
    )


def test_the_first_round_counts_classes() -> None:
    codes, labels = crowd(90, 5, 3, 11)
    found = residual_sums(codes, labels, 3, None)
    assert found[0].tolist() == (GRID * np.bincount(labels)).tolist()
    assert not found[1:].any()


def test_exponentials_are_taken_one_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many for any model: time says nothing about a record. And none is numpy's."""
    asked = []

    def counted(value: float) -> float:
        asked.append(type(value))
        return math.exp(value)

    codes, labels = crowd(50, 16, 4, 12)
    monkeypatch.setattr(record_array, "math", type("Math", (), {"exp": staticmethod(counted)}))
    for at, shown in enumerate(shown_models(16, 4), 1):
        residual_sums(codes, labels, 4, shown)
        assert asked == [float] * 200 * at
    used = {
        f"{ast.unparse(node.value)}.{node.attr}"
        for node in ast.walk(ast.parse(Path(record_array.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    assert "math.exp" in used
    vectorised = ("exp", "exp2", "expm1", "log", "power", "logaddexp", "linalg.norm")
    assert not used & {f"np.{each}" for each in vectorised}


# --- what is refused ------------------------------------------------------------------------------


def test_what_are_no_records_of_the_code_is_refused() -> None:
    codes, labels = crowd(4, 3, 2, 13)
    shown = RoundModel(np.zeros((3, 2), np.int64), 5)
    least = np.full((4, 3), np.iinfo(np.int64).min)
    wrong: list[tuple[Any, Any, Any]] = [
        (codes + 2 * GRID, labels, 2), (least, labels, 2), (np.full((4, 3), GRID), labels, 2),
        (codes.astype(float), labels, 2), (codes[0], labels, 2), (codes[:, :1], labels, 2),
        (codes, labels + 2, 2), (codes, labels - 2, 2), (codes, labels[:3], 2), (codes, labels, 1),
        (codes, labels, MOST_CLASSES + 1),
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(DataError):
            residual_sums(*given, shown)
    with pytest.raises(DataError, match="units of shape"):
        residual_sums(codes, labels, 2, shown, np.zeros(3, np.int64))
    with pytest.raises(ProtocolError, match="not"):
        residual_sums(codes, labels, 3, shown)
    assert not residual_sums(codes[:0], labels[:0], 2, shown).any()
    assert not residual_sums(codes[:0], labels[:0], 2, shown, labels[:0]).any()


def test_a_patient_with_more_records_than_can_be_squared_casts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error would be the party's: one patient would end its part in the campaign."""
    monkeypatch.setattr(record_array, "_MOST_RECORDS", 3)
    codes, labels = crowd(8, 3, 2, 14)
    shown = RoundModel(np.zeros((3, 2), np.int64), 5)
    units = np.array([0, 1, 1, 1, 2, 1, 0, 0])
    others = residual_sums(codes[units != 1], labels[units != 1], 2, shown, units[units != 1])
    assert others.any()
    np.testing.assert_array_equal(residual_sums(codes, labels, 2, shown, units), others)


# --- planted bugs: each is seen by what the tests above look at ------------------------------------


def cut_by_the_others(codes: Any, labels: Any, classes: int, shown: Any, units: Any = None) -> Any:
    """At the usual length of the records themselves."""
    if shown is None or not len(codes):
        return residual_sums(codes, labels, classes, shown, units)
    apart = chances(codes, shown) / CHANCE_GRID - np.eye(classes)[labels]
    length = np.sqrt(np.square(codes).sum(axis=1) * np.square(apart).sum(axis=1))
    cut = int(np.clip(np.median(length), 1, MOST_CUT))
    return residual_sums(codes, labels, classes, RoundModel(shown.weights, cut), units)


def beside_the_others(codes: Any, labels: Any, classes: int, shown: Any, units: Any = None) -> Any:
    """Less the mean of the batch."""
    centred = codes if len(codes) < 2 else codes - codes.sum(axis=0) // (2 * len(codes))
    long = np.square(centred).sum(axis=1) > GRID**2
    return residual_sums(np.where(long[:, None], codes, centred), labels, classes, shown, units)


def vectorised(codes: Any, labels: Any, classes: int, shown: Any, units: Any = None) -> Any:
    """Eight exponentials at once in lanes of less precision, those that are left by themselves."""

    def lanes(values: Any) -> Any:
        full = values.size // 8 * 8
        flat = values.ravel()
        made = np.concatenate([np.exp(flat[:full].astype(np.float16)), np.exp(flat[full:])])
        return made.reshape(values.shape)

    def bent(codes: Any, shown: RoundModel) -> Any:
        logits = codes.astype(float) @ shown.weights.astype(float) / (GRID * 2**10)
        sizes = np.trunc(lanes(logits - logits.max(axis=1, keepdims=True)) * 2.0**38)
        return np.rint(sizes * CHANCE_GRID / sizes.sum(axis=1, keepdims=True)).astype(np.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_array, "chances", bent)
        return residual_sums(codes, labels, classes, shown, units)


def patients_by_record(codes: Any, labels: Any, classes: int, shown: Any, units: Any = None) -> Any:
    """Each record is cut, and a patient's sum is not."""
    return residual_sums(codes, labels, classes, shown)


def longer(codes: Any, labels: Any, classes: int, shown: Any, units: Any = None) -> Any:
    return residual_sums(codes, labels, classes, shown, units) * 9 // 8


def records_stand(sums: Sums) -> bool:
    """Whether a bug in records' arrays would be seen by none of the worlds."""
    for shown in MODELS.values():
        taken, altered = record_changes(record_worlds(shown, sums))
        if not within(taken, HALF) or not within(altered, CLAIMED):
            return False
    return True


def patients_stand(sums: Sums) -> bool:
    for shown in MODELS.values():
        taken, altered = patient_changes(shown, sums)
        if not within(taken, HALF) or not within(altered, CLAIMED):
            return False
    return True


def own_stand(sums: Sums) -> bool:
    return all(is_own(shown, 10, sums) for shown in shown_models(64, 10))


@pytest.mark.parametrize(
    ("bug", "stands"),
    [
        (cut_by_the_others, records_stand),
        (cut_by_the_others, own_stand),
        (beside_the_others, own_stand),
        (vectorised, own_stand),
        (longer, records_stand),
        (patients_by_record, patients_stand),
    ],
)
def test_planted_bugs_are_seen(bug: Sums, stands: Callable[[Sums], bool]) -> None:
    assert not stands(bug)
