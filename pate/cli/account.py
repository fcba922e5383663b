"""``pate account``: what a file of votes costs, by every bound, and what may be told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from rich.console import Console
from rich.table import Table as Sheet

from pate.accounting.account import (
    MEANING,
    ORDERS,
    Account,
    BoundName,
    LaplaceSetting,
    account,
)
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian
from pate.accounting.bounds.sharp import GaussianSetting
from pate.accounting.units import Neighbours
from pate.data.votes_file import load_numbers, read_vote_matrix
from pate.errors import DataError, UsageError
from pate.formats.privacy_statement import rounded_up
from pate.mechanisms import round_predictions
from pate.storage.table_cache import cached_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pate.accounting.units import Adjacency
    from pate.votes import Counts

MECHANISMS: Final = ("lnmax", "gnmax", "confident-gnmax", "interactive-gnmax")

#: What may be told of an account, by what was computed.
PUBLISH: Final = {
    "independent": (
        "may be published: it is what these queries cost at most, whatever the votes are; a "
        "campaign guarantees the cap that it fixed beforehand"
    ),
    "data-dependent": (
        "paper-2017, paper-2018, theorem3, theorem6, sharp and expected are functions of the votes, "
        "and so are their best orders and the expected number of answers: publish them for votes that "
        "are public; for private votes release "
        "labels through a gate (pate-server --publish gated), and publish its epsilon and delta"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was typed.

    Attributes:
        votes: file of the votes.
        mechanism: one of :data:`MECHANISMS`.
        threshold: T, in votes, where there is a check.
        sigma1: noise of the check, in votes.
        sigma2: noise on each count, in votes.
        scale: LNMax: scale of the noise, in votes.
        queries: rows to use, from the top; None for all.
        delta: failure probability.
        bounds: which, empty for all.
        unit: record, patient or party.
        votes_per_unit: k.
        adjacency: change or remove.
        discrete: whether the noise is discrete, as campaigns draw it.
        gate: whether to look for a gate; the votes must then be public.
        predictions: Interactive: file of the student's (queries, classes) probabilities.
    """

    votes: Path
    mechanism: str
    threshold: float | None
    sigma1: float | None
    sigma2: float | None
    scale: float | None
    queries: int | None
    delta: float
    bounds: Sequence[str]
    unit: str
    votes_per_unit: int
    adjacency: str
    discrete: bool
    gate: bool
    predictions: Path | None


def run_account(request: Request) -> dict[str, Any]:
    """Return the figures as ``pate account --json`` prints them.

    Raises:
        UsageError: for options that make no sense together.
        DataError: for files that are not votes or predictions.
    """
    if request.unit not in ("record", "patient", "party"):
        raise UsageError(f"--unit is record, patient or party, got {request.unit!r}")
    if request.unit != "party" and request.votes_per_unit != 1:
        raise UsageError(
            f"a {request.unit} is in one shard of one teacher: --votes-per-unit is for --unit party"
        )
    if request.adjacency == "remove" and (request.gate or request.mechanism == "interactive-gnmax"):
        # A campaign's gate counts changed votes; and whole expected votes, which follow from the
        # number of those that vote, can move by more than the votes that are removed.
        raise UsageError("--adjacency remove is for neither interactive-gnmax nor --gate")
    known = get_args(BoundName)
    if odd := [name for name in request.bounds if name not in known]:
        raise UsageError(f"unknown bound {odd[0]!r}; known are {', '.join(known)}")
    votes = _rows(read_vote_matrix(request.votes), request)
    neighbours = Neighbours(request.votes_per_unit, cast("Adjacency", request.adjacency))
    found = account(
        votes,
        _setting(request),
        delta=request.delta,
        neighbours=neighbours,
        tables=cached_table,
        bounds=cast("Sequence[BoundName]", request.bounds),
        margins=_margins(votes, request),
        gate=request.gate,
    )
    return {
        "answered": found.answered,
        "bounds": {name: _figures(found, name) for name in found.figures},
        "queries": found.queries,
        "classes": votes.shape[1],
        "mechanism": _parameters(request),
        "delta": request.delta,
        "unit": request.unit,
        "votes_per_unit": neighbours.votes,
        "adjacency": neighbours.in_words,
        "observer": "public",
        "noise": "discrete" if request.discrete else "continuous",
        "orders": ORDERS.tolist(),
        "publish": PUBLISH | ({"gate": _gate(found, request)} if request.gate else {}),
    }


def _gate(found: Account, request: Request) -> dict[str, Any] | None:
    """Return the gate that would open for such votes, with what pate-server wants to know of it."""
    if found.gate is None:
        return None
    gate = found.gate.gate
    epsilon = gate.epsilon(request.delta)
    share = gate.test / gate.rdp
    return {
        "epsilon": epsilon,
        "order": gate.order,
        "share": share,
        "options": f"--publish gated --epsilon {rounded_up(epsilon)} --delta {request.delta:g} "
        f"--gate-order {gate.order:g} --gate-share {share:.4g}",
        "meaning": "a guarantee for other, private votes, if these are public: the least epsilon at "
        "which a gate would open with 95 % for votes like these; it follows from them",
    }


