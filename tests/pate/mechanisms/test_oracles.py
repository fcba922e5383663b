"""The seven classes that the rule replaced, as oracles: equal answers, events, texts and draws."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from pate import mechanisms as new
from pate.accounting.events import Event, GaussianMax, GaussianThreshold, LaplaceMax, NoisyHistogram
from pate.errors import PateError, ProtocolError, UsageError
from pate.mechanisms.contract import MechanismText, Outcome, Votes, check_rows, check_threshold
from pate.mechanisms.rule import noisy_argmax
from pate.noise.share_laws import GaussianShares
from pate.noise.shares import share_sigma
from pate.noise.simulated import SimulatedNoise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.mechanisms.contract import Mechanism
    from pate.noise.exact import Noise


@dataclass(frozen=True)
class LNMax(MechanismText):
    """Release argmax_j (n_j + Z_j) for every query, with P[Z_j = z] ~ exp(-|z|/scale).

    Attributes:
        scale: parameter of the noise on every class, in votes; the paper's 1/gamma.
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: Papernot et al. 2017, section 2.1, with discrete noise.
    """

    scale: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "lnmax"
    interactive: ClassVar[bool] = False
    noise_inside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", LaplaceMax(self.scale, self.votes_per_unit).scale)

    @property
    def worst(self) -> tuple[Event, ...]:
        """The one event that a query reserves and uses."""
        return (LaplaceMax(self.scale, self.votes_per_unit),)

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,
    ) -> tuple[Outcome, ...]:
        """Answer (queries, classes) votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows = check_rows(rows)
        labels = noisy_argmax(rows, noise.laplace(self.scale, rows.size))
        worst = self.worst
        return tuple(Outcome(label, "teachers", worst) for label in labels)


@dataclass(frozen=True)
class GNMax(MechanismText):
    """Release argmax_j (n_j + N_Z(0, sigma^2)) for every query.

    Attributes:
        sigma: parameter of the noise on every class, in votes.
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: Papernot et al. 2018, section 4.1, with discrete noise.
    """

    sigma: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "gnmax"
    interactive: ClassVar[bool] = False
    noise_inside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", GaussianMax(self.sigma, self.votes_per_unit).sigma)

    @property
    def worst(self) -> tuple[Event, ...]:
        """The one event that a query reserves and uses."""
        return (GaussianMax(self.sigma, self.votes_per_unit),)

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,
    ) -> tuple[Outcome, ...]:
        """Answer (queries, classes) votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows = check_rows(rows)
        labels = noisy_argmax(rows, noise.gaussian(self.sigma, rows.size))
        worst = self.worst
        return tuple(Outcome(label, "teachers", worst) for label in labels)


@dataclass(frozen=True)
class ConfidentGNMax(MechanismText):
    """If max_j n_j + N_Z(0, sigma1^2) >= threshold, release GNMax with sigma2; else nothing.

    Every query pays for the test, only those with a label for the label.

    Attributes:
        threshold: T, in votes.
        sigma1: parameter of the noise of the test, in votes.
        sigma2: parameter of the noise on every class, in votes.
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: Papernot et al. 2018, Algorithm 1, with discrete noise.
    """

    threshold: int
    sigma1: Fraction
    sigma2: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "confident-gnmax"
    interactive: ClassVar[bool] = False
    noise_inside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        check = GaussianThreshold(self.sigma1, self.votes_per_unit)
        label = GaussianMax(self.sigma2, self.votes_per_unit)
        object.__setattr__(self, "sigma1", check.sigma)
        object.__setattr__(self, "sigma2", label.sigma)

    @property
    def worst(self) -> tuple[Event, ...]:
        """The threshold test and the label."""
        return (
            GaussianThreshold(self.sigma1, self.votes_per_unit),
            GaussianMax(self.sigma2, self.votes_per_unit),
        )

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,
    ) -> tuple[Outcome, ...]:
        """Answer (queries, classes) votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows = check_rows(rows)
        agreed = rows.max(axis=1) + noise.gaussian(self.sigma1, len(rows)) >= self.threshold
        chosen = rows[agreed]
        labels = iter(noisy_argmax(chosen, noise.gaussian(self.sigma2, chosen.size)))
        worst = self.worst
        return tuple(
            Outcome(next(labels), "teachers", worst) if yes else Outcome(None, None, worst[:1])
            for yes in np.asarray(agreed)
        )


