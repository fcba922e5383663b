"""Expected utility of neighbour votes, computed only from assumptions.

The coordinator knows the public set and guesses how many records there are and how pure their
neighbourhoods are: what share of the records at a representative is of the class that most of them
have. Everything else follows from epsilon and delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.answers import NUMBER
from pate.campaign.choices import check_budget
from pate.campaign.neighbour_terms import require_size
from pate.codes import DENSE, NEAREST, code_of, require_places
from pate.errors import UsageError
from pate.masking.context import threshold_for
from pate.mechanisms.least_noise import (
    clear_margin,
    law_of_least_noise,
    least_noise,
    least_shares_of_rounds,
    noise_in_words,
    spreads_of,
)
from pate.noise.share_laws import GaussianShares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pate.codes import Code
    from pate.noise import NoiseLawName
    from pate.noise.share_laws import Shares

#: Sampled representatives; the plan is accurate to half a percentage point.
_DRAWS: Final = 20_000
#: Of a representative's records that are of another class, the share of one and the same class.
_RIVAL: Final = 0.5


@dataclass(frozen=True)
class NeighbourNoise:
    """The noise of a campaign.

    Attributes:
        shares: its law, of each party or of the server, in units of the code.
        delta: of the release; 0 with geometric noise.
        honest: number of shares that the accounting relies on.
        spreads: standard deviation of the noise in each count if no party drops out, in votes, by
            law: the chosen one's, and the other's if it allows such an epsilon.
        law: the chosen one.
        threshold: least noisy margin of a label, in units of the code; 0 where no query gets one.
        in_words: the line about it that a server prints.
    """

    shares: Shares
    delta: float
    honest: int
    spreads: Mapping[NoiseLawName, float]
    law: NoiseLawName
    threshold: int
    in_words: str

    @property
    def carried(self) -> float:
        """Standard deviation of the noise in each count if no party drops out, in votes."""
        return self.spreads[self.law]

    @classmethod
    def of(
        cls,
        epsilon: float,
        delta: float,
        parties: int,
        votes: int,
        colluders: int | None,
        law: NoiseLawName | None = None,
        code: str = NEAREST,
    ) -> NeighbourNoise:
        """Return the noise that a server would choose; the law is the smaller one unless stated.

        Raises:
            UsageError: for parties that cannot have a masked sum, or colluders that are too many.
            BudgetError: if no noise gives so small an epsilon.
        """
        adding, honest = 1, 1  # below three parties no masks, so the server draws it
        if parties >= 3:
            fewest, colluding = threshold_for(parties, colluders)
            adding, honest = parties, fewest - colluding
        check_budget(epsilon, delta, records_vote=True)
        law = law or law_of_least_noise(epsilon, delta, honest, adding, votes, code)
        if law == "gaussian" and delta == 0:
            raise UsageError("Gaussian noise needs a delta above 0")
        at = 0.0 if law == "geometric" else delta
        shares = least_noise(epsilon, at, honest, votes, code)
        of_one = epsilon, delta, honest, adding, votes
        grid = code_of(code).grid
        spreads = {name: each / grid for name, each in spreads_of(*of_one, code).items()}
        words = noise_in_words(*of_one, law, code)
        margin = clear_margin(shares, adding) if code_of(code).answer.labelled else 0
        return cls(shares, at, honest, spreads, law, margin, words)

    @classmethod
    def of_rounds(
        cls,
        epsilon: float,
        delta: float,
        parties: int,
        colluders: int | None,
        code: str,
        rounds: int,
    ) -> NeighbourNoise:
        """Return the noise of each of several rounds in which records vote, after one of class counts.

        Raises:
            UsageError, BudgetError: as :meth:`of`; also without a delta.
        """
        adding, honest = 1, 1
        if parties >= 3:
            fewest, colluding = threshold_for(parties, colluders)
            adding, honest = parties, fewest - colluding
        check_budget(epsilon, delta, records_vote=True)
        if delta == 0:
            raise UsageError("records that vote in rounds have Gaussian noise, at a delta above 0")
        first, later = (
            GaussianShares(share)
            for share in least_shares_of_rounds(epsilon, delta, honest, 1, code, rounds)
        )
        grid = code_of(code).grid
        spread = later.spread(adding) / grid
        words = (
            f"class counts with noise of {first.spread(adding) / grid:.4g} votes, then {rounds} rounds of "
            f"sums with Gaussian noise of standard deviation {spread:.4g} on each number, at delta {delta:g}"
        )
        return cls(later, delta, honest, {"gaussian": spread}, "gaussian", 0, words)


@dataclass(frozen=True)
class SumsPlan:
    """What the noise leaves of sums: of several labels, a number, or any answer in directions.

    Attributes:
        representatives: q, or d directions.
        votes: at each representative, about; of dense votes those of one class, in all directions.
        noise: standard deviation on each count, in votes.
        error: it as a share of the votes. Of several labels and of numbers: standard deviation of a
            label's share, or of a mean in parts of the range. Of dense votes: the length of a class's
            mean array, of 1 at most, that equals the noise in one direction.
        counts: numbers in the release.
    """

    representatives: int
    votes: float
    noise: float
    error: float
    counts: int


def plan_sums(
    representatives: int,
    code: Code,
    *,
    records: int,
    columns: int,
    noise: float,
    points: Sequence[float] = (0.0, 1.0),
) -> SumsPlan:
    """Return what the noise leaves of the sums of records' votes.

    Args:
        representatives: q.
        code: where records vote, and what they say.
        records: approximate number of voting records of all parties.
        columns: of the counts: classes, or labels and ``none``.
        noise: standard deviation on each count, in votes.
        points: of a number's range, ascending. A mean weighs the noise of each by how far it is from
            the mean: most if that is an end of the range.

    Raises:
        UsageError: for arguments that make no sense.
    """
    require_places(code, representatives)
    require_size(representatives, columns)
    if code.name == DENSE:
        votes = records / (columns if code.answer.one_hot else 1)
    else:
        votes = records / representatives
    error = noise / votes
    if code.answer.name == NUMBER and code.name != DENSE:
        low, high = points[0], points[-1]
        error *= max(
            math.hypot(*((each - end) / (high - low) for each in points)) for end in (low, high)
        )
    return SumsPlan(representatives, votes, noise, error, representatives * columns)


@dataclass(frozen=True)
class NeighbourPlan:
    """The expected utility of one number of representatives.

    Attributes:
        representatives: q.
        votes: at each, about.
        threshold: noisy margin of a label, in votes.
        labelled: expected share of representatives that get a label.
        right: expected share of those labels that are their representatives' main class.
        top_right: expected share of all representatives whose largest noisy count is of their main
            class, with a label or without: a student learns from the counts of all.
    """

    representatives: int
    votes: float
    threshold: int
    labelled: float
    right: float
    top_right: float

    @property
    def labels(self) -> float:
        """Expected number of labels."""
        return self.representatives * self.labelled


def plan_representatives(
    representatives: int,
    *,
    records: int,
    classes: int,
    purity: float,
    sigma: float,
    threshold: int,
    seed: int = 0,
) -> NeighbourPlan:
    """Return the expected utility of neighbour votes.

    Sizes of neighbourhoods are assumed to vary like those of random cells: a gamma law of shape 4 about
    the mean. Half of a representative's records outside its main class are assumed to be of one other
    class, the rest spread evenly.

    Args:
        representatives: q.
        records: approximate number of voting records of all parties.
        classes: m.
        purity: share of a representative's records that are of its main class, above 1/m.
        sigma: of the noise that each count carries, in votes.
        threshold: noisy margin of a label, in votes.
        seed: of the draws.

    Raises:
        UsageError: for arguments that make no sense.
    """
    if representatives < 1 or records < 1 or classes < 2:
        raise UsageError("a plan needs representatives, records and two classes or more")
    if not 1 / classes < purity <= 1:
        raise UsageError(f"purity is a share above 1/{classes} and at most 1, got {purity}")
    if not sigma > 0:
        raise UsageError(f"the noise is above 0, got {sigma}")
    draw = np.random.default_rng(seed)
    mean = records / representatives
    sizes = draw.poisson(draw.gamma(4.0, mean / 4.0, _DRAWS))
    counts = draw.multinomial(sizes, _shares(classes, purity)).astype(np.float64)
    noisy = counts + draw.normal(0.0, sigma, counts.shape)
    second, first = np.partition(noisy, -2, axis=1)[:, -2:].T
    clear = first - second >= threshold
    labelled = float(clear.mean())
    hits = noisy.argmax(axis=1) == 0
    right = float(hits[clear].mean()) if clear.any() else 0.0
    return NeighbourPlan(representatives, mean, threshold, labelled, right, float(hits.mean()))


def _shares(classes: int, purity: float) -> NDArray[np.float64]:
    """Return the shares of all classes at a representative, its main class first."""
    shares = np.full(classes, (1 - purity) / (classes - 1))
    if classes > 2:
        shares[1:] = (1 - purity) * (1 - _RIVAL) / (classes - 2)
        shares[1] = (1 - purity) * _RIVAL
    shares[0] = purity
    return shares
