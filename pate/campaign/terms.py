"""The terms of a campaign, computed from its specification and its roster.

Mechanisms, their composition, and the cap. They are computed once, when the roster is complete, and
written into the ledger; a ledger that is read is checked with the same functions.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from pate.accounting.composition import Gate, Gdp, composition_named, tightest, too_dear
from pate.accounting.events import GaussianMax, GaussianThreshold
from pate.campaign.choices import check_count
from pate.campaign.defaults import (
    CLASSES,
    LEAST,
    MARGIN,
    PAPERS,
    PLENTY,
    PLENTY_INTERACTIVE,
    default_noise,
    share_of,
)
from pate.campaign.order import VotedRows, public_order
from pate.codes import AXES, NEAREST, adjacency_for, code_of
from pate.errors import BudgetError, LedgerError, UsageError
from pate.mechanisms import (
    ConfidentGNMax,
    DistributedMechanism,
    DistributedNeighbour,
    DistributedTeacherLabels,
    GNMax,
    InteractiveGNMax,
    LNMax,
    MatrixMechanism,
    Neighbour,
    TeacherLabels,
    over_noisy_sums,
    rounds_cost,
    worst_cost,
)
from pate.mechanisms.least_noise import clear_margin, least_noise, least_shares_of_rounds
from pate.noise.share_laws import GaussianShares, GeometricShares
from pate.noise.shares import share_sigma

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pate.accounting.composition import Composition
    from pate.campaign.defaults import DefaultNoise
    from pate.campaign.roster import RosterParty, SumTerms
    from pate.campaign.spec import CampaignSpec
    from pate.mechanisms import Mechanism
    from pate.noise.share_laws import Shares


def votes_per_unit(spec: CampaignSpec, parties: Iterable[RosterParty]) -> int:
    """Return k, how many teachers one unit of privacy may reach.

    A record, or a patient whose rows a party keeps together, is in one shard of one party. A party
    as the unit reaches all its own teachers; the largest counts. For neighbour votes it is the
    number of votes that the unit casts.
    """
    if spec.votes_per_patient is not None:
        return spec.votes_per_patient
    return max(party.teachers for party in parties) if spec.unit == "party" else 1


def resolve(
    spec: CampaignSpec, teachers: int, votes_per_unit: int, classes: int | None = None
) -> tuple[Mechanism, ...]:
    """Return the mechanisms of a campaign, now that its teachers are counted.

    Thresholds that the specification leaves open are shares of M = ``teachers``, whole votes, rounded up
    (a stricter check). Noise is that of :func:`noise_of` if none is stated, else the papers' shares; see
    :mod:`pate.campaign.defaults`.

    Source: Papernot et al. 2017, section 4; Papernot et al. 2018, Table 1 and Algorithm 2.

    ``votes_per_unit``: k, how many teachers one unit may reach; ``classes``: m; None: as many as
    the specification states.

    Returns one mechanism; with several rounds whose mechanisms differ that of round 1 and that of
    all later ones.
    """
    picked = noise_of(spec, teachers, votes_per_unit, classes)
    return _with_noise(spec, teachers, votes_per_unit, picked.factor if picked else Fraction(1))


def noise_of(
    spec: CampaignSpec, teachers: int, votes_per_unit: int, classes: int | None = None
) -> DefaultNoise | None:
    """Return the noise of a campaign that states none; see :mod:`pate.campaign.defaults`.

    All noise of a mechanism grows together, so a check costs a twentieth of a label, as with the
    papers' shares. A gate is not charged per query, so a gated campaign has the papers' shares.

    Arguments are those of :func:`resolve`.

    Returns none if noise is stated, or the rule is not for such a campaign.
    """
    check_count("number of teachers", teachers, 1)
    stated = spec.parameters.stated()
    if spec.one_release or spec.gate is not None or stated.keys() & {"sigma1", "sigma2", "scale"}:
        return None
    wanted = min(spec.queries, spec.max_queries or spec.queries)
    least = share_of(teachers, LEAST)

    def paid(sigma2: int) -> int:
        made = _with_noise(spec, teachers, votes_per_unit, Fraction(sigma2, least))
        composition = composition_of(spec, made)
        worth = _worth(composition.name, spec.epsilon, spec.delta)
        return min(wanted, int(worth / worst_cost(composition, made, 1)))

    carried = 1.0
    if spec.sums.distributed:
        carried = math.sqrt(spec.wanted_parties / spec.sums.honest)
    number = classes or len(spec.classes or ()) or CLASSES
    each = PLENTY_INTERACTIVE if spec.interactive else PLENTY
    found = default_noise(teachers, number, wanted, paid, each=each, carried=carried)
    if spec.aggregator != "lnmax":
        return found
    # LNMax's parameter has another name, and half the share.
    (made,) = _central(spec, teachers, votes_per_unit, found.factor)
    words = found.reason.replace(f"sigma2 {found.sigma2}", f"scale {made.to_dict()['scale']}")
    return replace(found, reason=words.replace("16 %", "8 %"))


@lru_cache(maxsize=64)
def _worth(composition: str, epsilon: float, delta: float) -> Fraction:
    return composition_named(composition).budget(epsilon, delta)


def _with_noise(
    spec: CampaignSpec, teachers: int, votes_per_unit: int, factor: Fraction
) -> tuple[Mechanism, ...]:
    """Return the mechanisms; noise that is not stated is a multiple of the papers' shares."""
    if spec.in_rounds:
        return round_mechanisms(spec, votes_per_unit)
    if spec.one_release:
        return (matrix_mechanism(spec, votes_per_unit),)
    made = _central(spec, teachers, votes_per_unit, factor)
    if not spec.sums.distributed:
        return made
    return tuple(over_noisy_sums(each, spec.sums.honest) for each in made)


