"""Teachers of images by ridge regression, and of tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from party.teachers.linear import VIEWS, WIDTH, Linear, View, fit_ridge, image_features
from party.teachers.protocol import DamagedTeacherError, Stored
from party.teachers.schema import NumberColumn, TableEncoding
from party.teachers.tables import Boosting, Chosen, Forest, choose
from pate.data.read import read_dataset
from pate.data.values import Dataset, Images, Table
from tests.party.teachers.test_kinds import digits, labelled


def random_images(n: int, *size: int) -> Images:
    return Images(np.random.default_rng(0).integers(0, 256, (n, *size), dtype=np.uint8))


@pytest.mark.parametrize("view", VIEWS)
def test_features_of_any_size(view: View) -> None:
    for size in ((1, 1, 1), (2, 5, 3), (8, 8, 1), (28, 28, 1), (32, 32, 3), (150, 90, 3)):
        features = image_features(random_images(3, *size), view)
        assert features.shape == (3, WIDTH), size
        assert features.dtype == np.float32
        assert np.isfinite(features).all(), size


@pytest.mark.parametrize("view", VIEWS)
def test_features_do_not_hang_on_the_batch(view: View) -> None:
    # 400 images of 32 x 32 are computed in pieces.
    images = random_images(400, 32, 32, 1)
    alone = np.concatenate([image_features(images.take([at]), view) for at in (0, 255, 256, 399)])
    np.testing.assert_allclose(image_features(images, view)[[0, 255, 256, 399]], alone, atol=1e-4)


@pytest.mark.parametrize("view", VIEWS)
def test_features_approximate_the_gaussian_kernel_of_unit_vectors(view: View) -> None:
    # Rows x of features satisfy x.y ~ exp(-|u - v|^2), so x.x ~ 1; the error of 2048 random
    # features is about 1/sqrt(2048) = 0.022 a pair. The features are fixed: no chance in this.
    features = image_features(random_images(20, 28, 28, 1), view)
    gram = features @ features.T
    assert np.abs(np.diag(gram) - 1).max() < 0.1
    assert gram.min() > np.exp(-4) - 0.1


@pytest.mark.parametrize("view", VIEWS)
def test_blank_images_have_features(view: View) -> None:
    assert np.isfinite(image_features(Images(np.zeros((2, 8, 8, 1), np.uint8)), view)).all()


def test_ridge_primal_and_dual_agree_with_the_normal_equations() -> None:
    draw = np.random.default_rng(0)
    for n, d in ((200, 5), (20, 30)):
        features = draw.normal(size=(n, d)).astype(np.float32)
        labels = (features[:, 0] + draw.normal(scale=0.5, size=n) > 0).astype(np.int64)
        weights, bias, _ = fit_ridge(features, labels, 2)
        targets = np.where(labels[:, None] == np.arange(2), 1.0, -1.0)
        x = features.astype(np.float64) - features.mean(0)
        # The penalty is not returned: it is one of the grid, so one of these solutions is equal.
        total = np.square(x).sum() / n
        solutions = [
            np.linalg.solve(x.T @ x + 10 ** (s / 2) * total * np.eye(d), x.T @ targets)
            for s in range(-6, 5)
        ]
        assert min(np.abs(weights - solution).max() for solution in solutions) < 1e-3
        np.testing.assert_allclose(bias, targets.mean(0) - features.mean(0) @ weights, atol=1e-4)


def test_ridge_of_rows_that_are_all_alike() -> None:
    weights, bias, error = fit_ridge(np.ones((3, 4), np.float32), np.array([0, 1, 1]), 2)
    assert not weights.any()
    assert bias.argmax() == 1
    assert error == pytest.approx(8 / 9)  # the variance of the targets, -1, 1, 1 and the opposite


def test_the_error_left_out_is_that_of_leaving_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("party.teachers.linear._PENALTIES", np.array([0.1]))
    draw = np.random.default_rng(1)
    n, d = 14, 3
    x = draw.normal(size=(n, d)).astype(np.float32)
    labels = np.arange(n) % 3
    # The penalty is a share of the variance of all rows, so it stays as the row is left out.
    penalty = 0.1 * np.square(x - x.mean(0)).sum() / n
    targets = np.where(labels[:, None] == np.arange(3), 1.0, -1.0)
    residuals = []
    for out in range(n):
        kept = np.delete(np.arange(n), out)
        middle, level = x[kept].mean(0), targets[kept].mean(0)
        rows = x[kept] - middle
        weights = np.linalg.solve(
            rows.T @ rows + penalty * np.eye(d), rows.T @ (targets[kept] - level)
        )
        residuals.append(targets[out] - (x[out] - middle) @ weights - level)
    assert fit_ridge(x, labels, 3).error == pytest.approx(np.mean(np.square(residuals)), rel=1e-4)


def test_each_shard_decides_how_to_look(test_data: Path) -> None:
    raw = test_data / "mnist" / "MNIST" / "raw"
    digits = read_dataset(raw / "t10k-images-idx3-ubyte.gz").take(range(200))
    # Digits are drawn slanted on an empty ground; where the same image is told apart by the place
    # of a bright field alone, an image set upright has lost what matters.
    draw = np.random.default_rng(0)
    labels = np.arange(200) % 4
    pixels = draw.integers(0, 40, (200, 28, 28, 1)).astype(np.uint8)
    for at, label in enumerate(labels.tolist()):
        down, across = 4 + 12 * (label // 2), 4 + 12 * (label % 2)
        pixels[at, down : down + 8, across : across + 8] = 200
    fields = Dataset(Images(pixels), labels, ("a", "b", "c", "d"))
    assert Linear().fit(digits, 0).store().facts["view"] == "upright"
    assert Linear().fit(fields, 0).store().facts["view"] != "upright"


@pytest.mark.slow
def test_linear_accuracy_on_digits() -> None:
    # Measured: 0.76 a teacher at 25 records, of which some 7 % of digits have none.
    test = digits().take(range(1200, 1797))
    accuracies = [
        (
            Linear().fit(digits().take(range(at, at + 25)), 0).predict(test.inputs) == test.labels
        ).mean()
        for at in range(0, 1000, 50)
    ]
    assert np.mean(accuracies) > 0.70


@pytest.mark.slow
def test_linear_accuracy_on_mnist(test_data: Path) -> None:
    raw = test_data / "mnist" / "MNIST" / "raw"
    train, test = read_dataset(raw), read_dataset(raw / "t10k-images-idx3-ubyte.gz")
    test = test.take(range(1000))
    accuracies = [
        (
            Linear().fit(train.take(range(at, at + 240)), 0).predict(test.inputs) == test.labels
        ).mean()
        for at in range(0, 720, 240)
    ]
    assert np.mean(accuracies) > 0.96


def test_encoding_by_hand() -> None:
    shard = Table(
        ("v", "c"), (np.array([1.0, 3.0, np.nan]), np.array(["x", "", "x"], dtype=np.str_))
    )
    encoding = TableEncoding.fit(shard)
    assert encoding.columns[0] == NumberColumn(centre=2.0, scale=1.0)
    query = Table(
        ("v", "c"), (np.array([4.0, np.nan]), np.array(["never seen", "x"], dtype=np.str_))
    )
    assert encoding.encode(query).tolist() == [[2.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]


def test_encoding_survives_json_and_huge_values() -> None:
    shard = Table(("v",), (np.array([1e308, -1e308, np.nan]),))
    encoding = TableEncoding.fit(shard)
    again = TableEncoding.from_facts(json.loads(json.dumps(encoding.facts())))
    assert again == encoding
    assert not np.isnan(again.encode(table_of(0.0))).any()


def table_of(value: float) -> Table:
    return Table(("v",), (np.array([value]),))


@pytest.mark.parametrize(
    "facts", [None, [], {}, {"names": ["a"], "columns": []}, {"names": ["a"], "columns": [{}]}]
)
def test_damaged_encoding(facts: object) -> None:
    with pytest.raises(DamagedTeacherError):
        TableEncoding.from_facts(facts)


def test_frequent_categories_win() -> None:
    cells = [f"rare {at}" for at in range(60)] + ["often"] * 3
    encoding = TableEncoding.fit(Table(("c",), (np.array(cells, dtype=np.str_),)))
    encoded = encoding.encode(Table(("c",), (np.array(["often", "rare 9"], dtype=np.str_),)))
    assert encoded.shape == (2, 32)
    assert encoded[0].sum() == 1


def test_foreign_types_are_never_loaded() -> None:
    import skops.io
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    kind = Forest()
    stored = kind.fit(labelled(50), 0).store()
    foreign = Pipeline([("f", FunctionTransformer(print)), ("m", RandomForestClassifier())])
    with pytest.raises(DamagedTeacherError):
        kind.restore(replace(stored, model=skops.io.dumps(foreign)))
    # A harmless type of scikit-learn, but not the one that this kind makes.
    boosting = Boosting().fit(labelled(50), 0).store()
    with pytest.raises(DamagedTeacherError, match="GradientBoosting"):
        kind.restore(boosting)


def test_large_shards_are_boosted_on_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("party.teachers.tables._SMALL", 99)
    small, large = labelled(90), labelled(100)
    kind = Boosting()
    assert type(kind.fit(small, 0).model).__name__ == "GradientBoostingClassifier"
    teacher = kind.fit(large, 0)
    assert type(teacher.model).__name__ == "HistGradientBoostingClassifier"
    assert (
        kind.restore(teacher.store()).predict(large.inputs) == teacher.predict(large.inputs)
    ).all()


def sums(n: int, seed: int) -> Dataset:
    """Many weak numbers that add up: no tree sees enough of them."""
    values = np.random.default_rng(seed).normal(size=(20, n))
    names = tuple(f"c{at}" for at in range(20))
    labels = (values.sum(axis=0) > 0).astype(np.int64)
    return Dataset(Table(names, tuple(values)), labels, ("no", "yes"))


def parity(n: int, seed: int) -> Dataset:
    """Two signs that must be multiplied: a line can't."""
    values = np.random.default_rng(seed).normal(size=(2, n))
    labels = (values[0] * values[1] > 0).astype(np.int64)
    return Dataset(Table(("a", "b"), tuple(values)), labels, ("no", "yes"))


