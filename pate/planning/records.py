"""Expected utility of records that vote, computed only from assumptions.

The coordinator knows the public set and guesses how many records there are and how pure their
neighbourhoods are: what share of the records at a representative is of the class that most of them
have. Everything else follows from the campaign's terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.answers import NUMBER
from pate.campaign.terms import matrix_mechanism, round_mechanisms
from pate.codes import DENSE, code_of
from pate.errors import UsageError
from pate.noise.share_laws import GeometricShares
from pate.planning.chances import MOST_SCALE, chances, gaussian_law, geometric_law

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.campaign.spec import CampaignSpec
    from pate.noise.share_laws import Shares
    from pate.planning.chances import Integers, NoiseLaw

#: Assumed share of the records near a representative that are of its main class.
PURITY: Final = 0.9
#: Sampled representatives; their sizes are quantiles, and of given votes all is computed.
_DRAWS: Final = 1000
#: Wider geometric noise is taken for Gaussian: its table would be long.
_WIDE: Final = 2**11
#: Of a representative's records that are of another class, the share of one and the same class.
_RIVAL: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class RecordsPlan:
    """What is expected of one number of representatives."""

    representatives: int
    votes: float  # at each, about; of dense votes those of one class, in all directions
    noise: float  # standard deviation of the noise on each count if no party drops out, in votes
    counts: int
    threshold: float = 0.0
    # expected share of representatives that get a label; None where none does
    labelled: float | None = None
    # expected share of those labels that are their representatives' main class
    right: float | None = None
    # expected share of all representatives whose largest noisy count is of their main class, with a
    # label or without: a student learns from the counts of all
    top_right: float | None = None
    # where no query gets a label, the noise as a share of the votes. Of several labels and of
    # numbers: standard deviation of a label's share, or of a mean in parts of the range. Of dense
    # votes: the length of a class's mean array, of 1 at most, that equals the noise in one
    # direction
    error: float | None = None

    @property
    def labels(self) -> float:
        """Expected number of labels."""
        return self.representatives * (self.labelled or 0.0)


def plan_records(
    spec: CampaignSpec,
    *,
    records: int,  # approximate number of voting records of all parties
    columns: int,  # of the counts: classes, or labels and ``none``
    # share of a representative's records that are of its main class, above 1/columns
    purity: float = PURITY,
    # of a number's range, ascending. A mean weighs the noise of each by how far it is from the
    # mean: most if that is an end of the range
    points: Sequence[float] = (0.0, 1.0),
) -> RecordsPlan:
    """Return what a campaign in which records vote is expected to give."""
    code, number = code_of(spec.code), len(spec.representatives or ())
    votes = spec.votes_per_patient or 1
    of_one = round_mechanisms(spec, 1)[-1] if spec.in_rounds else matrix_mechanism(spec, votes)
    adding = spec.wanted_parties if spec.sums.distributed else 1
    noise = of_one.shares.spread(adding) / code.grid
    at_each = records / number
    if code.name == DENSE:
        at_each = records / (columns if code.answer.one_hot else 1)
    elif code.answer.one_hot:
        near = _neighbourhoods(at_each, columns, purity)
        labelled, right, top = 0.0, None, 1 / columns  # of more noise than any number of votes
        if of_one.shares.spread(adding) <= MOST_SCALE:
            labelled, right, top = _labels(near, law_of(of_one.shares, adding), of_one.threshold)
        return RecordsPlan(
            representatives=number, votes=at_each, noise=noise, counts=number * columns,
            threshold=of_one.threshold / code.grid, labelled=labelled, right=right, top_right=top,
        )  # fmt: skip
    error = noise / at_each
    if code.answer.name == NUMBER and code.name != DENSE:
        low, high = points[0], points[-1]
        error *= max(
            math.hypot(*((each - end) / (high - low) for each in points)) for end in (low, high)
        )
    return RecordsPlan(
        representatives=number, votes=at_each, noise=noise, counts=number * columns, error=error
    )


def law_of(shares: Shares, adding: int) -> NoiseLaw:
    """Return the law of the noise of ``adding`` parties on a count; of wide noise one as wide."""
    if isinstance(shares, GeometricShares) and shares.scale <= _WIDE:
        return geometric_law(shares.scale, Fraction(adding, shares.honest))
    return gaussian_law(Fraction(round(shares.spread(adding) * 64), 64))


def _labels(votes: Integers, noise: NoiseLaw, lead: int) -> tuple[float, float | None, float]:
    """Return P[a label], P[it is the main class, given a label], and P[the largest count is that class's].

    ``votes``: (representatives, classes), of the main class first, its rival, and all others,
    alike.
    """
    classes = votes.shape[1]

    def wins(place: int, by: int) -> float:
        """Return P[the class wins]; a tie goes to the lowest index, so the mean of both orders is taken."""
        label = np.full(len(votes), place, np.int64)
        orders = [(votes, label), (votes[:, ::-1], classes - 1 - label)][: 1 if by else 2]
        return float(
            np.mean([chances(*each, noise, [(None, None)], by)[1].mean() for each in orders])
        )

    right = wins(0, lead)
    label = right + wins(1, lead) + (wins(2, lead) * (classes - 2) if classes > 2 else 0.0)
    return min(1.0, label), right / label if label > 0.0 else None, wins(0, 0)


def _neighbourhoods(mean: float, classes: int, purity: float) -> Integers:
    """Return (representatives, classes) votes, the main class of each first.

    Sizes of neighbourhoods are assumed to vary like those of random cells: a gamma law of shape 4 about
    the mean. Half of a representative's records outside its main class are assumed to be of one other
    class, the rest spread evenly.
    """
    from scipy.special import gammaincinv

    if classes < 2 or not 1 / classes < purity <= 1:
        raise UsageError(f"purity is a share above 1/{classes} and at most 1, got {purity}")
    draw = np.random.default_rng(0)
    quantiles = gammaincinv(4.0, (np.arange(_DRAWS) + 0.5) / _DRAWS)
    shares = np.full(classes, (1 - purity) / (classes - 1))
    if classes > 2:
        shares[1:] = (1 - purity) * (1 - _RIVAL) / (classes - 2)
        shares[1] = (1 - purity) * _RIVAL
    shares[0] = purity
    votes: Integers = draw.multinomial(draw.poisson(quantiles * mean / 4.0), shares)
    return votes
