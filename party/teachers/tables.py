"""Teachers of tables, with scikit-learn: boosted trees, a logistic model, a forest, or what a shard chooses.

A shard too small for a choice has a teacher of kind :mod:`prior <party.teachers.by_records>`.
Each teacher chooses by cross-validation within its shard, independently of other shards. A common
choice would let one record change every teacher.

Trees are stored with skops, which builds only objects of known types; further types in a stored
file are compared with a list before loading.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from party.teachers.by_records import MOST_CLASSES, Prior, PriorTeacher
from party.teachers.linear import Linear, LinearTeacher, rows_of
from party.teachers.protocol import DamagedTeacherError, Labels, Stored
from party.teachers.schema import TableEncoding
from pate.data.skops_file import LARGEST, check_skops
from pate.data.values import Table
from pate.errors import SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from party.teachers.protocol import Kind, Teacher
    from pate.data.values import Dataset, Inputs

#: Types that skops does not trust by default: the trees inside the two ensembles.
_TRUSTED: Final = frozenset(
    {"sklearn.tree._tree.Tree", "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"}
)
#: Rows of a shard up to which exact splits are faster than binned ones.
_SMALL: Final = 1000
#: Inverse strength of the penalty on encoded columns, which have a spread of about one. Weak on
#: purpose: a vote over many teachers averages out their differences, but not a common bias by a
#: penalty. (Zhang, Duchi and Wainwright, "Divide and conquer kernel ridge regression", JMLR 16,
#: 2015, for averages of regressions.)
_FREEDOM: Final = 1.0
_STEPS: Final = 300
#: Trees of a forest; rounds of boosting with exact splits, and with binned ones.
_TREES: Final = 64
_BOOSTED: Final = 60
_BINNED: Final = 100
_FOLDS: Final = 3
#: With fewer rows, in total or of a second class, the cross-validation error is mostly noise.
_FEWEST_ROWS: Final = 60
_FEWEST_OF_A_CLASS: Final = 6


class _Classifier(Protocol):
    """The used part of scikit-learn's classifiers."""

    classes_: NDArray[np.int64]

    def predict(self, rows: NDArray[np.float32], /) -> NDArray[np.int64]: ...
    def predict_proba(self, rows: NDArray[np.float32], /) -> NDArray[np.float64]: ...


