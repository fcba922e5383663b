"""The four classes that the matrix replaced, as oracles: equal noise, labels, events, texts and draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pate import mechanisms as new
from pate.accounting.events import Event, GeometricHistogram, NoisyArray, NoisyHistogram
from pate.codes import NEAREST, code_of
from pate.errors import PateError, UsageError
from pate.mechanisms.contract import MechanismText, Outcome, Votes, check_rows, check_threshold
from pate.mechanisms.matrix import event_of
from pate.noise.share_laws import GaussianShares, GeometricShares, Shares
from pate.noise.simulated import SimulatedNoise
from pate.text_form import in_text

if TYPE_CHECKING:
    from pate.noise.exact import Noise


class _Matrix(MechanismText):
    """Common part of both: one event for all queries, labels by noisy margin."""

    threshold: int
    votes_per_unit: int
    scale: Fraction | None
    code: str

    name: ClassVar[str]
    interactive: ClassVar[bool] = False
    noise_inside: ClassVar[bool]

    @property
    def shares(self) -> Shares:
        """The law of the noise, in shares; noise by the server is one share."""
        raise NotImplementedError

    @property
    def worst(self) -> tuple[Event, ...]:
        """The one event of the whole matrix."""
        return (self._event,)

    @property
    def _event(self) -> NoisyHistogram | NoisyArray | GeometricHistogram:
        return event_of(self.shares, self._honest, self.votes_per_unit, self.code)

    @property
    def _honest(self) -> int:
        raise NotImplementedError

    def _set_exact(self, gaussian: str) -> None:
        """Check all parameters, and store that of the noise as a fraction."""
        event = self._event
        if isinstance(event, GeometricHistogram):
            object.__setattr__(self, "scale", event.scale)
        else:
            object.__setattr__(self, gaussian, event.share)

    def released(self, rows: Votes, noise: Noise) -> Votes:
        """Return the noisy matrix behind all results: (queries, classes) int64."""
        raise NotImplementedError

    def labels(self, noisy: Votes) -> tuple[int | None, ...]:
        """Return the label of each noisy row, None where its margin is below the threshold.

        The margin is the largest noisy count less the second largest. Of several labels, or a number,
        no row has a label: no one column is what its input is, and a student learns from the counts.

        Args:
            noisy: (queries, classes) int64, as :meth:`released` returned it.

        Raises:
            ProtocolError: for rows that cannot be noisy votes.
        """
        noisy = check_rows(noisy, noisy=True)
        if not len(noisy) or not code_of(self.code).answer.one_hot:
            return (None,) * len(noisy)
        second, first = np.partition(noisy, -2, axis=1)[:, -2:].T
        clear = (first - second >= self.threshold).tolist()
        best = noisy.argmax(axis=1).tolist()
        return tuple(label if yes else None for yes, label in zip(clear, best, strict=True))

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,
    ) -> tuple[Outcome, ...]:
        """Answer a whole matrix; see :class:`~pate.mechanisms.contract.Mechanism`.

        Each outcome has the one event of all of them: adding them up overestimates the cost.
        """
        del predictions  # no predictions are used
        worst = self.worst
        return tuple(
            Outcome(label, None if label is None else "records", worst)
            for label in self.labels(self.released(rows, noise))
        )


@dataclass(frozen=True)
class Neighbour(_Matrix):
    """Neighbour votes with noise drawn by the server.

    Attributes:
        threshold: least noisy margin of a label, in votes; 0 where no query gets one.
        sigma: parameter of Gaussian noise on each count, in votes; None for geometric noise.
        votes_per_unit: votes that one unit of privacy casts at most.
        scale: parameter of geometric noise on each count, in votes; None for Gaussian noise.
        code: where each vote counts and what it says, the text of a :class:`~pate.codes.Code`.

    Raises:
        UsageError: for parameters that make no sense.
    """

    threshold: int
    sigma: Fraction | None = field(default=None, metadata=in_text(omitted=True))
    votes_per_unit: int = 0  # no default: 0 is refused
    scale: Fraction | None = field(default=None, metadata=in_text(omitted=True))
    #: Omitted from the text at its default, as in older ledgers.
    code: str = field(default=NEAREST, metadata=in_text(omitted=True))

    name: ClassVar[str] = "neighbour"
    noise_inside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        require_one_law(sigma=self.sigma, scale=self.scale)
        self._set_exact("sigma")

    @property
    def shares(self) -> Shares:
        """The law of the noise that the server draws."""
        return _shares_of(self.sigma, self.scale, 1)

    @property
    def _honest(self) -> int:
        return 1

    def released(self, rows: Votes, noise: Noise) -> Votes:
        """Return the noisy matrix; see :class:`_Matrix`."""
        rows = check_rows(rows, noisy=code_of(self.code).signed)
        if self.scale is not None:
            return rows + noise.laplace(self.scale, rows.size).reshape(rows.shape)
        assert self.sigma is not None
        return rows + noise.gaussian(self.sigma, rows.size).reshape(rows.shape)


@dataclass(frozen=True)
class DistributedNeighbour(_Matrix):
    """Neighbour votes with a noise share from each party: no one has the exact matrix.

    Attributes:
        threshold: least noisy margin of a label, in votes; 0 where no query gets one.
        share: parameter of each party's Gaussian noise on every count, in votes; None for geometric
            noise.
        honest: shares in every sum that the observer does not know.
        votes_per_unit: votes that one unit of privacy casts at most.
        scale: parameter of the geometric noise that ``honest`` shares sum to, in votes; None for
            Gaussian noise.
        code: where each vote counts and what it says, the text of a :class:`~pate.codes.Code`.

    Raises:
        UsageError: for parameters that make no sense.
    """

    threshold: int
    share: Fraction | None = field(default=None, metadata=in_text(omitted=True))
    honest: int = 0  # no default: 0 is refused
    votes_per_unit: int = 0  # likewise
    scale: Fraction | None = field(default=None, metadata=in_text(omitted=True))
    #: Omitted from the text at its default, as in older ledgers.
    code: str = field(default=NEAREST, metadata=in_text(omitted=True))

    name: ClassVar[str] = "distributed-neighbour"
    noise_inside: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        require_one_law(share=self.share, scale=self.scale)
        self._set_exact("share")

    @property
    def shares(self) -> Shares:
        """The law of the parties' noise."""
        return _shares_of(self.share, self.scale, self.honest)

    @property
    def _honest(self) -> int:
        return self.honest

    def released(self, rows: Votes, noise: Noise) -> Votes:
        """Return the rows as they are: their noise is in them."""
        del noise
        return check_rows(rows, noisy=True)


