"""Teachers that are fitted, or answer, together: the same as one by one, and nothing shared; and networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from party.teachers.by_records import Nearest
from party.teachers.linear import Linear, LinearTeacher, LookAt, product
from party.teachers.protocol import (
    NO_OPINION,
    AnswersTogether,
    Constant,
    FitsTogether,
    Shard,
    Teacher,
)
from party.teachers.training import kind_for, train_ensemble
from pate.data.values import Dataset, Images
from tests.party.teachers.test_kinds import digits, drawings
from tests.support.encoders.embedded import embedded_records

if TYPE_CHECKING:
    import torch
    from torch import nn

    from party.teachers.networks import Lesson

CLASSES = ("a", "b", "c")


def images(n: int, seed: int = 0) -> Dataset:
    """A bright field at one of three places."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, n)
    pixels = draw.integers(0, 60, (n, 9, 9, 1))
    for at, label in enumerate(labels.tolist()):
        pixels[at, 3 * label : 3 * label + 3, 2:7] += 120
    return Dataset(Images(pixels.astype(np.uint8)), labels.astype(np.int64), CLASSES)


@pytest.mark.parametrize("columns", [1, 7, 4096])
@pytest.mark.parametrize("of", ["images", "embeddings", "drawings"])
def test_answers_together_are_answers_alone(
    of: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = Nearest() if of == "drawings" else Linear()
    data = {
        "images": lambda: images(240),
        "embeddings": lambda: embedded_records(240),
        "drawings": lambda: drawings(range(3), 80, kinds=3),
    }[of]()
    monkeypatch.setattr("party.teachers.linear._COLUMNS_AT_ONCE", columns)
    assert isinstance(kind, AnswersTogether)
    queries = data.take(range(140, 240)).inputs
    members = [kind.fit(data.take(range(at, at + 20)), 0) for at in range(0, 140, 20)]
    two = kind.fit(data.take(np.flatnonzero(data.labels != 1)[:30]), 0)
    everyone: list[Teacher] = [Constant(1), *members, two, Constant(NO_OPINION)]
    together = kind.predict_many(everyone, 3, queries)
    alone = np.stack([member.predict(queries) for member in everyone])
    # Rounding may turn a tie; the random inputs have none that close.
    assert (together == alone).all()
    # A class that its shard lacks is never answered.
    assert set(together[-2].tolist()) <= {0, 2, NO_OPINION}
    others = kind.predict_many([two, *members, Constant(0)], 3, queries)
    assert (others[1:-1] == together[1:-2]).all()


def test_answers_of_one_do_not_hang_on_another_by_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    # What changes when a record of another's shard does: its weights, how it looks at images, how
    # many classes it has seen, or that it is there at all.
    data, queries = images(200), images(64, seed=2).inputs
    kept = Linear().fit(data.take(range(40)), 0)
    other = Linear().fit(data.take(range(40, 90)), 0)
    upright = LinearTeacher(
        LookAt(other.takes.images, "upright"),  # type: ignore[union-attr]
        other.seen,
        other.weights,
        other.bias,
    )
    narrow = LinearTeacher(other.takes, other.seen[:2], other.weights[:, :2], other.bias[:2])
    seen: list[NDArray[np.float32]] = []

    def spy(
        features: NDArray[np.float32], weights: NDArray[np.float32], device: str
    ) -> NDArray[np.float32]:
        found = product(features, weights, device)
        seen.append(found)
        return found

    monkeypatch.setattr("party.teachers.linear.product", spy)
    scores = []
    for beside in (other, upright, narrow, Constant(0)):
        seen.clear()
        Linear().predict_many([beside, kept, beside], len(CLASSES), queries)
        # The view of the teacher that is kept is the one in which it has scores.
        [own] = [found[:, 3:6] for found in seen if found[:, 3:6].any()]
        scores.append(own)
    for others in scores[1:]:
        assert (others == scores[0]).all()


def test_products_on_torch_are_those_of_numpy() -> None:
    draw = np.random.default_rng(0)
    features = draw.normal(size=(50, 30)).astype(np.float32)
    features.setflags(write=False)  # as features that are kept are
    weights = draw.normal(size=(30, 7)).astype(np.float32)
    # "meta" and "cuda" are not everywhere: PyTorch's own processor stands in for a GPU.
    found = product(features, weights, "cpu:0")
    np.testing.assert_allclose(found, features @ weights, rtol=1e-4, atol=1e-5)


def lessons(count: int, size: tuple[int, int, int]) -> list[Lesson]:
    import torch

    from party.teachers.networks import Lesson

    draw = torch.Generator().manual_seed(0)
    found = []
    for at in range(count):
        n = 5 + 30 * at  # below and above the size of a batch
        pixels = torch.rand(n, size[2], size[0], size[1], generator=draw) * 2 - 1
        seen = torch.tensor([True, True, at == 0])
        found.append(Lesson(pixels, torch.arange(n) % 2, seen, at))
    return found


def test_networks_trained_together_are_those_trained_alone() -> None:
    import torch

    from party.teachers import networks

    size = (8, 8, 1)

    def fresh() -> list[nn.Module]:
        made: list[nn.Module] = []
        for at in range(3):
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(at)
                made.append(networks.Plain(size, 3))
        return made

    alone, together, before = fresh(), fresh(), fresh()
    for one, lesson in zip(alone, lessons(3, size), strict=True):
        networks.train(one, lesson, "cpu", 2)
    networks.train_together(together, lessons(3, size), "cpu", 2)
    probe = lessons(1, size)[0].images
    for one, other, first in zip(alone, together, before, strict=True):
        scores, others, untrained = (held.eval()(probe) for held in (one, other, first))
        assert (scores - untrained).abs().max() > 0.05  # they did learn
        # AdamW's first steps move a weight by its gradient's sign: what is nearly 0 may differ.
        assert (scores - others).abs().max() < 0.02


def test_who_else_is_trained_does_not_matter() -> None:
    import torch

    from party.teachers import networks

    size = (8, 8, 1)

    def trained(held: list[Lesson]) -> dict[str, torch.Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            made: list[nn.Module] = [networks.Plain(size, 3) for _ in held]
        networks.train_together(made, held, "cpu", 2)
        return made[0].state_dict()

    first, second, third = lessons(3, size)
    one, other = trained([first, second]), trained([first, third])
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_cnn_accuracy_on_digits() -> None:
    from party.teachers.networks import Cnn

    test = digits().take(range(1200, 1797))
    teacher = Cnn("cpu").fit(digits().take(range(200)), 5)
    assert (teacher.predict(test.inputs) == test.labels).mean() > 0.85


def test_networks_take_any_size_and_are_fitted_one_by_one_on_a_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from party.teachers.networks import CnnTogether

    monkeypatch.setattr("party.teachers.networks.STEPS", 1)
    draw = np.random.default_rng(0)
    for size in ((1, 1, 1), (5, 40, 3), (64, 64, 1)):
        pixels = draw.integers(0, 256, (4, *size), dtype=np.uint8)
        data = Dataset(Images(pixels), np.array([0, 1, 0, 1]), ("a", "b"))
        kind = kind_for("cnn", data.inputs, "cpu")
        assert not isinstance(kind, FitsTogether)
        assert kind.fit(data, 0).predict(data.inputs).shape == (4,), size
    assert isinstance(CnnTogether("cpu"), FitsTogether)


def test_many_networks_of_shards_that_are_empty_or_of_one_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from party.teachers.networks import CnnTogether

    monkeypatch.setattr("party.teachers.networks.STEPS", 2)
    monkeypatch.setattr("party.teachers.networks._TOGETHER", 2)
    data = images(60)
    one_class = np.flatnonzero(data.labels == 1)
    shards: list[Shard] = [
        (np.arange(20), 1), (np.arange(0), 2), (one_class, 3), (np.arange(20, 50), 4),
    ]  # fmt: skip
    kind = CnnTogether("cpu")
    found = list(kind.fit_many(data, shards))
    assert len(found) == 4
    assert found[3].seen.tolist() == [0, 1, 2]
    queries = images(40, seed=1).inputs
    for at in (0, 3):
        alone = kind.fit(data.take(shards[at][0]), shards[at][1])
        assert (alone.predict(queries) == found[at].predict(queries)).mean() > 0.9


class _Counting(Linear):
    """Teachers that are fitted together, with a note of who asked."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.asked: list[int] = []
        self.stop_after: int | None = None

    def fit_many(self, data: Dataset, shards: Sequence[Shard]) -> Iterator[LinearTeacher]:
        self.asked.append(len(shards))
        for at, (rows, seed) in enumerate(shards):
            if at == self.stop_after:
                raise KeyboardInterrupt
            yield self.fit(data.take(rows), seed)


def test_teachers_fitted_together_are_stored_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = _Counting()
    monkeypatch.setattr("party.teachers.training.kind_for", lambda *_: kind)
    data = images(120)
    steps: list[tuple[int, int]] = []

    def train() -> NDArray[np.int64]:
        steps.clear()
        ensemble = train_ensemble(
            data, teachers=5, model="linear", device="cpu", home=tmp_path, key=b"k",
            progress=lambda done, total: steps.append((done, total)),
        )  # fmt: skip
        return ensemble.vote(images(50, seed=1).inputs, range(50), CLASSES)

    kind.stop_after = 2
    with pytest.raises(KeyboardInterrupt):
        train()
    assert steps == [(0, 5), (1, 5), (2, 5)]
    kind.stop_after = None
    votes = train()
    assert kind.asked == [5, 3]  # the two that were stored are used again
    assert steps == [(done, 5) for done in range(2, 6)]  # those two at once: they took no time
    assert (train() == votes).all()
    assert kind.asked == [5, 3, 0]