@dataclass(frozen=True)
class InteractiveGNMax(MechanismText):
    """Compare the votes n with the votes r expected from the student's prediction p.

    With r_j = M p_j rounded to integers that sum to M (:func:`round_predictions`):

    - if max_j (n_j - r_j) + N_Z(0, sigma1^2) >= threshold, release GNMax with sigma2;
    - else, if max_j r_j > confidence * M, release argmax_j r_j: the prediction is *reinforced*;
    - else nothing.

    r is public and an integer, so the test has the sensitivity of a count; comparing with M p_j in
    floats and rounding the margin afterwards can double it. The last two cases release only the bit
    of the test; everything else they depend on is public.

    Attributes:
        threshold: T, in votes of margin.
        sigma1: parameter of the noise of the test, in votes.
        sigma2: parameter of the noise on every class, in votes.
        confidence: of a prediction that may be reinforced, in [0, 1).
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: Papernot et al. 2018, Algorithm 2, with discrete noise and integer expectations.
    """

    threshold: int
    sigma1: Fraction
    sigma2: Fraction
    confidence: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "interactive-gnmax"
    interactive: ClassVar[bool] = True
    noise_inside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        check = GaussianThreshold(self.sigma1, self.votes_per_unit)
        label = GaussianMax(self.sigma2, self.votes_per_unit)
        object.__setattr__(self, "sigma1", check.sigma)
        object.__setattr__(self, "sigma2", label.sigma)
        object.__setattr__(self, "confidence", check_confidence(self.confidence))

    @property
    def worst(self) -> tuple[Event, ...]:
        """The threshold test and the label."""
        return (
            GaussianThreshold(self.sigma1, self.votes_per_unit),
            GaussianMax(self.sigma2, self.votes_per_unit),
        )

    def answer_all(
        self, rows: Votes, noise: Noise, predictions: Votes | None = None
    ) -> tuple[Outcome, ...]:
        """Answer (queries, classes) votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows = check_rows(rows)
        expected = check_expected(self.name, rows, predictions)
        if not np.array_equal(expected.sum(axis=1), rows.sum(axis=1)):
            raise ProtocolError("predictions do not sum to the number of teachers")
        margins = (rows - expected).max(axis=1)
        disagreed = margins + noise.gaussian(self.sigma1, len(rows)) >= self.threshold
        chosen = rows[disagreed]
        labels = noisy_argmax(chosen, noise.gaussian(self.sigma2, chosen.size))
        worst = self.worst
        return labelled(disagreed, labels, expected, self, asked=worst[:1], answered=worst)

    def reinforced(self, expected: Votes) -> int | None:
        """Return the class that the student predicts confidently; see :func:`reinforced_by`."""
        return reinforced_by(expected, self.confidence)


class Reinforcing(Protocol):
    """A mechanism that confirms a prediction where the teachers do not object."""

    def reinforced(self, expected: Votes) -> int | None:
        """Return the class of (classes,) expected votes that the student predicts confidently."""


def check_confidence(confidence: Fraction) -> Fraction:
    """Return ``confidence`` if it is exact and in [0, 1), else raise UsageError."""
    if type(confidence) not in (Fraction, int):  # no floats, no bools
        raise UsageError(f"confidence must be exact, got {confidence!r}: give a Fraction")
    if not 0 <= confidence < 1:
        raise UsageError(f"confidence must be at least 0 and below 1, got {confidence}")
    return Fraction(confidence)


def check_expected(name: str, rows: Votes, predictions: Votes | None) -> Votes:
    """Return the (queries, classes) votes expected from the predictions.

    Raises:
        UsageError: if there are none.
        ProtocolError: if they are invalid, or have another shape than ``rows``.
    """
    if predictions is None:
        raise UsageError(
            f"{name} needs the student's predictions; "
            f"without a student yet, label a first round with confident-gnmax"
        )
    expected = check_rows(predictions, "predictions")
    if expected.shape != rows.shape:
        raise ProtocolError(f"predictions {expected.shape} for votes {rows.shape}")
    return expected


def reinforced_by(expected: Votes, confidence: Fraction) -> int | None:
    """Return the class with more than ``confidence`` of the expected votes, None if there is none.

    Args:
        expected: (classes,) votes expected from the student's prediction, public.
        confidence: in [0, 1).
    """
    # Exact: confidence * M is compared as integers, cross-multiplied by Fraction.
    sure = int(expected.max()) > confidence * int(expected.sum())
    return int(expected.argmax()) if sure else None


def labelled(
    disagreed: NDArray[np.bool_],
    labels: Sequence[int],
    expected: Votes,
    mechanism: Reinforcing,
    *,
    asked: tuple[Event, ...],
    answered: tuple[Event, ...],
) -> tuple[Outcome, ...]:
    """Return the outcomes of queries, in order.

    Args:
        disagreed: (queries,) whether the test finds that the teachers disagree with the student.
        labels: the teachers' labels where they do.
        expected: (queries, classes) votes expected from the predictions.
        mechanism: decides which other predictions are reinforced.
        asked: events of a query without a teachers' label.
        answered: events of a query with one.
    """
    given = iter(labels)
    outcomes = []
    for teachers, row in zip(disagreed.tolist(), expected, strict=True):
        if teachers:
            outcomes.append(Outcome(next(given), "teachers", answered))
        else:
            label = mechanism.reinforced(row)
            outcomes.append(Outcome(label, None if label is None else "reinforced", asked))
    return tuple(outcomes)


class _OneView(MechanismText):
    """Common part of the three: one histogram that contains the parties' noise."""

    share: Fraction
    honest: int
    votes_per_unit: int

    name: ClassVar[str]
    interactive: ClassVar[bool]
    noise_inside: ClassVar[bool] = True

    @property
    def shares(self) -> GaussianShares:
        """The law of the parties' noise."""
        return GaussianShares(self.share)

    @property
    def _event(self) -> NoisyHistogram:
        return NoisyHistogram(self.share, self.honest, self.votes_per_unit)

    @property
    def worst(self) -> tuple[Event, ...]:
        """The histogram, which every query reserves and uses, answered or not."""
        return (self._event,)

    def answer_all(
        self, rows: Votes, noise: Noise, predictions: Votes | None = None
    ) -> tuple[Outcome, ...]:
        """See the mechanisms."""
        raise NotImplementedError


