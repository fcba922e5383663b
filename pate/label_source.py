"""Labels from votes in one process: for a notebook, or for a curator who has all the data.

A campaign between parties keeps a durable ledger (``pate-server``). Here the budget is in the
memory of one :class:`LabelSource`, which charges before it draws noise, never answers a query
twice, and never exceeds its cap. Two sources over the same votes are two releases, and cost the sum
of both.
"""

from __future__ import annotations

import html
import warnings
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pate.accounting.composition import tightest, too_dear, total_cost
from pate.accounting.filters import PrivacyFilter
from pate.campaign.choices import check_budget
from pate.errors import DataError, UsageError
from pate.formats.privacy_statement import in_words, neighbours_of
from pate.formats.votes_file import vote_matrix
from pate.mechanisms.matrix import MatrixMechanism
from pate.noise.exact import SystemNoise, require_production

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from pate.mechanisms import Mechanism
    from pate.noise.exact import Noise

#: Queries that are charged, and answered, together.
_TOGETHER = 256


@dataclass(frozen=True, repr=False)
class Answers:
    """The answers released so far.

    Attributes:
        labels: class index by query, for those that were answered with a label.
        asked: queries that were answered, with a label or without, in order.
        epsilon: at ``delta``, of all past and future answers: the cap.
        delta: failure probability.
        unit: unit of privacy.
        queries: how many there are, asked or not.
        left: share of the budget that is left, 0 to 1.
    """

    labels: Mapping[int, int]
    asked: tuple[int, ...]
    epsilon: float
    delta: float
    unit: str
    queries: int
    left: float

    def to_series(self, index: Sequence[Any] | None = None) -> Any:  # pandas has no types
        """Return a pandas Series, one class index for each query, missing where there is no label.

        Args:
            index: of the Series, such as that of the public frame; None: row numbers.

        Raises:
            UsageError: if the index has another length, or pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise UsageError("to_series needs pandas: pip install pandas") from error
        if index is not None and len(index) != self.queries:
            raise UsageError(f"an index of {len(index)} for {self.queries} queries")
        labels = [self.labels.get(query) for query in range(self.queries)]
        return pd.Series(labels, index=index, dtype="Int64", name="label")

    def __repr__(self) -> str:
        """Return the figures with the terms on which they hold: labels are in :attr:`labels`."""
        among = neighbours_of(self.unit, records_vote=False)
        promise = in_words(self.epsilon, self.delta, self.unit, neighbours=among)
        left = f"{100 * self.left:.0f} % of the budget is left"
        return f"{len(self.labels)} labels of {len(self.asked)} queries asked; {promise}; {left}"

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        return f"<p>{html.escape(repr(self))}</p>"


class LabelSource:
    """Answers queries over one vote matrix, until its budget is spent.

    >>> from fractions import Fraction
    >>> from pate import ConfidentGNMax, LabelSource
    >>> votes = np.array([[200, 30, 20], [90, 85, 75], [10, 5, 235]])
    >>> mechanism = ConfidentGNMax(150, Fraction(15), Fraction(8), votes_per_unit=1)
    >>> answers = LabelSource(votes, mechanism, epsilon=2, delta=1e-5).answer()
    >>> sorted(answers.labels.items())
    [(0, 0), (2, 2)]

    Not safe to share between threads.

    Args:
        votes: (queries, classes) counts, integers or whole floats; each row sums to the number of teachers.
        mechanism: that answers one query at a time, and needs no prediction of a student.
        epsilon: of all answers together, at ``delta``.
        delta: failure probability.
        unit: what ``mechanism.votes_per_unit`` was chosen for: record, patient or party.
        noise: a source of production noise; default: the operating system's.

    Raises:
        UsageError: for a mechanism that does not fit, invalid votes, epsilon or delta, or a seeded source
            of noise.
        BudgetError: if the budget does not pay for one answer.
    """

    def __init__(
        self,
        votes: ArrayLike,
        mechanism: Mechanism,
        *,
        epsilon: float,
        delta: float,
        unit: str = "record",
        noise: Noise | None = None,
    ) -> None:
        if isinstance(mechanism, MatrixMechanism) or mechanism.noise_inside:
            raise UsageError(f"{mechanism.name} releases sums over parties: run a campaign")
        if mechanism.interactive:
            raise UsageError(f"{mechanism.name} needs a student's predictions: run a campaign")
        self._noise = SystemNoise() if noise is None else noise
        require_production(self._noise)
        check_budget(epsilon, delta, records_vote=False)
        try:
            self._votes = vote_matrix(np.asarray(votes))  # a copy that the caller cannot change
        except (DataError, ValueError) as error:  # ValueError: rows of different lengths
            raise UsageError(str(error)) from error
        self._mechanism = mechanism
        self._composition = tightest(mechanism.worst)
        self._worst = total_cost(self._composition, mechanism.worst)
        cap = self._composition.budget(epsilon, delta)
        if self._worst > cap:
            raise too_dear(self._composition, self._worst, delta, epsilon, "answer", "budget")
        self._budget = PrivacyFilter(cap)
        self._epsilon = self._composition.epsilon(cap, delta)
        self._delta, self._unit = delta, unit
        self._labels: dict[int, int] = {}
        self._asked: dict[int, None] = {}

    @property
    def answers(self) -> Answers:
        """The answers released so far."""
        return Answers(
            MappingProxyType(dict(self._labels)),
            tuple(self._asked),
            self._epsilon,
            self._delta,
            self._unit,
            len(self._votes),
            self.left,
        )

    @property
    def spent(self) -> float:
        """The charged share of the budget, 0 to 1."""
        return float(self._budget.spent / self._budget.cap)

    @property
    def left(self) -> float:
        """The share of the budget that further queries may cost."""
        return float(self._budget.left / self._budget.cap)

    @property
    def epsilon_charged(self) -> float:
        """The charges so far, as an epsilon at ``delta``: no guarantee, which is :attr:`Answers.epsilon`."""
        return self._composition.epsilon(self._budget.spent, self._delta)

    def answer(self, queries: Iterable[int] | None = None) -> Answers:
        """Answer queries in the given order, as far as the budget allows.

        A query that was already answered keeps its answer, at no cost. If the budget pays for no other, a
        warning says so.

        Args:
            queries: row numbers of the votes, chosen without looking at them; all rows if None.

        Returns:
            All answers released so far, earlier calls included.

        Raises:
            UsageError: for an unknown query.
        """
        wanted = range(len(self._votes)) if queries is None else list(queries)
        for query in wanted:
            if isinstance(query, bool) or not 0 <= query < len(self._votes):
                raise UsageError(f"there is no query {query!r} among {len(self._votes)}")
        waiting = list(dict.fromkeys(query for query in wanted if query not in self._asked))
        if waiting and not self._budget.fits(self._worst, 1):
            warnings.warn(
                f"the budget pays for no further answer: {len(waiting)} queries are not answered",
                stacklevel=2,
            )
        while waiting:
            size = self._budget.fits(self._worst, min(_TOGETHER, len(waiting)))
            if size == 0:
                break
            chunk, waiting = waiting[:size], waiting[size:]
            held = [self._budget.reserve(self._worst) for _ in chunk]
            # The budget is charged here: a failure below has cost the worst case.
            self._asked |= dict.fromkeys(chunk)
            outcomes = self._mechanism.answer_all(self._votes[chunk], self._noise)
            for query, reservation, outcome in zip(chunk, held, outcomes, strict=True):
                self._budget.settle(reservation, total_cost(self._composition, outcome.events))
                if outcome.label is not None:
                    self._labels[query] = outcome.label
        return self.answers
