"""Logistic teachers for tables: regularised logistic regression on a shard's encoding."""

from __future__ import annotations

import warnings
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Final

import numpy as np

from party.teachers.columns import TableEncoding
from party.teachers.linear import Linear, LinearTeacher, encoded
from pate.data.values import Table
from pate.errors import SchemaError

if TYPE_CHECKING:
    from party.teachers.protocol import Stored
    from pate.data.values import Dataset

#: Inverse strength of the penalty on encoded columns, which have a spread of about one. Weak on
#: purpose: a vote over many teachers averages out their differences, but not a common bias by a
#: penalty. (Zhang, Duchi and Wainwright, "Divide and conquer kernel ridge regression", JMLR 16,
#: 2015, for averages of regressions.)
_FREEDOM: Final = 1.0
_STEPS: Final = 300


class Logistic:
    """Makes logistic teachers."""

    name = "logistic"
    suffix = "safetensors"

    @property
    def version(self) -> str:
        """Another scikit-learn may stop its search for the optimum elsewhere."""
        return f"1, scikit-learn {installed('scikit-learn')}"

    def fit(self, shard: Dataset, seed: int) -> LinearTeacher:
        """Return the teacher of a shard; there is no randomness in it.

        Raises:
            SchemaError: if the shard is no table.
        """
        del seed
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        if not isinstance(shard.inputs, Table):
            raise SchemaError(f"logistic teachers take tables, the data is {shard.inputs.schema()}")
        encoding = TableEncoding.fit(shard.inputs)
        model = LogisticRegression(C=_FREEDOM, max_iter=_STEPS)
        # A product of few columns may raise the flag for lanes of a register that hold no number.
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            # Without convergence it is still a valid teacher.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(encoded(encoding, shard.inputs), shard.labels)
        weights, bias = model.coef_.T, model.intercept_
        if len(bias) == 1:  # for two classes, scikit-learn stores only the second's score
            weights, bias = np.hstack([0 * weights, weights]), np.append(0 * bias, bias)
        return LinearTeacher(
            encoding,
            model.classes_.astype(np.int64),
            weights.astype(np.float32),
            bias.astype(np.float32),
        )

    def restore(self, stored: Stored) -> LinearTeacher:
        """Return the teacher that was stored.

        Raises:
            DamagedTeacherError: if the bytes are not such a teacher.
        """
        return Linear().restore(stored)