@dataclass(frozen=True)
class DistributedGNMax(_OneView):
    """Release the arg max of every noisy histogram.

    Attributes:
        share: parameter of each party's noise on every class, in votes.
        honest: shares in every sum that the observer does not know.
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: Papernot et al. 2018, section 4.1, with the noise of several parties.
    """

    share: Fraction
    honest: int
    votes_per_unit: int

    name: ClassVar[str] = "distributed-gnmax"
    interactive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", self._event.share)

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,
    ) -> tuple[Outcome, ...]:
        """Answer noisy votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows, worst = check_rows(rows, noisy=True), self.worst
        return tuple(Outcome(label, "teachers", worst) for label in rows.argmax(axis=1).tolist())


@dataclass(frozen=True)
class DistributedConfidentGNMax(_OneView):
    """If a noisy histogram reaches the threshold somewhere, release its arg max; else nothing.

    The test reads the same noisy counts as the label: the label is the class whose noisy count
    passed. The largest of several noisy counts exceeds the largest count, so more queries pass than
    with a separate test at the same threshold.

    Attributes:
        threshold: T, in votes.
        share: parameter of each party's noise on every class, in votes.
        honest: shares in every sum that the observer does not know.
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: after Papernot et al. 2018, Algorithm 1, with one view of the votes in place of two.
    """

    threshold: int
    share: Fraction
    honest: int
    votes_per_unit: int

    name: ClassVar[str] = "distributed-confident-gnmax"
    interactive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        object.__setattr__(self, "share", self._event.share)

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,
    ) -> tuple[Outcome, ...]:
        """Answer noisy votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows, worst = check_rows(rows, noisy=True), self.worst
        passed = (rows.max(axis=1) >= self.threshold).tolist()
        return tuple(
            Outcome(label, "teachers", worst) if yes else Outcome(None, None, worst)
            for yes, label in zip(passed, rows.argmax(axis=1).tolist(), strict=True)
        )


