"""The plan of a release of synthetic rows: its cost, its entry in the ledger, and whether it may be.

Only public values and the ledger are read here: a cost or a refusal that depended on the data would
leak.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from party.ledger.accountant import cumulative_epsilon
from party.ledger.synthesis import Synthesis
from party.synthesis.cfs import Cfs
from party.synthesis.deniability import (
    LARGEST_K,
    RandomizedTest,
    TotalCost,
    check_attempts,
    coin,
    least_seeds,
    round_up,
    total_cost,
)
from party.synthesis.files import PUBLISHED
from party.synthesis.l1 import L1
from party.synthesis.seeds import SeededRelease, bucket_width, check_resampled
from pate.accounting.conversion import epsilon_from_rho, float_up
from pate.accounting.filters import Delta
from pate.data.limits import MAX_BYTES
from pate.errors import BudgetError, RefusedError, UsageError
from pate.formats.privacy_statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from party.ledger.accountant import Figure, Totals
    from party.policy.policy import Policy
    from party.synthesis.l1 import Price
    from party.synthesis.options import ReleaseRequest
    from party.synthesis.schema import Domain

#: Most rows times columns that the readers of this project accept.
MOST_CELLS: Final = 10**8
#: Share of the rows that are seeds in a seeded release; the model is learned from the others.
SEEDS: Final = Fraction(1, 2)
#: Share of delta for the event that there are fewer seeds than the cost assumes.
_FOR_THE_SPLIT: Final = Fraction(1, 100)
#: The longest text of a setting.
_LONGEST: Final = 200
#: Halvings to find an epsilon that fits.
_HALVINGS: Final = 20


@dataclass(frozen=True)
class Plan:
    """A release and its cost. ``price`` is of the model; ``epsilon`` is pure, of the whole, or None.

    rho and delta are the larger of model and seeds, since a row is in only one of them.
    """

    asked: ReleaseRequest
    domain: Domain
    generator: L1 | Cfs
    price: Price
    epsilon: Fraction | None
    rho: Fraction
    delta: Fraction
    seeded: SeededRelease | None = None
    total: TotalCost | None = None

    @property
    def figure(self) -> tuple[float, float]:
        """(epsilon, delta) of the whole, by itself."""
        if self.epsilon is not None:
            return float_up(self.epsilon), 0.0
        delta = self.asked.delta
        # A generator without a pure epsilon states (epsilon, delta), though its rho may convert to
        # less.
        left = math.nextafter(float(delta - self.price.delta), 0.0)
        model = min(float_up(self.asked.epsilon), epsilon_from_rho(self.price.rho, left))
        seeds = 0.0 if self.total is None else float_up(self.total.epsilon)
        return max(model, seeds), float(delta)

    @property
    def in_words(self) -> str:
        """The release and its cost in one line."""
        asked = self.asked
        if self.total is not None:
            return (
                f"{asked.tries} attempts with k={asked.k} gamma={_plain(asked.gamma)} "
                f"eps0={_plain(asked.epsilon0)} cost eps={float(self.total.epsilon):.4g} "
                f"(delta {float(asked.delta):g})"
            )
        return f"seedless rows by {asked.method} cost eps={_plain(asked.epsilon)}, whatever their number"

    def entry(self, unit: str, data: str) -> Synthesis:
        """Return the ledger's entry of the release, with a new id and the keyed digest of the data."""
        asked = self.asked
        settings = {}
        if asked.release == "seeded" or is_deniable(asked, self.domain):
            settings = {"k": str(asked.k), "gamma": str(asked.gamma)}
        settings |= dict(zip(PUBLISHED, map(repr, self.figure), strict=True))
        if self.total is None or self.seeded is None:
            settings["deniability"] = "trivial: every record is as plausible a seed"
        else:
            attempt = self.total.attempt
            settings |= {
                "eps0": str(asked.epsilon0),
                "attempts": str(asked.tries),
                "omega": " ".join(map(str, self.seeded.resampled))[:_LONGEST],
                "t": str(attempt.t),
                "eps1": f"{float(attempt.epsilon):.6g}",
                "delta1": f"{float(attempt.delta):.3g}",
                "rho_seeds": f"{float(self.total.rho):.6g}",
                "coin": f"{float(self.seeded.coin):.6g}",
            }
        return Synthesis(
            id=secrets.token_hex(16),
            unit=unit,
            method=asked.method,
            release=asked.release,
            rows=asked.rows,
            schema=self.domain.digest.hex(),
            data=data,
            epsilon=self.epsilon,
            rho=self.rho,
            delta=self.delta,
            settings=settings,
        )


