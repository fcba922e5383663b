"""Models without privacy by scikit-learn: of all records in one place, and of each party by itself.

For tables boosted trees, a forest and a linear model; for embeddings softmax regression, a perceptron of
one hidden layer and nearest neighbours; for images ridge regression and a perceptron on scattering
features. Of the pooled images the student's own network, too, trained with every label, as it is and
calibrated: the same architecture, augmentation, optimiser and schedule as the default student's, without
its techniques for few labels.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from benchmarks import measure
from benchmarks.data import units_of
from benchmarks.methods.method import Fitted, Method
from benchmarks.problem import embedding, points
from benchmarks.record import Cost
from pate.data.embeddings import Embeddings
from pate.data.values import Images, Table
from student.fit.rows import TableStudent, fit_head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from benchmarks.data import Split
    from benchmarks.measure import Truth
    from benchmarks.methods.method import Setting
    from benchmarks.problem import Problem
    from pate.data.values import Dataset
    from pate.runtime.screen import Screen
    from student.fit.network import ImageStudent
    from student.lesson import Student

Floats: TypeAlias = "NDArray[np.floating]"
#: Gives the scores of rows: (n, d) to (n, classes), (n, labels), or (n, 1) of a number.
Scores: TypeAlias = Callable[[Floats], Floats]
#: One unit in this many chooses a model's own parameters, or stops its training.
_HELD: Final = 10
_PENALTIES: Final = (1e-5, 3e-5, 1e-4, 3e-4)
_TREES: Final = {
    "learning_rate": 0.05, "max_iter": 1_000, "early_stopping": True, "n_iter_no_change": 20,
}  # fmt: skip
_FOREST: Final = {"n_estimators": 300, "min_samples_leaf": 5, "max_features": "sqrt", "n_jobs": 2}
_PERCEPTRON: Final = {"hidden_layer_sizes": (256,), "alpha": 1e-4, "max_iter": 60, "tol": 1e-4}
_NEAREST: Final = 15
#: Of the network: images in a step, rate, share of the steps that warms up, weight of the past in the mean.
_BATCH, _RATE, _WARM_UP, _MEMORY = 64, 0.1, 0.2, 0.995
#: Thirty epochs, at most twice the student's steps.
_EPOCHS, _FEWEST, _MOST = 30, 800, 8_400
NETWORK: Final = "the student's network, with every label"


@dataclass(frozen=True)
class Lesson:
    """What a model learns from: rows (n, d), labels (n,), (n, labels) or numbers (n,), and their kind.

    ``held`` (n,) are rows that choose a model's own parameters or stop it, and are not fitted.
    """

    rows: Floats
    truth: Truth
    kind: str
    classes: int
    held: NDArray[np.bool_]
    seed: int


Fit: TypeAlias = Callable[[Lesson], Scores]


def output(student: Student, test: Dataset) -> Floats:
    """Return what a student says of records, as measures take it."""
    if test.kind == "number":
        assert isinstance(student, TableStudent)  # no other student has such answers
        return np.stack(student.predict_numbers(test.inputs), axis=1)
    found = student.predict_probabilities(test.inputs)
    return found[:, [student.classes.index(name) for name in test.classes]]


def _trees(lesson: Lesson) -> Scores:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    def fit(make: Any, truth: Truth) -> Any:
        fitted, held = ~lesson.held, lesson.held
        return make(**_TREES, random_state=lesson.seed).fit(
            lesson.rows[fitted], truth[fitted], X_val=lesson.rows[held], y_val=truth[held]
        )

    number = partial(HistGradientBoostingRegressor, loss="absolute_error")
    return _for_each_answer(lesson, fit, HistGradientBoostingClassifier, number)


def _forest(lesson: Lesson) -> Scores:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    def fit(make: Any, truth: Truth) -> Any:
        return make(**_FOREST, random_state=lesson.seed).fit(lesson.rows, truth)

    return _for_each_answer(lesson, fit, RandomForestClassifier, RandomForestRegressor)


def _linear(lesson: Lesson) -> Scores:
    from sklearn.linear_model import LogisticRegression, RidgeCV

    def fit(make: Any, truth: Truth) -> Any:
        return _standardised(make()).fit(lesson.rows, truth)

    classes = partial(LogisticRegression, max_iter=2_000)
    return _for_each_answer(lesson, fit, classes, partial(RidgeCV, alphas=np.logspace(-2, 4, 7)))


def _softmax(lesson: Lesson) -> Scores:
    """Fit softmax regression on embeddings; the held rows choose the penalty."""
    targets = np.eye(lesson.classes)[lesson.truth]
    rows = lesson.rows.astype(np.float32)

    def right(penalty: float) -> float:
        model = fit_head(rows[~lesson.held], targets[~lesson.held], penalty=penalty)
        found = model.predict_proba(rows[lesson.held]).argmax(axis=1)
        return float((found == lesson.truth[lesson.held]).mean())

    return fit_head(rows, targets, penalty=max(_PENALTIES, key=right)).predict_proba


def _perceptron(lesson: Lesson) -> Scores:
    from sklearn.neural_network import MLPClassifier

    enough = min(np.bincount(lesson.truth)[np.unique(lesson.truth)]) >= _HELD
    network = MLPClassifier(**_PERCEPTRON, early_stopping=enough, random_state=lesson.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that more iterations would converge further
        model = _standardised(network).fit(lesson.rows.astype(np.float32), lesson.truth)
    return _in_order(model, lesson.classes)


def _nearest(lesson: Lesson) -> Scores:
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(
        min(_NEAREST, len(lesson.rows)), weights="distance", metric="cosine"
    )
    return _in_order(model.fit(lesson.rows, lesson.truth), lesson.classes)


def _ridge(lesson: Lesson) -> Scores:
    """Fit least squares on targets of +1 and -1; leaving one out chooses the regularisation."""
    from sklearn.linear_model import RidgeCV

    signs = 2.0 * (lesson.truth[:, None] == np.arange(lesson.classes)) - 1.0
    # In units of the mean squared feature: independent of the space and number of records.
    unit = float(np.square(lesson.rows).mean()) * len(lesson.rows)
    model = RidgeCV(alphas=unit * np.logspace(-7, -1, 7)).fit(lesson.rows, signs)
    return lambda rows: np.asarray(model.predict(rows))


_FOR_TABLES: Final[Mapping[str, Fit]] = {
    "boosted trees": _trees, "a forest": _forest, "a linear model": _linear,
}  # fmt: skip
_FOR_EMBEDDINGS: Final[Mapping[str, Fit]] = {
    "softmax regression on the embeddings": _softmax,
    "a perceptron on the embeddings": _perceptron,
    "nearest neighbours of the embeddings": _nearest,
}
_FOR_IMAGES: Final[Mapping[str, Fit]] = {
    "ridge regression on scattering features": _ridge,
    "a perceptron on scattering features": _perceptron,
}


def models_for(split: Split) -> Mapping[str, Fit]:
    """Return the models for a kind of inputs by name, but for networks of pixels."""
    if isinstance(split.private.inputs, Table):
        return _FOR_TABLES
    return _FOR_EMBEDDINGS if isinstance(split.private.inputs, Embeddings) else _FOR_IMAGES


def _encoded(split: Split) -> tuple[Floats, ...]:
    """Return the features of the private, validation and test part."""
    private = split.private.inputs
    # Without privacy the parties' own records may fit the encoding.
    encode = points if isinstance(private, Embeddings) else embedding(
        private if isinstance(private, Table) else split.queries, "columns"
    )  # fmt: skip
    validation = split.public if split.validation is None else split.validation
    return encode(private), encode(validation.inputs), encode(split.test.inputs)


def _fitted(
    split: Split, features: tuple[Floats, ...], name: str, parts: Sequence[Any], seed: int
) -> Fitted:
    """Return one model of each part of the records; of several parts their scores one above the other."""
    rows, truth, units = features[0], measure.truth_of(split.private), units_of(split.private)
    kind, classes = split.private.kind, len(split.private.classes)
    found, longest = [], 0.0
    for part in parts:
        began = time.process_time()
        number = np.unique(units[part], return_inverse=True)[1]
        held = np.random.default_rng(seed).permutation(int(number.max()) + 1)[number] % _HELD == 0
        lesson = Lesson(rows[part], truth[part], kind, classes, held, seed)
        model = models_for(split)[name](lesson)
        longest = max(longest, time.process_time() - began)
        found.append([model(each) for each in features[1:]])
    validation, test = (np.stack(each) for each in zip(*found, strict=True))
    if len(parts) == 1:
        validation, test = validation[0], test[0]
    return Fitted(validation, test, Cost(0, 0, 0, longest))


def pooled(screen: Screen) -> Method:
    """Return the best of the models of all parties' records together."""
    features: dict[int, tuple[Floats, ...]] = {}
    networks: dict[int, ImageStudent] = {}

    def settings(problem: Problem) -> list[Setting]:
        of_pixels = (NETWORK, f"{NETWORK}, calibrated")
        images = isinstance(problem.split.private.inputs, Images)
        return [{"model": name} for name in (*of_pixels * images, *models_for(problem.split))]

    def fit(problem: Problem, setting: Setting, _epsilon: float | None, seed: int) -> Fitted:
        split, name = problem.split.whole or problem.split, str(setting["model"])
        largest = max(len(part) for part in problem.parts(0))
        began = time.process_time()
        if name.startswith(NETWORK):
            if id(split) not in networks:
                networks[id(split)] = train_network(split.private, seed, screen)
            network = networks[id(split)]
            if name != NETWORK:
                calibrate(network, split.private)
            said = [output(network, part) for part in (problem.validation, split.test)]
            assert isinstance(split.private.inputs, Images)
            up = largest * split.private.inputs.pixels[0].size
            return Fitted(said[0], said[1], Cost(1, up, 0, 0.0, time.process_time() - began))
        if id(split) not in features:
            features[id(split)] = _encoded(split)
        made = _fitted(split, features[id(split)], name, [slice(None)], seed)
        up = 4 * largest * (features[id(split)][0].shape[1] + 1)
        return Fitted(made.validation, made.test, Cost(1, up, 0, 0.0, made.cost.seconds))

    return Method(
        name="pooled", settings=settings, fit=fit, private=False, once=True, trials=(1, 0)
    )