@dataclass(frozen=True, eq=False)
class TreeTeacher:
    """A fitted ensemble of trees; its classifier answers only classes of its shard."""

    encoding: TableEncoding
    model: _Classifier

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input."""
        rows = self.encoding.encode(inputs)
        if not len(rows):
            return np.empty(0, dtype=np.int64)
        return self.model.predict(rows).astype(np.int64)

    def chances(self, inputs: Inputs) -> NDArray[np.float64]:
        """Return (n,) the probability of class 1 of two; see :class:`party.teachers.protocol.Sure`."""
        rows = self.encoding.encode(inputs)
        if not len(rows):
            return np.empty(0)
        return self.model.predict_proba(rows)[:, -1].astype(np.float64)

    def store(self) -> Stored:
        """Return the model as skops bytes, the encoding as JSON."""
        import zipfile

        import skops.io

        packed: bytes = skops.io.dumps(
            self.model, compression=zipfile.ZIP_DEFLATED, compresslevel=1
        )
        return Stored({"table": self.encoding.facts()}, packed)


class _Trees:
    """Common parts of the two kinds."""

    name: str
    suffix = "skops"

    @property
    def version(self) -> str:
        """Another scikit-learn grows other trees, and may not read old ones."""
        return f"2, scikit-learn {installed('scikit-learn')}"

    def fit(self, shard: Dataset, seed: int) -> TreeTeacher:
        """Return the teacher of a shard."""
        if not isinstance(shard.inputs, Table):
            raise SchemaError(
                f"{self.name} teachers take tables, the data is {shard.inputs.schema()}"
            )
        encoding = TableEncoding.fit(shard.inputs)
        model = self._fit(encoding.encode(shard.inputs), shard.labels, seed % 2**32)
        return TreeTeacher(encoding, model)

    def restore(self, stored: Stored) -> TreeTeacher:
        """Return the teacher that was stored."""
        import skops.io

        encoding = TableEncoding.from_facts(stored.facts.get("table"))
        try:
            check_skops(stored.model, most=LARGEST)
            foreign = set(skops.io.get_untrusted_types(data=stored.model)) - _TRUSTED
            if foreign:
                raise DamagedTeacherError(f"it needs {', '.join(sorted(foreign))}")
            model = skops.io.loads(stored.model, trusted=sorted(_TRUSTED))
        except DamagedTeacherError:
            raise
        except Exception as error:  # skops passes on any error of the damaged part
            raise DamagedTeacherError("its trees cannot be read") from error
        if type(model).__name__ not in self._class_names:
            raise DamagedTeacherError(f"it is a {type(model).__name__}")
        return TreeTeacher(encoding, model)

    _class_names: tuple[str, ...]

    def _fit(self, rows: NDArray[np.float32], labels: Labels, seed: int) -> _Classifier:
        raise NotImplementedError


class Forest(_Trees):
    """Makes random forests: robust on shards of a few dozen rows."""

    name = "forest"
    _class_names = ("RandomForestClassifier",)

    def _fit(self, rows: NDArray[np.float32], labels: Labels, seed: int) -> _Classifier:
        from sklearn.ensemble import RandomForestClassifier

        leaf = 1 if len(rows) < 60 else 2
        model: _Classifier = RandomForestClassifier(
            n_estimators=_TREES, min_samples_leaf=leaf, max_features="sqrt", random_state=seed
        ).fit(rows, labels)
        return model


class Boosting(_Trees):
    """Makes gradient-boosted trees of half of the rows and few columns each, which makes teachers differ."""

    name = "boosting"
    _class_names = ("GradientBoostingClassifier", "HistGradientBoostingClassifier")

    def _fit(self, rows: NDArray[np.float32], labels: Labels, seed: int) -> _Classifier:
        from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier

        model: _Classifier
        if len(rows) <= _SMALL:
            model = GradientBoostingClassifier(
                n_estimators=_BOOSTED,
                learning_rate=0.15,
                max_depth=3,
                subsample=0.5,
                max_features="sqrt",
                random_state=seed,
            ).fit(rows, labels)
        else:
            model = HistGradientBoostingClassifier(
                max_iter=_BINNED,
                learning_rate=0.1,
                max_leaf_nodes=15,
                min_samples_leaf=20,
                l2_regularization=1.0,
                early_stopping=False,
                random_state=seed,
            ).fit(rows, labels)
        return model


class Logistic:
    """Makes logistic teachers."""

    name = "logistic"
    suffix = "safetensors"

    @property
    def version(self) -> str:
        """Another scikit-learn may stop its search for the optimum elsewhere."""
        return f"1, scikit-learn {installed('scikit-learn')}"

    def fit(self, shard: Dataset, seed: int) -> LinearTeacher:
        """Return the teacher of a shard; there is no randomness in it."""
        del seed
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        if not isinstance(shard.inputs, Table):
            raise SchemaError(f"logistic teachers take tables, the data is {shard.inputs.schema()}")
        takes = TableEncoding.fit(shard.inputs)
        model = LogisticRegression(C=_FREEDOM, max_iter=_STEPS)
        # A product of few columns may raise the flag for lanes of a register that hold no number.
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            # Without convergence it is still a valid teacher.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(rows_of(takes, shard.inputs), shard.labels)
        weights, bias = model.coef_.T, model.intercept_
        if len(bias) == 1:  # for two classes, scikit-learn stores only the second's score
            weights, bias = np.hstack([0 * weights, weights]), np.append(0 * bias, bias)
        return LinearTeacher(
            takes,
            model.classes_.astype(np.int64),
            weights.astype(np.float32),
            bias.astype(np.float32),
        )

    def restore(self, stored: Stored) -> LinearTeacher:
        """Return the teacher that was stored."""
        return Linear().restore(stored)


#: The candidate kinds; ties go to the first. The last is a forest, which must be better by a
#: standard error: forests of small shards are all biased to the frequent classes, and a vote over
#: many teachers averages out only their differences.
_KINDS: Final[tuple[Kind, ...]] = (Boosting(), Logistic(), Forest())
#: The kind of smaller shards, and all kinds.
_TINY: Final = Prior()
_EVERY: Final[tuple[Kind, ...]] = (*_KINDS, _TINY)


@dataclass(frozen=True, eq=False)
class ChosenTeacher:
    """The teacher that a shard chose."""

    kind: str
    teacher: Teacher

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input."""
        return self.teacher.predict(inputs)

    def chances(self, inputs: Inputs) -> NDArray[np.float64]:
        """Return (n,) the probability of class 1 of two; see :class:`party.teachers.protocol.Sure`."""
        assert isinstance(self.teacher, TreeTeacher | LinearTeacher | PriorTeacher)  # noqa: S101 - of the candidate kinds
        return self.teacher.chances(inputs)

    def store(self) -> Stored:
        """Return the teacher as its kind does, with the kind's name."""
        stored = self.teacher.store()
        return Stored({"chosen": self.kind, "facts": stored.facts}, stored.model)