def _central(
    spec: CampaignSpec, teachers: int, votes_per_unit: int, factor: Fraction
) -> tuple[Mechanism, ...]:
    """Return the mechanisms as they are if the server draws the noise."""

    def noise(name: str) -> Fraction:
        return Fraction(math.ceil(factor * share_of(teachers, PAPERS[name])))

    if spec.aggregator == "lnmax":
        return (LNMax(spec.parameters.scale or noise("scale"), votes_per_unit),)
    sigma2 = spec.parameters.sigma2 or noise("sigma2")
    if spec.aggregator == "gnmax":
        return (GNMax(sigma2, votes_per_unit),)
    sigma1 = spec.parameters.sigma1 or noise("sigma1")
    # Votes and noise are integers: to reach T is to reach its ceiling.
    threshold = math.ceil(spec.parameters.threshold or share_of(teachers, PAPERS["threshold"]))
    confident = ConfidentGNMax(threshold, sigma1, sigma2, votes_per_unit)
    if not spec.interactive:
        return (confident,)
    return (
        confident,
        InteractiveGNMax(
            math.ceil(spec.parameters.interactive_threshold or share_of(teachers, MARGIN)),
            sigma1,
            sigma2,
            spec.parameters.confidence or Fraction(9, 10),
            votes_per_unit,
        ),
    )


def matrix_mechanism(spec: CampaignSpec, votes_per_unit: int) -> MatrixMechanism:
    """Return the mechanism of a campaign of neighbour votes, or of teachers' in one release.

    The noise is ``sigma2`` or ``scale`` if one is stated, else the least that epsilon allows, since there
    is only one release: geometric at delta 0, else Gaussian. A label needs a margin of
    :func:`clear_margin` unless it is stated; several labels, or a number, have none.
    """
    code = spec.code
    adjacency = adjacency_for(code_of(code), spec.unit)
    # What is stated is in votes, what a mechanism has in units of the counts.
    grid = code_of(code).grid
    honest = spec.sums.honest if spec.sums.distributed else 1
    shares: Shares
    if (scale := spec.parameters.scale) is not None:
        shares = GeometricShares(grid * scale, honest)
    elif (sigma := spec.parameters.sigma2) is not None:
        sigma = grid * sigma
        shares = GaussianShares(share_sigma(sigma, honest) if spec.sums.distributed else sigma)
    else:
        shares = least_noise(spec.epsilon, spec.delta, honest, votes_per_unit, code, adjacency)
    threshold = 0
    if spec.parameters.threshold is not None:
        threshold = math.ceil(grid * spec.parameters.threshold)
    elif code_of(code).answer.labelled:
        threshold = clear_margin(shares, spec.wanted_parties if spec.sums.distributed else 1)
    share = shares.share if isinstance(shares, GaussianShares) else None
    scale = shares.scale if isinstance(shares, GeometricShares) else None
    if not spec.records_vote:
        if spec.sums.distributed:
            return DistributedTeacherLabels(
                threshold, share, honest, votes_per_unit, scale, code, adjacency
            )
        return TeacherLabels(threshold, share, votes_per_unit, scale, code, adjacency)
    if spec.sums.distributed:
        return DistributedNeighbour(threshold, share, honest, votes_per_unit, scale, code)
    return Neighbour(threshold, share, votes_per_unit, scale, code)


