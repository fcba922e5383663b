"""``pate audit``: from its options to audits, and what it says of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Sheet

from pate.auditing.histograms import audit_counts
from pate.auditing.mechanism import audit_mechanism
from pate.auditing.power import MISSED
from pate.errors import AccountingError, UsageError
from pate.formats.privacy_statement import rounded_up
from pate.mechanisms import (
    ConfidentGNMax,
    DistributedNeighbour,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Neighbour,
    over_noisy_sums,
)
from pate.mechanisms.distributed import DistributedMechanism
from pate.noise.exact import SystemNoise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pate.auditing.result import Audit
    from pate.mechanisms import Mechanism
    from pate.runtime.screen import Screen
    from simulation.audit.gated import Gated

KINDS: Final = ("mechanism", "campaign", "canary")
#: What decides behind a gate; the gate is audited with it.
_GATED: Final = "gated-gnmax"
#: The mechanisms whose noisy counts are seen as they are, and not only labels made of them. That of
#: noise shares is the same for all three, whose labels are made of what the server sees.
_COUNTED: Final = ("distributed-gnmax", "neighbour", "distributed-neighbour")
#: What can be audited, and the options that each has.
_PARAMETERS: Final = {
    "lnmax": ("scale",),
    "gnmax": ("sigma2",),
    "confident-gnmax": ("threshold", "sigma1", "sigma2"),
    "interactive-gnmax": ("threshold", "sigma1", "sigma2"),
    **dict.fromkeys((*_COUNTED, _GATED), ("sigma2",)),
}
_THRESHOLD: Final = 60
#: Of the noise, for each vote of a unit. The smaller it is, the more a run tells, and the smaller the
#: errors that are seen; the check is, as in campaigns, the smaller part of the cost.
_SIGMA, _SCALE, _CHECK = Fraction(3, 2), Fraction(1), 3
#: Of a gated batch: its noise for each vote of a unit, its queries, and what it is worth.
_GATED_SIGMA, _GATED_QUERIES, _GATED_EPSILON = Fraction(3), 64, 2.0
#: Of a prediction that is reinforced; it is public, and matters to no cost.
_CONFIDENCE: Final = Fraction(9, 10)
#: Honest parties whose noise shares are in a sum.
_HONEST: Final = 4
_VOTES: Final = 2
_DELTA: Final = 1e-2
_QUERIES, _RUNS = 2, 20_000
#: Of noisy counts more runs are cheap, and bring the bound near to what is claimed.
_COUNTED_RUNS, _GATED_RUNS = 100_000, 1_000
_CAMPAIGN_QUERIES, _CAMPAIGN_RUNS = 8, 600
_CANARIES, _CANARY_DELTA = 100, 1e-5
#: Of gnmax with canaries, for the square root of their number: so that missing noise is seen.
_CANARY_SIGMA: Final = 6

MEANING: Final = (
    "a lower bound above the claim refutes it; one below it proves nothing: another attack may "
    "find more"
)


@dataclass(frozen=True)
class Request:
    """What to audit; each field is the option of that name, None where it was left out."""

    kind: str = "mechanism"
    mechanism: str | None = None
    threshold: int | None = None
    sigma1: str | None = None
    sigma2: str | None = None
    scale: str | None = None
    votes_per_unit: int | None = None
    queries: int | None = None
    runs: int | None = None
    delta: float | None = None
    confidence: float = 0.999
    parties: int = 1
    teachers: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"there is no audit of a {self.kind!r}, only of {', '.join(KINDS)}")
        if self.mechanism is not None:
            if self.mechanism not in _PARAMETERS:
                raise UsageError(
                    f"unknown mechanism {self.mechanism!r}: choose among "
                    f"{', '.join(sorted(_PARAMETERS))}"
                )
            for name in ("threshold", "sigma1", "sigma2", "scale"):
                if name not in _PARAMETERS[self.mechanism] and getattr(self, name) is not None:
                    raise UsageError(f"--{name} has no meaning for {self.mechanism}: leave it out")
        if self.delta is not None and not 0.0 < self.delta < 1.0:
            raise UsageError(f"--delta lies between 0 and 1, got {self.delta}")
        if not 0.5 <= self.confidence < 1.0:
            raise UsageError(f"--confidence lies between 0.5 and 1, got {self.confidence}")
        if self.kind != "mechanism" and self.mechanism in (*_COUNTED, _GATED):
            raise UsageError(f"{self.mechanism} is audited as a mechanism: leave {self.kind} out")
        if self.kind == "canary" and (
            self.votes_per_unit not in (None, 1) or self.runs is not None
        ):
            raise UsageError(
                "an audit with canaries is one run, and a canary reaches one vote: leave out "
                "--runs and --votes-per-unit"
            )


def run_audits(request: Request, screen: Screen) -> tuple[Audit, ...]:
    """Run the audits that were asked for.

    Raises:
        UsageError: for options that make no sense together.
    """
    if request.kind == "canary":
        return (_canary(request, screen),)
    if request.mechanism is None and request.kind == "mechanism":
        names = tuple(_PARAMETERS)
    else:
        names = (request.mechanism or ConfidentGNMax.name,)
    return tuple(_repeated(name, request, screen) for name in names)


def _repeated(name: str, request: Request, screen: Screen) -> Audit:
    delta = _DELTA if request.delta is None else request.delta
    if name == _GATED:
        return _gated(request, delta, screen)
    mechanism = mechanism_of(name, request)
    queries, votes = request.queries or _QUERIES, request.votes_per_unit or _VOTES
    if request.kind == "mechanism":
        attack: Callable[..., Audit] = partial(audit_mechanism, mechanism, runs=_RUNS)
        if isinstance(mechanism, Neighbour | DistributedMechanism):
            attack = partial(audit_counts, mechanism, runs=_COUNTED_RUNS)
        if request.runs is not None:
            attack = partial(attack, runs=request.runs)
        with screen.bar(f"attacking {name}") as progress:
            return attack(
                noise=SystemNoise(),
                queries=queries,
                delta=delta,
                confidence=request.confidence,
                votes=votes,
                progress=progress,
            )
    from simulation.audit.campaigns import audit_campaign

    with screen.bar(f"attacking campaigns of {name}") as progress:
        return audit_campaign(
            mechanism,
            queries=request.queries or _CAMPAIGN_QUERIES,
            runs=request.runs or _CAMPAIGN_RUNS,
            delta=delta,
            confidence=request.confidence,
            votes=request.votes_per_unit or _VOTES,
            progress=progress,
        )


def _gated(request: Request, delta: float, screen: Screen) -> Audit:
    from simulation.audit.gated import audit_gated

    with screen.bar(f"attacking {_GATED}") as progress:
        return audit_gated(
            gated_of(request, delta),
            SystemNoise(),
            runs=request.runs or _GATED_RUNS,
            confidence=request.confidence,
            progress=progress,
        )


def gated_of(request: Request, delta: float = _DELTA) -> Gated:
    """Return the gated batch that is audited."""
    from simulation.audit.gated import Gated

    k = request.votes_per_unit or _VOTES
    return Gated(
        GNMax(_exact("sigma2", request.sigma2) or _GATED_SIGMA * k, k),
        request.queries or _GATED_QUERIES,
        _GATED_EPSILON,
        delta,
    )


def _canary(request: Request, screen: Screen) -> Audit:
    from simulation.audit.canaries import Planting, audit_canaries

    name = request.mechanism or GNMax.name
    given = {
        "threshold": None if request.threshold is None else Fraction(request.threshold),
        "sigma1": _exact("sigma1", request.sigma1),
        "sigma2": _exact("sigma2", request.sigma2),
        "scale": _exact("scale", request.scale),
    }
    canaries = request.queries or _CANARIES
    if name == GNMax.name and given["sigma2"] is None:
        given["sigma2"] = Fraction(round(_CANARY_SIGMA * math.sqrt(canaries)))
    planting = Planting(
        aggregator=name,
        canaries=canaries,
        guesses=canaries,
        parties=request.parties,
        teachers=request.teachers,
        delta=_CANARY_DELTA if request.delta is None else request.delta,
        confidence=request.confidence,
        parameters=tuple((key, value) for key, value in given.items() if value is not None),
    )
    with screen.bar("training teachers on records and canaries") as progress:
        return audit_canaries(planting, progress=progress)


def mechanism_of(name: str, request: Request) -> Mechanism:
    """Return the mechanism of that name that is audited."""
    k = request.votes_per_unit or _VOTES
    sigma2 = _exact("sigma2", request.sigma2) or _SIGMA * k
    sigma1 = _exact("sigma1", request.sigma1) or _CHECK * sigma2
    threshold = _THRESHOLD if request.threshold is None else request.threshold
    if name == LNMax.name:
        return LNMax(_exact("scale", request.scale) or _SCALE * k, k)
    if name == ConfidentGNMax.name:
        return ConfidentGNMax(threshold, sigma1, sigma2, k)
    if name == InteractiveGNMax.name:
        return InteractiveGNMax(threshold, sigma1, sigma2, _CONFIDENCE, k)
    central = GNMax(sigma2, k)
    if name == Neighbour.name:
        return Neighbour(0, sigma2, k)
    if name == GNMax.name:
        return central
    shares = over_noisy_sums(central, _HONEST)
    if name == DistributedNeighbour.name:
        return DistributedNeighbour(0, shares.share, _HONEST, k)
    return shares


def _exact(name: str, text: str | None) -> Fraction | None:
    if text is None:
        return None
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if value <= 0:
        raise UsageError(f"--{name} is a positive number such as 40, 2.5 or 1/3, got {text!r}")
    return value


def to_dict(audits: Sequence[Audit]) -> dict[str, object]:
    """Return the audits as one JSON object."""
    return {
        "audits": [each.to_dict() for each in audits],
        "holds": all(each.holds for each in audits),
        "meaning": MEANING,
    }


def show(audits: Sequence[Audit]) -> None:
    """Print a table of the audits, the terms that they share, and which bugs they would have seen."""
    sheet = Sheet(title="Claimed, and found by attack", title_justify="left")
    for name in ("audit of", "epsilon", "found", "mu", "found", "runs", "queries", "claim"):
        sheet.add_column(name, justify="left" if name in ("audit of", "claim") else "right")
    for each in audits:
        sheet.add_row(
            each.subject,
            f"≤ {rounded_up(each.claimed)}",
            f"≥ {_rounded_down(each.lower_bound)}",
            "" if each.mu_claimed is None else f"≤ {rounded_up(each.mu_claimed)}",
            "" if each.mu_lower_bound is None else f"≥ {_rounded_down(each.mu_lower_bound)}",
            str(each.runs),
            str(each.queries),
            "stands" if each.holds else "REFUTED",
        )
    first = audits[0]
    console = Console(highlight=False, soft_wrap=True)
    console.print(sheet)
    for line in (
        f"epsilon at delta {first.delta:g}; mu of Gaussian DP, where the accountant counts in it",
        "runs: those to learn from included, in both worlds, each of so many queries",
        f"each row holds with confidence {first.confidence:.10g}",
        *(
            f"{what}: {'; '.join(dict.fromkeys(getattr(each, what) for each in audits))}"
            for what in ("unit", "adjacency", "observer")
        ),
        MEANING,
    ):
        console.print(line, markup=False)
    if any(each.bugs for each in audits):
        # As wide as it is: a bug or a pair that is cut short says nothing.
        Console(highlight=False, width=140).print(_bugs(audits))
        console.print(
            "From exact laws, before any run: with so many --runs the bug is found but with "
            f"probability {MISSED:g}. '-': not with ten million runs.",
            markup=False,
        )


def _bugs(audits: Sequence[Audit]) -> Sheet:
    sheet = Sheet(title="Bugs that this audit would see", title_justify="left", box=SIMPLE_HEAD)
    for name in ("audit of", "bug in the code", "seen", "from runs", "by this pair of neighbours"):
        sheet.add_column(name, justify="right" if name == "from runs" else "left", no_wrap=True)
    for each in audits:
        for at, bug in enumerate(each.bugs):
            sheet.add_row(
                "" if at else each.subject,
                bug.bug,
                "yes" if bug.seen else "NO",
                "-" if bug.runs is None else str(bug.runs),
                bug.pair or "",
                end_section=at == len(each.bugs) - 1,
            )
    return sheet


def _rounded_down(figure: float) -> str:
    return f"{math.floor(figure * 1e4) / 1e4:.10g}"


def require_all_hold(audits: Sequence[Audit]) -> None:
    """Raise unless every claim stands.

    Raises:
        AccountingError: naming the first claim that an attack refuted.
    """
    for each in audits:
        if not each.holds:
            found = f"epsilon of at least {_rounded_down(each.lower_bound)}"
            if each.mu_lower_bound is not None:
                found += f" and mu of at least {_rounded_down(each.mu_lower_bound)}"
            claimed = f"epsilon {rounded_up(each.claimed)}"
            if each.mu_claimed is not None:
                claimed += f" and mu {rounded_up(each.mu_claimed)}"
            raise AccountingError(
                f"the {each.kind} audit of {each.subject} found an {found}, claimed is {claimed} "
                f"at delta {each.delta:g} (confidence {each.confidence:.10g}): release nothing "
                f"with this code, and report it"
            )