def plan_of(asked: ReleaseRequest, domain: Domain) -> Plan:
    """Return the plan of a release; InfeasibleError if no cost can be stated for such a test."""
    check_size(asked.rows, domain)
    generator = L1() if asked.method == "l1" else Cfs(asked.delta)
    price = generator.price(domain, asked.epsilon)
    rho, delta = round_up(price.rho), round_up(price.delta)
    if asked.release == "seedless":
        return Plan(asked, domain, generator, price, price.epsilon_pure, rho, delta)
    m = len(domain)
    resampled = (m,) if asked.resampled is None else asked.resampled
    if any(not 1 <= each <= m for each in resampled):
        raise UsageError(f"--omega must be between 1 and the {m} columns of the schema")
    resampled, attempts = check_resampled(resampled, m), check_attempts(asked.tries)
    # Values that make no sense are refused before the number of seeds, which may be too small.
    test = RandomizedTest(asked.k, asked.gamma, asked.epsilon0, LARGEST_K, len(resampled) == 1)
    if not test.fixed:
        bucket_width(asked.gamma)
    failure = asked.delta * _FOR_THE_SPLIT
    test = replace(test, seeds=least_seeds(domain.min_rows, SEEDS, failure))
    total = total_cost(test, attempts, asked.delta - failure)
    dropped = coin(total.attempt.epsilon, test.seeds)
    seeded = SeededRelease(test, resampled, attempts, asked.rows, dropped)
    rho, delta = max(rho, total.rho), max(delta, round_up(total.rho_delta + failure))
    return Plan(asked, domain, generator, price, None, rho, delta, seeded, total)