def round_mechanisms(spec: CampaignSpec, votes_per_unit: int) -> tuple[MatrixMechanism, ...]:
    """Return the mechanisms of records that vote in rounds: of the class counts, and of all residuals.

    The noise of each is the least that its part of mu^2 allows.
    """
    honest = spec.sums.honest if spec.sums.distributed else 1
    shares = least_shares_of_rounds(
        spec.epsilon, spec.delta, honest, votes_per_unit, spec.code, spec.rounds - 1
    )
    if spec.sums.distributed:
        return tuple(
            DistributedNeighbour(0, share, honest, votes_per_unit, None, spec.code)
            for share in shares
        )
    return tuple(Neighbour(0, share, votes_per_unit, None, spec.code) for share in shares)


def voted_rows(
    spec: CampaignSpec, mechanisms: Sequence[Mechanism], composition: Composition, cap: Fraction
) -> VotedRows:
    """Return the queries that parties vote on, in the order in which batches have them.

    That is the whole public set, or for neighbour votes its representatives; in one release of teachers'
    votes as many as are asked, of their answers to the whole set one for each direction. With noise
    shares each vote shows the server a noisy histogram, answered or not: then it is only as many
    queries as the budget pays for, the first in public order, so that the server learns no more than
    the public may.
    """
    if spec.representatives is not None:
        return VotedRows(spec.representatives, spec.rounds)
    if spec.one_release and code_of(spec.code).name == AXES:
        # The same in every campaign, the first row always: a party that is asked again compares.
        most = spec.most_asked
        return VotedRows([at * spec.queries // most for at in range(most)])
    if spec.one_release:
        return VotedRows(sorted(public_order(spec.id, spec.queries)[: spec.most_asked]))
    if not spec.sums.distributed:
        return VotedRows(range(spec.queries))
    worst = worst_cost(composition, mechanisms, 1)
    most = min(spec.queries, int(cap / worst))
    if spec.max_queries is not None:
        most = min(most, spec.max_queries)
    return VotedRows(public_order(spec.id, spec.queries)[:most])


def stated_as(mechanism: Mechanism, field: str) -> str:
    """Return the name that a specification has for a parameter of a mechanism."""
    if field == "threshold" and mechanism.interactive:
        return "interactive_threshold"
    return "sigma2" if field in ("sigma", "share") else field


def composition_of(spec: CampaignSpec, mechanisms: Sequence[Mechanism]) -> Composition:
    """Return how costs add up: the gate's own way, or the tightest one that supports all events."""
    events = [event for each in mechanisms for event in each.worst]
    if spec.gate is None:
        return tightest(events)
    from pate.accounting.bounds.laws import WIDEST_SIGMA  # with SciPy, which others need not

    for event in events:
        if not Gdp().supports(event):
            raise UsageError("a gated campaign needs noise of at least sigma 2")
        if isinstance(event, GaussianThreshold | GaussianMax) and event.sigma > WIDEST_SIGMA:
            raise UsageError(f"a gated campaign needs noise of at most sigma {WIDEST_SIGMA:g}")
    return Gate(spec.gate)


def budget(
    spec: CampaignSpec, mechanisms: Sequence[Mechanism], composition: Composition
) -> Fraction:
    """Return the cap that the campaign's filter enforces, in its composition.

    It is the total that converts to (epsilon, delta), or the worst cost of all queries that may be
    answered if that is less. Both are fixed before the first answer, so either may be stated.
    """
    if spec.gate is not None:
        cap = composition.budget(spec.epsilon, spec.delta)
        if not cap:
            raise BudgetError(f"the gated batch costs more than epsilon {spec.epsilon:g}")
        return cap
    if spec.in_rounds:
        cap = rounds_cost(composition, mechanisms, spec.rounds)
        if cap > composition.budget(spec.epsilon, spec.delta):
            raise too_dear(composition, cap, spec.delta, spec.epsilon, "campaign", "budget")
        return cap
    worst = worst_cost(composition, mechanisms, 1)
    most = spec.queries * spec.rounds
    if spec.max_queries is not None:
        most = min(most, spec.max_queries)
    cap = min(
        composition.budget(spec.epsilon, spec.delta), worst_cost(composition, mechanisms, most)
    )
    if worst > cap:
        what = "matrix" if spec.one_release else "answer"
        raise too_dear(composition, worst, spec.delta, spec.epsilon, what, "budget")
    return cap


def check_mechanisms(
    mechanisms: Sequence[Mechanism],
    sums: SumTerms,
    *,
    unit: str,
    records_vote: bool,  # whether records vote instead of teachers
    most_teachers: int,
    code: str = NEAREST,
) -> None:
    """Check mechanisms against the other terms that a party receives."""
    if not mechanisms:
        raise UsageError("a campaign needs a mechanism")
    several = not records_vote and code != NEAREST
    for each in mechanisms:
        if isinstance(each, MatrixMechanism):
            fits = several if each.of_teachers else records_vote
        else:
            fits = not (records_vote or several)
        if not fits:
            what = "records" if records_vote else "teachers"
            raise UsageError(
                f"the mechanism {each.name} is not for votes of {what}"
                + (" in one release" if several else "")
            )
        charged = each.code if isinstance(each, MatrixMechanism) else NEAREST
        if charged != code:
            raise UsageError(
                f"{'teachers' if several else 'records'} vote by the code {code}, but {charged} is charged"
            )
        if isinstance(each, MatrixMechanism):
            differs = adjacency_for(code_of(code), unit)
            if each.unit_is != differs:
                raise UsageError(
                    f"of a {unit} by the code {code} the mechanism charges {differs}, but {each.unit_is} is "
                    "charged"
                )
        if each.noise_inside != sums.distributed:
            raise UsageError(f"the mechanism {each.name} does not use {sums.noise} noise")
        if isinstance(each, DistributedMechanism) and each.honest != sums.honest:
            raise UsageError(
                f"noise is counted of {each.honest} honest parties, certain are {sums.honest}"
            )
    shares = {each.shares for each in mechanisms if isinstance(each, DistributedMechanism)}
    if len(shares) > 1 and not code_of(code).answer.in_rounds:
        raise UsageError("the mechanisms need different noise")
    # One party's data may change all its teachers, and each of their votes is charged.
    fewest = min(each.votes_per_unit for each in mechanisms)
    if unit == "party" and fewest < most_teachers:
        raise UsageError(
            f"a party has up to {most_teachers} teachers, but only {fewest} votes are charged"
        )


def recorded_terms(
    spec: CampaignSpec,
    parties: Sequence[RosterParty],
    mechanisms: tuple[Mechanism, ...],
    composition: str,
    cap: Fraction,
) -> Composition:
    """Check the terms that a ledger records against its specification and roster.

    Returns how the costs of the campaign add up.
    """
    votes = votes_per_unit(spec, parties)
    if len(mechanisms) != (2 if spec.interactive or spec.in_rounds else 1):
        raise LedgerError(f"{spec.aggregator} does not have {len(mechanisms)} mechanisms")
    if any(each.votes_per_unit != votes for each in mechanisms):
        raise LedgerError(f"a mechanism is not charged for {votes} votes per {spec.unit}")
    _check_stated(spec, mechanisms, sum(party.teachers for party in parties), votes)
    made = _composition(spec, composition, mechanisms)
    if made.epsilon(cap, spec.delta) > spec.epsilon:
        raise BudgetError(f"the cap {cap} converts to more than epsilon {spec.epsilon}")
    return made


def _composition(spec: CampaignSpec, name: str, mechanisms: tuple[Mechanism, ...]) -> Composition:
    if spec.gate is not None:
        composition = composition_of(spec, tuple(mechanisms))
    else:
        composition = composition_named(name)
        events = [event for each in mechanisms for event in each.worst]
        if not all(composition.supports(event) for event in events):
            raise LedgerError(f"not every event of this campaign has a cost in {name!r}")
    if composition.name != name:
        raise LedgerError(f"the costs of this campaign do not add up as {name!r}")
    return composition


def _check_stated(
    spec: CampaignSpec, mechanisms: tuple[Mechanism, ...], teachers: int, votes: int
) -> None:
    """Check that mechanisms have every parameter that the specification states.

    The others follow from the roster when the campaign begins, and may be computed differently by
    another version.
    """
    stated = {**spec.parameters.stated(), "honest": spec.sums.honest}
    wanted_ones = _with_noise(spec, teachers, votes, Fraction(1))
    for given, wanted in zip(mechanisms, wanted_ones, strict=True):
        if given.name != wanted.name:
            raise LedgerError(f"the mechanism is {given.name}, the campaign's is {wanted.name}")
        codes = [each.code for each in (given, wanted) if isinstance(each, MatrixMechanism)]
        if len(set(codes)) > 1:
            raise LedgerError(
                "the code of the mechanism is {}, the campaign's is {}".format(*codes)
            )
        found, expected = given.to_dict(), wanted.to_dict()
        for field, value in expected.items():
            name = stated_as(given, field)
            if name in stated and found[field] != value:
                raise LedgerError(
                    f"{field} of the mechanism is {found[field]}, but {stated[name]} was stated"
                )