def alone() -> Method:
    """Return the best of the models of each party's own records."""

    def fit(problem: Problem, setting: Setting, _epsilon: float | None, seed: int) -> Fitted:
        parts, split = problem.parts(seed), problem.split
        return _fitted(split, _encoded(split), str(setting["model"]), parts, seed)

    return Method(
        name="alone",
        settings=lambda problem: [{"model": name} for name in models_for(problem.split)],
        fit=fit,
        private=False,
    )


def train_network(
    data: Dataset, seed: int, screen: Screen, steps: int | None = None
) -> ImageStudent:
    """Return the student's network, trained on every label; ``steps`` None: according to their number."""
    import torch
    from torch.nn import functional

    from student.fit.images import Averaged, decayed, repeat, strong
    from student.fit.network import ImageStudent, build, choose_device, sized_for, to_tensor
    from student.lesson import Effort

    assert isinstance(data.inputs, Images)
    device = choose_device("auto")
    steps = steps or min(max(_EPOCHS * len(data) // _BATCH, _FEWEST), _MOST)
    shape = sized_for(data.inputs.size, len(data.classes), wide=device.type == "cuda")
    network = build(shape, torch.Generator().manual_seed(seed)).to(device)
    network = network.to(memory_format=torch.channels_last)
    averaged = Averaged(network, _MEMORY)
    random = torch.Generator(device).manual_seed(seed + 1)
    images = to_tensor(data.inputs.pixels, device)
    labels = torch.from_numpy(data.labels.copy()).to(device)
    optimiser = torch.optim.SGD(
        decayed(network), lr=_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, _RATE, total_steps=steps, pct_start=_WARM_UP, cycle_momentum=False
    )

    def step(_fraction: float) -> float:
        rows = torch.randint(len(images), (_BATCH,), generator=random, device=device)
        bent = strong(images[rows], random)
        network.train()
        logits = network(bent.contiguous(memory_format=torch.channels_last))
        loss = functional.cross_entropy(logits, labels[rows])
        reached = averaged.descend(optimiser, float(schedule.get_last_lr()[0]), loss)
        schedule.step()
        return reached

    with screen.bar("without privacy") as move:
        repeat(step, steps, Effort(), lambda at, total, _loss: move(at, total))
    last = averaged.mean.cpu().to(memory_format=torch.contiguous_format)
    return ImageStudent(shape, last, data.classes, "network")


def calibrate(student: ImageStudent, data: Dataset) -> None:
    """Calibrate a network in place on the plain images that it learned from, as the default student is."""
    import torch

    from student.fit.images import calibrate as calibrate_network
    from student.fit.network import to_tensor

    assert isinstance(data.inputs, Images)
    known = np.eye(len(data.classes), dtype=np.float32)[data.labels]
    calibrate_network(student.network, to_tensor(data.inputs.pixels, torch.device("cpu")), known)


def _standardised(model: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)


def _for_each_answer(
    lesson: Lesson, fit: Callable[[Any, Truth], Any], classifier: Any, regressor: Any
) -> Scores:
    """Fit one model of classes or of a number, or one for each of several labels."""
    if lesson.kind == "number":
        model = fit(regressor, lesson.truth)
        return lambda rows: np.asarray(model.predict(rows))[:, None]
    if lesson.kind == "class":
        return _in_order(fit(classifier, lesson.truth), lesson.classes)
    models = [fit(classifier, label.astype(np.int64)) for label in lesson.truth.T]
    return lambda rows: np.stack([_in_order(one, 2)(rows)[:, 1] for one in models], axis=1)


def _in_order(model: Any, classes: int) -> Scores:
    """Return the model's probabilities with a column for every class, also for those that it never met."""

    def scores(rows: Floats) -> Floats:
        found = np.zeros((len(rows), classes))
        found[:, model.classes_] = model.predict_proba(rows)
        return found

    return scores