#: Those that answer a whole matrix with one release, charged once.
MatrixMechanism = Neighbour | DistributedNeighbour


def require_one_law(**parameters: Fraction | None) -> None:
    """Check that just one parameter, which names the law of the noise, is stated.

    Raises:
        UsageError: otherwise.
    """
    if sum(value is not None for value in parameters.values()) != 1:
        raise UsageError(f"neighbour votes have one law of noise: state {' or '.join(parameters)}")


def _shares_of(sigma: Fraction | None, scale: Fraction | None, honest: int) -> Shares:
    if sigma is None:
        assert scale is not None
        return GeometricShares(scale, honest)
    return GaussianShares(sigma)


@dataclass(frozen=True)
class TeacherLabels(Neighbour):
    """Teachers' votes for several labels with noise drawn by the server.

    Attributes are those of :class:`~pate.mechanisms.neighbour.Neighbour`; ``threshold`` is 0, no query gets
    one label.

    Raises:
        UsageError: for parameters that make no sense.
    """

    name: ClassVar[str] = "teacher-labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_several(self)


@dataclass(frozen=True)
class DistributedTeacherLabels(DistributedNeighbour):
    """The same with a noise share from each party: no one has the exact counts.

    Attributes are those of :class:`~pate.mechanisms.neighbour.DistributedNeighbour`.

    Raises:
        UsageError: for parameters that make no sense.
    """

    name: ClassVar[str] = "distributed-teacher-labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_several(self)


def _require_several(mechanism: MatrixMechanism) -> None:
    """Check code, threshold and noise.

    The L1 distance grows with the queries, the L2 distance with their square root: geometric noise would
    be larger.
    """
    if not code_of(mechanism.code).of_teachers:
        raise UsageError(f"{mechanism.name} needs a code of teachers, not {mechanism.code!r:.60}")
    if mechanism.threshold:
        raise UsageError(f"{mechanism.name} has no threshold: no query gets one label")
    if mechanism.scale is not None:
        raise UsageError("teachers' votes for several labels have Gaussian noise")


KINDS = ("Neighbour", "DistributedNeighbour", "TeacherLabels", "DistributedTeacherLabels")
CODES = (NEAREST, "dense-5", "each-12 labels-3-of-4", "each-7 labels-5-of-5")
ODD: tuple[Any, ...] = (
    0,
    -1,
    1.5,
    True,
    2**60,
    Fraction(1),
    Fraction(1, 3),
    None,
    "1",
    3,
    "nearest-3",
    "x",
)


def parameters(kind: str, rng: np.random.Generator) -> list[Any]:
    several = "Labels" in kind and rng.random() < 0.95
    noise: list[Any] = [Fraction(int(rng.integers(64, 600)), 64), None]
    if not several and rng.random() < 0.5:
        noise.reverse()
    honest = [int(rng.integers(1, 5))] if kind.startswith("Distributed") else []
    code = CODES[int(rng.integers(2, 4))] if several else CODES[int(rng.integers(0, 4))]
    threshold = 0 if several else int(rng.integers(-1, 8))
    return [threshold, noise[0], *honest, int(rng.integers(1, 4)), noise[1], code]


def tried(act: Any) -> Any:
    try:
        return act()
    except PateError as error:
        return type(error), str(error)
    except (TypeError, AttributeError) as error:
        return type(error)


def test_the_matrix_is_that_of_the_classes_that_it_replaces() -> None:
    rng, made, answered = np.random.default_rng(3), 0, 0
    for world in range(1500):
        kind = KINDS[world % 4]
        given = parameters(kind, rng)
        if world % 3 == 0:
            given[int(rng.integers(len(given)))] = ODD[int(rng.integers(len(ODD)))]
        before, now = (
            tried(partial(globals()[kind], *given)),
            tried(partial(getattr(new, kind), *given)),
        )
        if not isinstance(now, new.MatrixMechanism):
            assert before == now, given
            continue
        made += 1
        assert vars(before) == vars(now)
        assert (before.worst, before.shares, before.to_dict(), str(before)) == (
            now.worst,
            now.shares,
            now.to_dict(),
            str(now),
        )
        low = -3 if world % 5 == 0 else 0
        rows = rng.integers(low, 9, (int(rng.integers(0, 9)), int(rng.integers(1, 6))))
        found = []
        for mechanism in (before, now):
            noise = SimulatedNoise(world)
            released = tried(lambda: mechanism.released(rows, noise).tolist())  # noqa: B023
            outcomes = tried(lambda: mechanism.answer_all(rows, noise))  # noqa: B023
            labels = tried(lambda: mechanism.labels(rows))  # noqa: B023
            found.append((released, outcomes, labels, noise.gaussian(Fraction(10**6), 4).tolist()))
        assert found[0] == found[1]
        answered += len(rows) if isinstance(found[1][0], list) else 0
    assert made > 900
    assert answered > 2000
