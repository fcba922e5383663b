"""``pate audit``: runs the audits of its options, and reports them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table as Sheet

from pate.answers import CLASS, answer_of
from pate.auditing.mechanism import audit_mechanism
from pate.codes import NEAREST, code_of
from pate.errors import AccountingError, UsageError
from pate.formats.privacy_statement import rounded_up
from pate.mechanisms import (
    ConfidentGNMax,
    DistributedMechanism,
    DistributedNeighbour,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Neighbour,
    over_noisy_sums,
)
from pate.noise.exact import SystemNoise
from pate.noise.share_laws import GaussianShares, GeometricShares
from pate.noise.shares import share_sigma
from pate.runtime.screen import Display
from simulation.audit.options import GATED, PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.auditing.harness import Audit
    from pate.codes import Code
    from pate.mechanisms import Mechanism
    from pate.mechanisms.matrix import MatrixMechanism
    from pate.noise.share_laws import Shares
    from pate.runtime.screen import Screen
    from simulation.audit.campaigns import Gated
    from simulation.audit.options import AuditOptions

_THRESHOLD: Final = 60
#: Noise per vote of a unit. The smaller it is, the more informative a run, and the smaller the
#: detectable errors; the threshold test is, as in campaigns, the smaller part of the cost.
_SIGMA, _SCALE, _CHECK = Fraction(3, 2), Fraction(1), 3
#: Of geometric noise on records' votes: epsilon of a release. What such a claim says holds at every delta,
#: so the events that come near to it are not left to delta.
_PURE_EPSILON, _PURE_DELTA = 2, 1e-6
#: For a gated batch: its noise per vote of a unit, its queries, and its epsilon.
_GATED_SIGMA, _GATED_QUERIES, _GATED_EPSILON = Fraction(3), 64, 2.0
#: Confidence of a reinforced prediction; it is public, and affects no cost.
_CONFIDENCE: Final = Fraction(9, 10)
#: Honest parties whose noise shares are in a sum.
_HONEST: Final = 4
_VOTES: Final = 2
_DELTA: Final = 1e-2
_QUERIES, _RUNS = 2, 20_000
#: For noisy counts more runs are cheap, and bring the bound close to the claim.
_COUNTED_RUNS, _GATED_RUNS = 100_000, 1_000
_CAMPAIGN_QUERIES, _CAMPAIGN_RUNS = 8, 600
_CANARIES, _CANARY_DELTA = 100, 1e-5
#: Noise of gnmax with canaries, per square root of their number, so that missing noise is detected.
_CANARY_SIGMA: Final = 6

MEANING: Final = (
    "a lower bound above the claim refutes it; one below it proves nothing: another attack may "
    "find more"
)

#: What no attack on the output can see, and what none with so many runs can.
UNSEEN: Final = (
    "not seen by any such audit: bits from a weak or public seed, and what is rarer than one in the "
    "runs"
)


def run_audits(options: AuditOptions, screen: Screen) -> tuple[Audit, ...]:
    """Run the requested audits."""
    if options.kind == "canary":
        return (_canary(options, screen),)
    if options.mechanism is None and options.kind == "mechanism":
        names = tuple(PARAMETERS)
    else:
        names = (options.mechanism or ConfidentGNMax.name,)
    return tuple(_repeated(name, options, screen) for name in names)


def _repeated(name: str, options: AuditOptions, screen: Screen) -> Audit:
    delta = _DELTA if options.delta is None else options.delta
    if name == GATED:
        return _gated(options, delta, screen)
    mechanism = mechanism_of(name, options)
    queries, votes = options.queries or _QUERIES, _votes_of(options)
    as_records = options.code is not None or options.answer is not None
    if as_records:
        queries = options.queries or 1
    if isinstance(mechanism, Neighbour | DistributedNeighbour) and mechanism.scale:
        delta = _PURE_DELTA if options.delta is None else delta
    if options.kind == "mechanism":
        counted = isinstance(mechanism, Neighbour | DistributedMechanism)
        pairs = None
        if as_records:
            from simulation.audit.records import record_pairs

            pairs = record_pairs(_code_of(options), votes)
        with screen.bar(f"attacking {name}") as progress:
            return audit_mechanism(
                mechanism,
                SystemNoise(),
                queries=queries,
                runs=options.runs or (_COUNTED_RUNS if counted else _RUNS),
                delta=delta,
                confidence=options.confidence,
                votes=votes,
                pairs=pairs,
                progress=progress,
            )
    from simulation.audit.campaigns import audit_campaign

    with screen.bar(f"attacking campaigns of {name}") as progress:
        return audit_campaign(
            mechanism,
            queries=options.queries or _CAMPAIGN_QUERIES,
            runs=options.runs or _CAMPAIGN_RUNS,
            delta=delta,
            confidence=options.confidence,
            votes=options.votes_per_unit or _VOTES,
            progress=progress,
        )


def _gated(options: AuditOptions, delta: float, screen: Screen) -> Audit:
    from simulation.audit.campaigns import audit_gated

    with screen.bar(f"attacking {GATED}") as progress:
        return audit_gated(
            gated_of(options, delta),
            SystemNoise(),
            runs=options.runs or _GATED_RUNS,
            confidence=options.confidence,
            progress=progress,
        )


def gated_of(options: AuditOptions, delta: float = _DELTA) -> Gated:
    """Return the audited gated batch."""
    from simulation.audit.campaigns import Gated

    k = options.votes_per_unit or _VOTES
    return Gated(
        GNMax(_exact("sigma2", options.sigma2) or _GATED_SIGMA * k, k),
        options.queries or _GATED_QUERIES,
        _GATED_EPSILON,
        delta,
    )


def _canary(options: AuditOptions, screen: Screen) -> Audit:
    from simulation.audit.canaries import Planting, audit_canaries

    name = options.mechanism or GNMax.name
    given = {
        "threshold": None if options.threshold is None else Fraction(options.threshold),
        "sigma1": _exact("sigma1", options.sigma1),
        "sigma2": _exact("sigma2", options.sigma2),
        "scale": _exact("scale", options.scale),
    }
    canaries = options.queries or _CANARIES
    if name == GNMax.name and given["sigma2"] is None:
        given["sigma2"] = Fraction(round(_CANARY_SIGMA * math.sqrt(canaries)))
    planting = Planting(
        aggregator=name,
        canaries=canaries,
        guesses=canaries,
        parties=options.parties,
        teachers=options.teachers,
        delta=_CANARY_DELTA if options.delta is None else options.delta,
        confidence=options.confidence,
        parameters=tuple((key, value) for key, value in given.items() if value is not None),
    )
    with screen.bar("training teachers on records and canaries") as progress:
        return audit_canaries(planting, progress=progress)


def mechanism_of(name: str, options: AuditOptions) -> Mechanism:
    """Return the audited mechanism of that name."""
    k = _votes_of(options)
    sigma2 = _exact("sigma2", options.sigma2) or _SIGMA * k
    sigma1 = _exact("sigma1", options.sigma1) or _CHECK * sigma2
    threshold = _THRESHOLD if options.threshold is None else options.threshold
    if name == LNMax.name:
        return LNMax(_exact("scale", options.scale) or _SCALE * k, k)
    if name == ConfidentGNMax.name:
        return ConfidentGNMax(threshold, sigma1, sigma2, k)
    if name == InteractiveGNMax.name:
        return InteractiveGNMax(threshold, sigma1, sigma2, _CONFIDENCE, k)
    if name in (Neighbour.name, DistributedNeighbour.name):
        return _of_records(name == DistributedNeighbour.name, options, k)
    central = GNMax(sigma2, k)
    return central if name == GNMax.name else over_noisy_sums(central, _HONEST)


def _of_records(distributed: bool, options: AuditOptions, k: int) -> MatrixMechanism:
    """Return the mechanism of records that vote, with noise as it hides that code and answer."""
    code = _code_of(options)
    scale, sigma = _exact("scale", options.scale), _exact("sigma2", options.sigma2)
    if scale is not None and sigma is not None:
        raise UsageError("--sigma2 is of Gaussian noise and --scale of geometric noise: state one")
    law = options.noise_law or ("gaussian" if scale is None else "geometric")
    if law == ("gaussian" if scale is not None else "geometric" if sigma is not None else None):
        raise UsageError(f"--noise-law {law} has another parameter: leave one of them out")
    change, honest = code.change(k), _HONEST if distributed else 1
    shares: Shares
    if law == "geometric":
        least = Fraction(change.total, _PURE_EPSILON)
        shares = GeometricShares(least if scale is None else scale * code.grid, honest)
    else:
        # As much for the distance of neighbours as for nearest votes.
        least = _SIGMA * Fraction(math.isqrt(64**2 * change.squared // 2), 64)
        total = least if sigma is None else sigma * code.grid
        shares = GaussianShares(share_sigma(total, honest) if distributed else total)
    share = shares.share if isinstance(shares, GaussianShares) else None
    scale = shares.scale if isinstance(shares, GeometricShares) else None
    if distributed:
        return DistributedNeighbour(0, share, honest, k, scale, str(code))
    return Neighbour(0, share, k, scale, str(code))


def _code_of(options: AuditOptions) -> Code:
    answer = answer_of(options.answer or CLASS)
    return replace(code_of(options.code or NEAREST), answer=answer)


def _votes_of(options: AuditOptions) -> int:
    """Return the votes of a unit. In rounds it casts one array, however many records it has."""
    if not answer_of(options.answer or CLASS).in_rounds:
        return options.votes_per_unit or _VOTES
    if options.votes_per_unit not in (None, 1):
        raise UsageError("in rounds a unit casts one array: leave out --votes-per-unit")
    return 1


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
        "unseen": UNSEEN,
    }


def show(audits: Sequence[Audit]) -> None:
    """Print a table of the audits, and their common terms."""
    # It fits 80 columns: no frame, and one space between columns.
    sheet = Sheet(
        title="Claimed, and found by attack",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name in ("audit of", "epsilon", "found", "mu", "found", "runs", "claim"):
        left = name in ("audit of", "claim")
        # Of a code and an answer the name takes a second line, so that no figure is cut.
        sheet.add_column(name, justify="left" if left else "right", no_wrap=name != "audit of")
    for each in audits:
        sheet.add_row(
            each.subject,
            f"≤ {rounded_up(each.claimed)}",
            f"≥ {_rounded_down(each.lower_bound)}",
            "" if each.mu_claimed is None else f"≤ {rounded_up(each.mu_claimed)}",
            "" if each.mu_lower_bound is None else f"≥ {_rounded_down(each.mu_lower_bound)}",
            str(each.runs),
            "stands" if each.holds else "REFUTED",
        )
    first = audits[0]
    console = Display(soft_wrap=True)
    console.print(sheet)
    for line in (
        f"epsilon at delta {first.delta:g}; mu of Gaussian DP, where the accountant counts in it",
        "runs: in both worlds, with those to learn from; queries of each run: "
        + ", ".join(f"{each.subject} {each.queries}" for each in audits),
        f"each row holds with confidence {first.confidence:.10g}",
        *(
            f"{what}: {'; '.join(dict.fromkeys(getattr(each, what) for each in audits))}"
            for what in ("unit", "adjacency", "observer")
        ),
        MEANING,
        UNSEEN,
    ):
        console.print(line, markup=False)


def _rounded_down(figure: float) -> str:
    return f"{math.floor(figure * 1e4) / 1e4:.10g}"


def require_all_hold(audits: Sequence[Audit]) -> None:
    """Raise if a claim is refuted."""
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