@dataclass(frozen=True)
class DistributedInteractiveGNMax(_OneView):
    """Interactive-GNMax on noisy votes n: the same rule, margin and label from one histogram.

    With r as in :class:`~pate.mechanisms.interactive.InteractiveGNMax`: if max_j (n_j - r_j) >=
    threshold, release the arg max of n; else reinforce a confident prediction, or release nothing.

    Attributes:
        threshold: T, in votes of margin.
        share: parameter of each party's noise on every class, in votes.
        honest: shares in every sum that the observer does not know.
        confidence: of a prediction that may be reinforced, in [0, 1).
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: after Papernot et al. 2018, Algorithm 2, with one view of the votes in place of two.
    """

    threshold: int
    share: Fraction
    honest: int
    confidence: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "distributed-interactive-gnmax"
    interactive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        object.__setattr__(self, "share", self._event.share)
        object.__setattr__(self, "confidence", check_confidence(self.confidence))

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,
    ) -> tuple[Outcome, ...]:
        """Answer noisy votes; see :class:`~pate.mechanisms.contract.Mechanism`.

        The caller must ensure that predictions sum to the number of teachers, which noisy rows do
        not reveal.
        """
        rows, worst = check_rows(rows, noisy=True), self.worst
        expected = check_expected(self.name, rows, predictions)
        disagreed = (rows - expected).max(axis=1) >= self.threshold
        labels = rows[disagreed].argmax(axis=1).tolist()
        return labelled(disagreed, labels, expected, self, asked=worst, answered=worst)

    def reinforced(self, expected: Votes) -> int | None:
        """Return the class that the student predicts confidently, None if there is none."""
        return reinforced_by(expected, self.confidence)


#: Those of teachers' votes, whose noise is Gaussian.
DistributedTeachers = DistributedGNMax | DistributedConfidentGNMax | DistributedInteractiveGNMax


def over_noisy_sums(mechanism: Mechanism, honest: int) -> DistributedTeachers:
    """Return the same rule on noisy histograms, with at least the noise sigma2 guaranteed.

    sigma1 is unused: the test reads the same histogram.

    Args:
        mechanism: one that draws Gaussian noise itself.
        honest: shares in every sum that the observer does not know.

    Raises:
        UsageError: for any other mechanism.
    """
    k = mechanism.votes_per_unit
    if isinstance(mechanism, GNMax):
        return DistributedGNMax(share_sigma(mechanism.sigma, honest), honest, k)
    if isinstance(mechanism, ConfidentGNMax):
        share = share_sigma(mechanism.sigma2, honest)
        return DistributedConfidentGNMax(mechanism.threshold, share, honest, k)
    if isinstance(mechanism, InteractiveGNMax):
        share = share_sigma(mechanism.sigma2, honest)
        return DistributedInteractiveGNMax(
            mechanism.threshold, share, honest, mechanism.confidence, k
        )
    raise UsageError(
        f"{mechanism.name} does not support noise shares; "
        "use gnmax, confident-gnmax or interactive-gnmax"
    )


KINDS = ("LNMax", "GNMax", "ConfidentGNMax", "InteractiveGNMax")
KINDS += ("DistributedGNMax", "DistributedConfidentGNMax", "DistributedInteractiveGNMax")