class Chosen:
    """Makes teachers of the kind with the least error on their shard."""

    name = "auto"
    suffix = "model"

    @property
    def version(self) -> str:
        """The versions of all candidate kinds."""
        return "2; " + "; ".join(f"{kind.name} {kind.version}" for kind in _EVERY)

    def fit(self, shard: Dataset, seed: int) -> ChosenTeacher:
        """Return the teacher of a shard."""
        kind = choose(shard, seed)
        return ChosenTeacher(kind.name, kind.fit(shard, seed))

    def restore(self, stored: Stored) -> ChosenTeacher:
        """Return the teacher that was stored."""
        facts = stored.facts.get("facts")
        for kind in _EVERY:
            if kind.name == stored.facts.get("chosen") and isinstance(facts, dict):
                return ChosenTeacher(kind.name, kind.restore(Stored(facts, stored.model)))
        raise DamagedTeacherError("the kind that it chose")


def choose(shard: Dataset, seed: int) -> Kind:
    """Return the kind with the least cross-validation error; of a small shard ``prior`` or ``forest``."""
    sizes = np.sort(np.bincount(shard.labels))
    if len(shard) < _FEWEST_ROWS and len(shard.classes) <= MOST_CLASSES:
        return _TINY
    if len(shard) < _FEWEST_ROWS or sizes[-2] < _FEWEST_OF_A_CLASS:
        return _KINDS[-1]
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed % 2**32)
    with warnings.catch_warnings():
        # A class with fewer rows than folds is absent from one of them, which teachers support.
        warnings.simplefilter("ignore", UserWarning)
        splits = list(folds.split(np.zeros(len(shard)), shard.labels))
    wrong = [0] * len(_KINDS)
    for learnt, left in splits:
        learner, exam = shard.take(learnt), shard.take(left)
        for at, kind in enumerate(_KINDS):
            answers = kind.fit(learner, seed).predict(exam.inputs)
            wrong[at] += int((answers != exam.labels).sum())
    *others, forest = wrong
    least = min(others)
    spread = (least * (1 - least / len(shard))) ** 0.5
    return _KINDS[-1] if forest < least - spread else _KINDS[others.index(least)]


#: The kinds of tables by name; each chooses, or is one that may be chosen.
KINDS: Final[dict[str, Kind]] = {kind.name: kind for kind in (Chosen(), *_EVERY)}
