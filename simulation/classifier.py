"""``pate.PateClassifier``: a scikit-learn estimator for one curator, with a guaranteed epsilon."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from pate.data.memory import is_frame, names_of
from pate.errors import UsageError
from simulation.library import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray
    from sklearn.utils import Tags

    from pate.accounting import Unit
    from pate.campaign.choices import Aggregator
    from pate.data.memory import Source

NO_PUBLIC: Final = (
    "fit needs public=: unlabelled inputs of the same kind that may be published, such as "
    "fit(X, y, public=X0); a part of X would not do, since the student and its queries are made of it"
)


class PateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier that is trained on public inputs and what private records say of them.

    One curator has all records. They vote, the votes get exact discrete noise from the operating system, and
    a student learns from what is released: what :func:`pate.simulate` does with one party. Whoever sees the
    fitted classifier sees an (epsilon, delta)-differentially private release; :attr:`statement_` says what it
    covers. It does not protect against who runs ``fit`` and has the records.

    Each call of ``fit`` is a release of its own: a search over parameters or a cross-validation on the same
    records costs the sum. So does :meth:`score` on private records, which no statement covers.

    Public are the public inputs, the class list, the names and kinds of columns, and all parameters. The
    kinds of columns are those of the public inputs, never of X. Name the classes where the occurrence of a
    rare one is private.

    Args:
        epsilon: hard budget of one ``fit``.
        delta: failure probability; 0 only if records vote, which is then one release with geometric noise.
        unit: ``record``, or ``patient``, whose records are named by the ``groups`` of ``fit``.
        teachers: number of teachers that are trained on disjoint records and vote. None: the records vote
            themselves, which costs less and suits tables and small images.
        classes: the class list; None: the classes of y.
        expected_records: number of records, if they vote: it decides where. It is public: a round guess, not
            the exact number. None: 10,000.
        random_state: seeds the training of the student, and nothing of the noise.

    Attributes:
        classes_: (classes,) the class labels.
        statement_: the :class:`~pate.formats.privacy_statement.PrivacyStatement`: epsilon, delta, unit,
            adjacency and observer.
        student_: the :class:`~simulation.published.PublishedStudent`.
        figures_: the campaign in numbers, but for its seconds: how long it took depends on the records.
        n_features_in_: number of columns.
        feature_names_in_: names of the columns, if X was a frame.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        unit: Unit = "record",
        *,
        teachers: int | None = None,
        classes: Sequence[object] | None = None,
        expected_records: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.teachers = teachers
        self.classes = classes
        self.expected_records = expected_records
        self.random_state = random_state

    def fit(self, X: Source, y: Source, *, public: Source = None, groups: Source = None) -> Self:  # noqa: N803
        """Release what the records say of the public inputs, and train on it.

        Args:
            X: (n, columns) private records: an array, or a frame with numbers and categories; cells may be
                missing. Images are (n, height, width), or with channels.
            y: (n,) their classes.
            public: (m, columns) inputs without labels, of people or things that need no protection here.
            groups: (n,) the patient of each record, for the unit ``patient``.

        Raises:
            UsageError: without ``public``: nothing has been looked at then.
            ValueError: for records that no classifier takes.
            PateError: if the records or the budget do not allow it.
        """
        if public is None or public is X:
            raise UsageError(NO_PUBLIC)
        if self.unit not in ("record", "patient"):
            raise UsageError(f"one curator has no unit {self.unit!r}: choose record or patient")
        if (groups is not None) != (self.unit == "patient"):
            raise UsageError("groups are of the unit patient, and it needs them")
        X, y = self._checked(X, y)  # noqa: N806
        public = self._inputs(public, reset=False)
        listed = np.unique(y) if self.classes is None else np.asarray(self.classes)
        if len(listed) < 2:
            raise ValueError(f"PateClassifier needs two classes or more, y has {len(listed)} class")
        names = names_of(listed)
        if len(set(names)) < len(names):
            raise UsageError(f"two classes have one name: {', '.join(sorted(names)):.200}")
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        aggregator: Aggregator = "neighbour" if self.teachers is None else "confident-gnmax"
        done = simulate(
            {"curator": (X, y) if groups is None else (X, y, groups)},
            public,
            epsilon=self.epsilon,
            delta=self.delta,
            aggregator=aggregator,
            teachers=self.teachers or 1,
            unit=self.unit,
            classes=names,
            expected_records=self.expected_records,
            seed=int(seed),
        )
        self.classes_ = listed
        self.statement_ = done.statement
        assert done.student is not None  # noqa: S101 - simulate trains one unless told otherwise
        self.student_ = done.student
        self.figures_ = replace(done.figures, seconds=0.0)
        return self

    def predict(self, X: Source) -> NDArray[np.generic]:  # noqa: N803
        """Return (n,) the most probable class of each input; arguments and errors as of :meth:`fit`."""
        chosen = self.predict_proba(X).argmax(axis=1)
        classes: NDArray[np.generic] = self.classes_[chosen]
        return classes

    def predict_proba(self, X: Source) -> NDArray[np.float64]:  # noqa: N803
        """Return (n, classes) probabilities, in the order of ``classes_``; each row sums to 1."""
        check_is_fitted(self)
        inputs = self._inputs(X, reset=False)
        chances = self.student_.predict_proba(inputs).astype(np.float64)
        made: NDArray[np.float64] = chances / chances.sum(axis=1, keepdims=True)
        return made

    def _checked(self, X: Source, y: Source) -> tuple[Source, NDArray[np.generic]]:  # noqa: N803
        """Return records and labels of one number, as scikit-learn checks them."""
        if y is None:
            raise ValueError("PateClassifier requires y to be passed, but the target y is None")
        X = self._inputs(X, reset=True)  # noqa: N806
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if len(X) != len(y):
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: {[len(X), len(y)]}"
            )
        return X, y

    def _inputs(self, X: Source, *, reset: bool) -> Source:  # noqa: N803
        """Return inputs as scikit-learn checks them; a frame keeps the kinds of its columns."""
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        return validate_data(
            self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan", allow_nd=True
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.non_deterministic = True  # the noise is never seeded
        return tags