def show(found: dict[str, Any]) -> None:
    """Print what :func:`run_account` returned as a table."""
    console = Console(highlight=False)
    sheet = Sheet(title=f"epsilon at delta {found['delta']:g}", title_justify="left")
    for heading in ("bound", "classical", "improved", "exact", "best order", "what it is"):
        sheet.add_column(heading, justify="right" if heading != "what it is" else "left")
    for name, figures in found["bounds"].items():
        sheet.add_row(
            name,
            *(
                rounded_up(figures[kind]) if kind in figures else ""
                for kind in ("classical", "improved", "exact")
            ),
            f"{figures['orders']['improved']:g}",
            figures["meaning"],
        )
    console.print(sheet)
    mechanism = dict(found["mechanism"])
    name = mechanism.pop("mechanism")
    parameters = ", ".join(f"{key} {value:g}" for key, value in mechanism.items())
    lines: tuple[str, ...] = (
        (
            f"{found['queries']} queries, {found['answered']:.1f} answers expected of these "
            f"votes; {name} ({parameters}), "
            f"{found['noise']} noise"
        ),
        f"unit: {found['unit']}; adjacency: {found['adjacency']}; observer: {found['observer']}",
        f"independent: {found['publish']['independent']}",
        f"the others: {found['publish']['data-dependent']}",
    )
    if gate := found["publish"].get("gate"):
        told = f"gate: epsilon {rounded_up(gate['epsilon'])}, {gate['meaning']}: {gate['options']}"
        lines += (told,)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


def _rows(votes: Counts, request: Request) -> Counts:
    if request.queries is None:
        return votes
    if not 1 <= request.queries <= len(votes):
        raise UsageError(f"--queries {request.queries}: the file has {len(votes)} rows")
    return votes[: request.queries]


def _need(value: float | None, option: str, mechanism: str) -> float:
    if value is None:
        raise UsageError(f"{mechanism} needs {option}")
    return value


def _setting(request: Request) -> LaplaceSetting | GaussianSetting:
    name = request.mechanism
    if name not in MECHANISMS:
        raise UsageError(f"--mechanism is one of {', '.join(MECHANISMS)}, got {name!r}")
    unused = {
        "lnmax": ("threshold", "sigma1", "sigma2"),
        "gnmax": ("threshold", "sigma1", "scale"),
    }.get(name, ("scale",))
    for field in unused:
        if getattr(request, field) is not None:
            raise UsageError(f"{name} has no --{field}: leave it out")
    if name == "lnmax":
        scale = _need(request.scale, "--scale (or --gamma, its inverse)", name)
        if not scale > 0:
            raise UsageError(f"--scale must be above 0, got {scale}")
        return LaplaceSetting(gamma=1 / scale, discrete=request.discrete)
    label = _law(_need(request.sigma2, "--sigma2", name), request)
    if name == "gnmax":
        return GaussianSetting(label=label)
    return GaussianSetting(
        label=label,
        check=_law(_need(request.sigma1, "--sigma1", name), request),
        threshold=_need(request.threshold, "--threshold", name),
    )


def _law(sigma: float, request: Request) -> Gaussian | DiscreteGaussian:
    return DiscreteGaussian(sigma) if request.discrete else Gaussian(sigma)


def _margins(votes: Counts, request: Request) -> Counts | None:
    """Return max_j (n_j - r_j) for Interactive-GNMax, else None."""
    if request.mechanism != "interactive-gnmax":
        if request.predictions is not None:
            raise UsageError("--predictions are for interactive-gnmax")
        return None
    if request.predictions is None:
        raise UsageError("interactive-gnmax needs --predictions: the student's probabilities")
    given = load_numbers(request.predictions)
    if given.ndim != 2 or len(given) < len(votes):
        raise DataError(
            f"{request.predictions} does not hold a row for each of {len(votes)} queries"
        )
    teachers = votes.sum(axis=1)
    if len(set(teachers.tolist())) != 1:
        raise DataError(
            "rows of the votes have different sums: the teachers of a query are unknown"
        )
    expected = round_predictions(given[: len(votes)], int(teachers[0]))
    if expected.shape != votes.shape:
        raise DataError(f"predictions for {expected.shape[1]} classes, votes for {votes.shape[1]}")
    return cast("Counts", (votes - expected).max(axis=1))


def _parameters(request: Request) -> dict[str, Any]:
    fields = ("threshold", "sigma1", "sigma2", "scale")
    given = {field: getattr(request, field) for field in fields}
    return {"mechanism": request.mechanism} | {k: v for k, v in given.items() if v is not None}


def _figures(found: Account, name: BoundName) -> dict[str, Any]:
    figures = found.figures[name]
    classical, improved = figures.best_orders
    made: dict[str, Any] = {
        "classical": figures.classical,
        "improved": figures.improved,
        "orders": {"classical": classical, "improved": improved},
        "meaning": MEANING[name],
    }
    if figures.exact is not None:
        made["exact"] = figures.exact
    return made


def scale_of(gamma: float | None, scale: float | None) -> float | None:
    """Return LNMax's scale from either way to give it.

    Raises:
        UsageError: for both, or a gamma that is not above 0.
    """
    if gamma is None:
        return scale
    if scale is not None:
        raise UsageError("--gamma is 1 / --scale: give one of them")
    if not gamma > 0:
        raise UsageError(f"--gamma must be above 0, got {gamma}")
    return 1 / gamma
