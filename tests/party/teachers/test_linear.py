"""Linear teachers: fixed features of images, ridge regression, and how well they learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from party.teachers.linear import VIEWS, WIDTH, Linear, View, fit_ridge, image_features
from pate.data.read import read_dataset
from pate.data.values import Dataset, Images
from tests.party.teachers.test_kinds import digits


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