def check_size(rows: int, domain: Domain) -> None:
    """Refuse rows that are too many for their columns, before anything is paid for them."""
    # A text takes as much memory as the longest code of its column.
    width = sum(
        8 if each.edges is not None else 4 * max(map(len, each.codes)) for each in domain.attributes
    )
    most = min(MOST_CELLS // len(domain), MAX_BYTES // width)
    if rows > most:
        raise UsageError(
            f"--rows {rows}: with the {len(domain)} columns of this schema at most {most} "
            "rows fit in one file; ask for fewer"
        )


def is_deniable(asked: ReleaseRequest, domain: Domain) -> bool:
    """Return whether k and gamma may be stated for seedless rows.

    All records are equally plausible then, at least ``min_rows`` of them, whatever gamma is.
    """
    return 1 <= asked.k <= domain.min_rows and asked.gamma > 1


def entry_of_model(rows: int, first: Synthesis, model: str) -> Synthesis:
    """Return the ledger's entry of more rows of a model, which the release ``first`` paid for."""
    return replace(
        first,
        id=secrets.token_hex(16),
        release="seedless",
        rows=rows,
        epsilon=Fraction(0),
        rho=Fraction(0),
        delta=Fraction(0),
        parent=first.id,
        model=model,
        settings={name: first.settings[name] for name in PUBLISHED},
    )


# --- whether it may be ---------------------------------------------------------------------------


class Budget(NamedTuple):
    """A bound on the cumulative epsilon of a home; ``rule`` is its origin, for the message."""

    rule: str
    epsilon: float
    delta: Delta


def budgets_of(
    policy: Policy, max_epsilon: float | None, max_delta: float | None
) -> tuple[Budget, ...]:
    """Return the bounds in force, the policy's and that of the command line; UsageError for bad ones."""
    found = []
    if policy.largest_epsilon is not None:
        found.append(
            Budget("largest_epsilon of our policy", policy.largest_epsilon, policy.divided_delta)
        )
    if max_epsilon is not None:
        delta = policy.delta if max_delta is None else max_delta
        if not 0 < delta < 1:
            raise UsageError(f"--max-epsilon: delta must be between 0 and 1, got {delta:g}")
        found.append(Budget("--max-epsilon", max_epsilon, Delta(delta, policy.failing_share)))
    elif max_delta is not None:
        raise UsageError("--max-delta is the delta of --max-epsilon, which is missing")
    for each in found:
        if not 0 < each.epsilon < math.inf:
            raise UsageError(f"{each.rule} must be a number above 0, got {each.epsilon:g}")
    return tuple(found)


@dataclass(frozen=True)
class Wanted:
    """A planned release and its entry, and all votes and releases that left this home before it."""

    plan: Plan
    entry: Synthesis
    totals: Sequence[Totals] = ()
    earlier: Sequence[Synthesis] = ()

    def figure(self, delta: Delta, *more: Synthesis) -> Figure:
        """Return the cumulative epsilon of what left before, and of ``more``."""
        return cumulative_epsilon(self.totals, delta, (*self.earlier, *more))

    def check_allowed(self, policy: Policy, budgets: Iterable[Budget]) -> None:
        """Return if the policy allows its unit, and it fits; a BudgetError says what would fit."""
        if self.entry.unit not in policy.units:
            raise RefusedError(
                f"our policy refuses it: units is {', '.join(policy.units)}, and these rows would "
                f"protect a {self.entry.unit}"
                + ("; name the patient's column with --group" if "patient" in policy.units else "")
            )
        for budget in budgets:
            whole = self.figure(budget.delta, self.entry)
            if whole.epsilon > budget.epsilon:
                raise BudgetError(self._refusal(budget, whole))

    def _refusal(self, budget: Budget, whole: Figure) -> str:
        asked, now = self.plan.asked, self.figure(budget.delta).epsilon
        what = (
            f"the cumulative epsilon would be {rounded_up(whole.epsilon)}"
            if math.isfinite(whole.epsilon)
            else whole.why_none
        )
        spent = f" ({rounded_up(now)} is spent)" if 0 < now < math.inf else ""
        line = (
            f"refused: {self.plan.in_words}; {what} at delta {budget.delta.whole:g}, "
            f"{budget.rule} is {budget.epsilon:g}{spent}"
        )
        if self.plan.seeded is not None:
            return f"{line}; seedless: eps={float(asked.epsilon):g}"
        most = self._largest_epsilon(budget)
        return f"{line}; --epsilon {most:g} would fit" if most else f"{line}; nothing more fits"

    def _fits(self, asked: ReleaseRequest, budget: Budget) -> bool:
        other = plan_of(asked, self.plan.domain).entry(self.entry.unit, self.entry.data)
        return self.figure(budget.delta, other).epsilon <= budget.epsilon

    def _largest_epsilon(self, budget: Budget) -> float:
        """Return an epsilon of two digits that fits, or 0."""

        def fits(epsilon: Fraction) -> bool | None:
            """Return whether it fits, or None if the generator has no noise for so small an epsilon."""
            try:
                return self._fits(replace(self.plan.asked, epsilon=epsilon), budget)
            except UsageError:
                return None

        low, high, best = Fraction(0), self.plan.asked.epsilon, Fraction(0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            found = fits(middle.limit_denominator(10**6))
            low, high = (low, middle) if found is False else (middle, high)
            best = middle if found else best
        if best <= Fraction(1, 1000):
            return 0.0
        digits = 1 - math.floor(math.log10(best))
        short = Fraction(math.floor(best * Fraction(10) ** digits)) / Fraction(10) ** digits
        return float(short) if fits(short) else 0.0


def _plain(value: Fraction) -> str:
    return f"{float(value):.6g}"
