"""``pate audit``: from its options to audits, and what it says of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table as Sheet

from pate.auditing.mechanism import audit_mechanism
from pate.errors import AccountingError, UsageError
from pate.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax
from pate.noise import SystemNoise
from pate.statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.auditing.result import Audit
    from pate.mechanisms import Mechanism
    from pate.runtime.screen import Screen

KINDS: Final = ("mechanism", "campaign", "canary")
#: The mechanisms that draw noise of their own, and the options that each has.
_PARAMETERS: Final = {
    "lnmax": ("scale",),
    "gnmax": ("sigma2",),
    "confident-gnmax": ("threshold", "sigma1", "sigma2"),
    "interactive-gnmax": ("threshold", "sigma1", "sigma2"),
}
_THRESHOLD: Final = 60
#: Of the noise, for each vote of a unit.
_SIGMA, _SCALE = Fraction(3), Fraction(4)
#: Of a prediction that is reinforced; it is public, and matters to no cost.
_CONFIDENCE: Final = Fraction(9, 10)

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
    votes_per_unit: int = 1
    queries: int | None = None
    runs: int | None = None
    delta: float | None = None
    confidence: float = 0.999
    parties: int = 10
    teachers: int = 5

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
        if self.kind == "canary" and (self.votes_per_unit != 1 or self.runs is not None):
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
    mechanism = _mechanism(name, request)
    delta = 1e-3 if request.delta is None else request.delta
    if request.kind == "mechanism":
        with screen.bar(f"attacking {name}") as progress:
            return audit_mechanism(
                mechanism,
                SystemNoise(),
                queries=request.queries or 4,
                runs=request.runs or 20_000,
                delta=delta,
                confidence=request.confidence,
                progress=progress,
            )
    from pate.commands.audit.campaigns import audit_campaign

    with screen.bar(f"attacking campaigns of {name}") as progress:
        return audit_campaign(
            mechanism,
            queries=request.queries or 8,
            runs=request.runs or 200,
            delta=delta,
            confidence=request.confidence,
            progress=progress,
        )


def _canary(request: Request, screen: Screen) -> Audit:
    from pate.commands.audit.canaries import Planting, audit_canaries

    name = request.mechanism or ConfidentGNMax.name
    given = {
        "threshold": None if request.threshold is None else Fraction(request.threshold),
        "sigma1": _exact("sigma1", request.sigma1),
        "sigma2": _exact("sigma2", request.sigma2),
        "scale": _exact("scale", request.scale),
    }
    canaries = request.queries or 100
    planting = Planting(
        aggregator=name,
        canaries=canaries,
        # A label that is the canary's wrong one is what tells; half the coins have none.
        guesses=-(-canaries // 2),
        parties=request.parties,
        teachers=request.teachers,
        delta=1e-5 if request.delta is None else request.delta,
        confidence=request.confidence,
        parameters=tuple((key, value) for key, value in given.items() if value is not None),
    )
    with screen.bar("training teachers on records and canaries") as progress:
        return audit_canaries(planting, progress=progress)


def _mechanism(name: str, request: Request) -> Mechanism:
    k = request.votes_per_unit
    sigma1 = _exact("sigma1", request.sigma1) or _SIGMA * k
    sigma2 = _exact("sigma2", request.sigma2) or sigma1
    if name == LNMax.name:
        return LNMax(_exact("scale", request.scale) or _SCALE * k, k)
    if name == GNMax.name:
        return GNMax(sigma2, k)
    threshold = _THRESHOLD if request.threshold is None else request.threshold
    if name == ConfidentGNMax.name:
        return ConfidentGNMax(threshold, sigma1, sigma2, k)
    return InteractiveGNMax(threshold, sigma1, sigma2, _CONFIDENCE, k)


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
    """Print a table of the audits, and below it the terms that they share."""
    sheet = Sheet(title="Claimed, and found by attack", title_justify="left")
    for name in ("audit of", "epsilon", "found", "mu", "found", "claim"):
        sheet.add_column(name, justify="left" if name in ("audit of", "claim") else "right")
    for each in audits:
        sheet.add_row(
            each.subject,
            f"≤ {rounded_up(each.claimed)}",
            f"≥ {_rounded_down(each.lower_bound)}",
            "" if each.mu_claimed is None else f"≤ {rounded_up(each.mu_claimed)}",
            "" if each.mu_lower_bound is None else f"≥ {_rounded_down(each.mu_lower_bound)}",
            "stands" if each.holds else "REFUTED",
        )
    first = audits[0]
    console = Console(highlight=False, soft_wrap=True)
    console.print(sheet)
    for line in (
        f"epsilon at delta {first.delta:g}; mu of Gaussian DP, where the accountant counts in it",
        f"runs: {first.runs} of {first.queries} queries, each row at confidence {first.confidence:.10g}",
        f"unit: {first.unit}",
        f"adjacency: {first.adjacency}",
        f"observer: {first.observer}",
        MEANING,
    ):
        console.print(line, markup=False)


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