def test_a_shard_chooses_what_errs_least() -> None:
    assert choose(sums(90, 0), 0).name == "logistic"
    assert choose(parity(120, 0), 0).name in ("boosting", "forest")
    test = sums(500, 1)
    answers = Chosen().fit(sums(90, 0), 0).predict(test.inputs)
    assert (answers == test.labels).mean() > 0.85


def test_small_or_one_sided_shards_do_not_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("party.teachers.tables._FOLDS", 0)  # choosing at all would fail
    assert choose(sums(59, 0), 0).name == "prior"
    many = sums(300, 0)
    rows = np.concatenate([np.flatnonzero(many.labels == 0), np.flatnonzero(many.labels == 1)[:5]])
    assert choose(many.take(rows), 0).name == "forest"
    with pytest.raises(ValueError, match="at least one train/test split"):
        choose(sums(60, 0), 0)


def test_a_choice_survives_rare_classes() -> None:
    data = labelled(70)
    labels = data.labels.copy()
    labels[0] = 4  # one record of this class: it is in no more than one fold
    assert Chosen().fit(Dataset(data.inputs, labels, data.classes), 0).predict(data.inputs).any()


def test_a_damaged_choice() -> None:
    stored = Chosen().fit(labelled(62), 0).store()
    wrong: list[dict[str, object]] = [
        {},
        {"chosen": "linear", "facts": {}},
        {"chosen": stored.facts["chosen"]},
    ]
    for facts in wrong:
        with pytest.raises(DamagedTeacherError):
            Chosen().restore(Stored(facts, stored.model))
