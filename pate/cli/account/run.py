"""``pate account``: the cost of a file of votes by every bound, and what of it may be published."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from rich.table import Table as Sheet

from pate.accounting.account import (
    MEANING,
    ORDERS,
    Account,
    LaplaceSetting,
    account,
)
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian
from pate.accounting.bounds.sharp import GaussianSetting
from pate.accounting.units import Neighbours
from pate.campaign.choices import PARAMETERS
from pate.campaign.defaults import MARGIN, PAPERS, share_of
from pate.errors import DataError, UsageError
from pate.formats.privacy_statement import rounded_up
from pate.formats.votes_file import load_numbers, read_vote_matrix
from pate.mechanisms import round_predictions
from pate.runtime.screen import Display

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.accounting import BoundName
    from pate.cli.account.options import AccountOptions
    from pate.votes import Counts

#: What of an account may be published, by its kind.
PUBLISH: Final = {
    "independent": (
        "may be published: it is what these queries cost at most, whatever the votes are; a "
        "campaign guarantees the cap that it fixed beforehand"
    ),
    "data-dependent": (
        "paper-2017, paper-2018, theorem3, theorem6, sharp, every-neighbour and expected are functions "
        "of the votes, and so are their best orders and the expected number of answers: publish them "
        "for votes that are public; for private votes release "
        "labels through a gate (pate-server --publish gated), and publish its epsilon and delta"
    ),
}


def run_account(options: AccountOptions) -> dict[str, Any]:
    """Return the figures as ``pate account --json`` prints them."""
    votes = _rows(read_vote_matrix(options.votes), options)
    options, chosen = _completed(options, votes)
    neighbours = Neighbours(options.votes_per_unit, options.adjacency)
    found = account(
        votes,
        _setting(options),
        delta=options.delta,
        neighbours=neighbours,
        bounds=cast("Sequence[BoundName]", options.bounds or ()),
        margins=_margins(votes, options),
        gate=options.gate,
    )
    return {
        "answered": found.answered,
        "bounds": {name: _figures(found, name) for name in found.figures},
        "queries": found.queries,
        "classes": votes.shape[1],
        "mechanism": {"mechanism": options.mechanism} | _given(options),
        "chosen": chosen,
        "delta": options.delta,
        "unit": options.unit,
        "votes_per_unit": neighbours.votes,
        "adjacency": neighbours.in_words,
        "observer": "public",
        "noise": "discrete" if options.discrete else "continuous",
        "orders": ORDERS.tolist(),
        "publish": PUBLISH | ({"gate": _gate(found, options)} if options.gate else {}),
    }


def _gate(found: Account, options: AccountOptions) -> dict[str, Any] | None:
    """Return the gate that would open for such votes, with the options of pate-server."""
    if found.gate is None:
        return None
    gate = found.gate.gate
    epsilon = gate.epsilon(options.delta)
    share = gate.test / gate.rdp
    return {
        "epsilon": epsilon,
        "order": gate.order,
        "share": share,
        "options": f"--publish gated --epsilon {rounded_up(epsilon)} --delta {options.delta:g} "
        f"--gate-order {gate.order:g} --gate-share {share:.4g}",
        "meaning": "a guarantee for other, private votes, if these are public: the least epsilon at "
        "which a gate would open with 95 % for votes like these; it follows from them",
    }


def show(found: dict[str, Any]) -> None:
    """Print the result of :func:`run_account` as a table."""
    console = Display()
    sheet = Sheet(title=f"epsilon at delta {found['delta']:g}", title_justify="left")
    for heading in ("bound", "classical", "improved", "exact", "best order"):
        sheet.add_column(heading, justify="left" if heading == "bound" else "right", no_wrap=True)
    for name, figures in found["bounds"].items():
        sheet.add_row(
            name,
            *(
                rounded_up(figures[kind]) if kind in figures else ""
                for kind in ("classical", "improved", "exact")
            ),
            f"{figures['orders']['improved']:g}",
        )
    console.print(sheet)
    for name, figures in found["bounds"].items():
        console.print(f"{name}: {figures['meaning']}", soft_wrap=True, markup=False)
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
    if chosen := found["chosen"]:
        said = ", ".join(f"{name} {value:g}" for name, value in chosen.items())
        told = (
            f"left out, so chosen as the papers did, as shares of the teachers: {said}; with a budget a "
            "server may choose more noise (`pate plan --epsilon`)"
        )
        lines = (lines[0], told, *lines[1:])
    if gate := found["publish"].get("gate"):
        told = f"gate: epsilon {rounded_up(gate['epsilon'])}, {gate['meaning']}: {gate['options']}"
        lines += (told,)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


def _rows(votes: Counts, options: AccountOptions) -> Counts:
    if options.queries is None:
        return votes
    if not 1 <= options.queries <= len(votes):
        raise UsageError(f"--queries {options.queries}: the file has {len(votes)} rows")
    return votes[: options.queries]


def _completed(options: AccountOptions, votes: Counts) -> tuple[AccountOptions, dict[str, float]]:
    """Return the options with all numbers of the mechanism, and those that were left out."""
    shares = dict(PAPERS)
    if options.mechanism == "interactive-gnmax":
        shares["threshold"] = MARGIN
    teachers, given = int(votes[0].sum()), _given(options)
    chosen: dict[str, Any] = {
        name: float(share_of(teachers, share))
        for name, share in shares.items()
        if name in PARAMETERS[options.mechanism] and name not in given
    }
    return replace(options, **chosen), chosen


def _setting(options: AccountOptions) -> LaplaceSetting | GaussianSetting:
    name = options.mechanism
    unused = {
        "lnmax": ("threshold", "sigma1", "sigma2"),
        "gnmax": ("threshold", "sigma1", "scale"),
    }.get(name, ("scale",))
    for field in unused:
        if field in _given(options):
            raise UsageError(f"{name} has no --{field}: leave it out")
    given = _given(options)
    if name == "lnmax":
        return LaplaceSetting(gamma=1 / given["scale"], discrete=options.discrete)
    label = _law(given["sigma2"], options)
    if name == "gnmax":
        return GaussianSetting(label=label)
    check = _law(given["sigma1"], options)
    return GaussianSetting(label=label, check=check, threshold=given["threshold"])


def _law(sigma: float, options: AccountOptions) -> Gaussian | DiscreteGaussian:
    return DiscreteGaussian(sigma) if options.discrete else Gaussian(sigma)


def _margins(votes: Counts, options: AccountOptions) -> Counts | None:
    """Return max_j (n_j - r_j) for Interactive-GNMax, else None."""
    if options.mechanism != "interactive-gnmax":
        if options.predictions is not None:
            raise UsageError("--predictions are for interactive-gnmax")
        return None
    if options.predictions is None:
        raise UsageError("interactive-gnmax needs --predictions: the student's probabilities")
    given = load_numbers(options.predictions)
    if given.ndim != 2 or len(given) < len(votes):
        raise DataError(
            f"{options.predictions} does not hold a row for each of {len(votes)} queries"
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


def _given(options: AccountOptions) -> dict[str, float]:
    """Return the mechanism's numbers that were typed, by name."""
    numbers = {
        "threshold": options.threshold,
        "sigma1": options.sigma1,
        "sigma2": options.sigma2,
        "scale": options.laplace_scale,
    }
    return {name: value for name, value in numbers.items() if value is not None}


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