def parameters(kind: str, rng: np.random.Generator) -> list[Any]:
    def noise() -> Fraction:
        return Fraction(int(rng.integers(64, 64 * 5)), 64)

    k = int(rng.integers(1, 4))
    threshold, confidence = int(rng.integers(-2, 15)), Fraction(int(rng.integers(0, 10)), 10)
    given: list[Any] = [] if "Interactive" not in kind and "Confident" not in kind else [threshold]
    if kind.startswith("Distributed"):
        given += [noise(), int(rng.integers(1, 5))]
    else:
        given += [noise(), noise()] if given else [noise()]
    return [*given, confidence, k] if "Interactive" in kind else [*given, k]


def answered(mechanism: Any, rows: Votes, seed: int, predictions: Votes | None) -> Any:
    noise = SimulatedNoise(seed)
    try:
        outcomes = mechanism.answer_all(rows, noise, predictions)
    except PateError as error:
        return type(error), str(error)
    return outcomes, noise.gaussian(Fraction(10**6), 4).tolist()  # equal if as much was drawn


def test_the_rule_answers_as_the_classes_that_it_replaces() -> None:
    rng, queries, seen = np.random.default_rng(20), 0, set()
    for world in range(400):
        classes, number, teachers = (
            int(rng.integers(low, most)) for low, most in ((2, 7), (0, 13), (1, 25))
        )
        exact = rng.multinomial(teachers, rng.dirichlet(np.ones(classes)), number).astype(np.int64)
        predictions: Votes | None = new.round_predictions(
            rng.dirichlet(np.ones(classes) / 3, number), teachers
        )
        if world % 10 == 7:
            exact[:, :2] = exact[:, :1]  # ties, and no longer the predictions' number of teachers
        if world % 25 == 3:
            predictions = None if world % 2 else predictions[:, ::-1][: number // 2]
        for kind in KINDS:
            given = parameters(kind, rng)
            before, now = globals()[kind](*given), getattr(new, kind)(*given)
            assert vars(before) == vars(now)
            assert before.worst == now.worst
            assert (before.to_dict(), str(before)) == (now.to_dict(), str(now))
            rows = exact
            if now.noise_inside:
                assert before.shares == now.shares
                rows = exact + SimulatedNoise(world).gaussian(Fraction(3), exact.size).reshape(
                    exact.shape
                )
            found = answered(now, rows, world, predictions)
            assert answered(before, rows, world, predictions) == found
            assert answered(before, rows - 30, world, predictions) == answered(
                now, rows - 30, world, predictions
            )
            if isinstance(found[0], tuple):
                queries += number
                seen |= {(kind, each.source) for each in found[0]}
            else:
                seen |= {found}
            if not now.noise_inside and kind != "LNMax":
                honest = int(rng.integers(1, 9))
                assert (
                    over_noisy_sums(before, honest).to_dict()
                    == new.over_noisy_sums(now, honest).to_dict()
                )
            if predictions is not None and now.interactive:
                for row in predictions:
                    assert before.reinforced(row) == now.reinforced(row)
    assert queries > 15_000
    assert {kind for kind, *_ in seen} >= set(KINDS)
    assert {source for _, source in seen} >= {"teachers", "reinforced", None}


def test_both_refuse_the_same_parameters() -> None:
    odd: tuple[Any, ...] = (
        0,
        -1,
        1.5,
        True,
        2**60,
        Fraction(1),
        Fraction(-1, 2),
        None,
        "1",
        Fraction(1, 3),
        3,
    )
    refused = 0
    for kind in KINDS:
        good = parameters(kind, np.random.default_rng(1))
        for at in range(len(good)):
            for value in odd:
                given = [*good[:at], value, *good[at + 1 :]]
                made = []
                for where in (globals()[kind], getattr(new, kind)):
                    try:
                        made.append(vars(where(*given)))
                    except PateError as error:
                        made.append((type(error), str(error)))
                        refused += 1
                    except (TypeError, AttributeError) as error:
                        made.append(type(error))
                assert made[0] == made[1], (kind, given)
    assert refused > 100
