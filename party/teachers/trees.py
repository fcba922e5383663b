"""Teachers of decision trees for tables, with scikit-learn: a random forest, or boosting.

Models are stored with skops, which builds only objects of known types; further types in a stored
file are compared with a list before loading.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from party.teachers.columns import TableEncoding
from party.teachers.protocol import DamagedTeacherError, Labels, Stored
from pate.data.skops_file import LARGEST, check_skops
from pate.data.values import Table
from pate.errors import SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Dataset, Inputs


class _Classifier(Protocol):
    """The used part of scikit-learn's classifiers."""

    classes_: NDArray[np.int64]

    def predict(self, rows: NDArray[np.float32], /) -> NDArray[np.int64]: ...
    def predict_proba(self, rows: NDArray[np.float32], /) -> NDArray[np.float64]: ...


#: Types that skops does not trust by default: the trees inside the two ensembles.
_TRUSTED: Final = frozenset(
    {
        "sklearn.tree._tree.Tree",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    }
)


#: Rows of a shard up to which exact splits are faster than binned ones.
_SMALL: Final = 1000


@dataclass(frozen=True, eq=False)
class TreeTeacher:
    """A fitted ensemble of trees.

    Attributes:
        encoding: how tables become matrices.
        model: the classifier; it answers only classes of its shard.
    """

    encoding: TableEncoding
    model: _Classifier

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input.

        Raises:
            SchemaError: if the inputs are not of the kind that the teacher was fitted on.
        """
        rows = self.encoding.encode(inputs)
        if not len(rows):
            return np.empty(0, dtype=np.int64)
        return self.model.predict(rows).astype(np.int64)

    def chances(self, inputs: Inputs) -> NDArray[np.float64]:
        """Return (n,) the probability of class 1 of two; see :class:`party.teachers.several.Sure`."""
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
        """Return the teacher of a shard.

        Raises:
            SchemaError: if the shard is not a table.
        """
        if not isinstance(shard.inputs, Table):
            raise SchemaError(
                f"{self.name} teachers take tables, the data is {shard.inputs.schema()}"
            )
        encoding = TableEncoding.fit(shard.inputs)
        model = self._fit(encoding.encode(shard.inputs), shard.labels, seed % 2**32)
        return TreeTeacher(encoding, model)

    def restore(self, stored: Stored) -> TreeTeacher:
        """Return the teacher that was stored.

        Raises:
            DamagedTeacherError: if the bytes are not such a teacher, or need a foreign type.
        """
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
            n_estimators=64, min_samples_leaf=leaf, max_features="sqrt", random_state=seed
        ).fit(rows, labels)
        return model


class Boosting(_Trees):
    """Makes gradient-boosted trees: singly often weaker than a forest, as an ensemble stronger.

    Each tree of a small shard sees half of the rows and few columns. That prevents overfitting of
    one tree, and makes teachers differ, which their vote averages out.
    """

    name = "boosting"
    _class_names = ("GradientBoostingClassifier", "HistGradientBoostingClassifier")

    def _fit(self, rows: NDArray[np.float32], labels: Labels, seed: int) -> _Classifier:
        from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier

        model: _Classifier
        if len(rows) <= _SMALL:
            model = GradientBoostingClassifier(
                n_estimators=60,
                learning_rate=0.15,
                max_depth=3,
                subsample=0.5,
                max_features="sqrt",
                random_state=seed,
            ).fit(rows, labels)
        else:
            model = HistGradientBoostingClassifier(
                max_iter=100,
                learning_rate=0.1,
                max_leaf_nodes=15,
                min_samples_leaf=20,
                l2_regularization=1.0,
                early_stopping=False,
                random_state=seed,
            ).fit(rows, labels)
        return model
