"""Checking a release of synthetic rows against the site's policy and ledger.

It reads only public values and the ledger, so a refusal reveals nothing about the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Protocol

from party.ledger.accountant import cumulative_epsilon
from party.synthesis.release.ledger_entry import entry_of
from party.synthesis.release.plan import SEEDS, plan_of, resampled_of
from party.synthesis.seeds.composition import smallest_k
from party.synthesis.seeds.deniability import Seeds, least_seeds
from pate.accounting.filters import Delta
from pate.errors import BudgetError, InfeasibleError, RefusedError, UsageError
from pate.formats.privacy_statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from party.ledger.accountant import Figure
    from party.ledger.synthesis import Synthesis
    from party.policy.policy import Policy
    from party.synthesis.release.plan import Plan, ReleaseRequest
    from party.synthesis.table.domain import Domain

#: Digits of a suggested epsilon, and the number of halvings to find it.
_HALVINGS: Final = 20


class Figures(Protocol):
    """The part of a party's ledger that a budget needs."""

    def cumulative_epsilon(self, delta: Delta, *more: Synthesis) -> Figure:
        """Return the cumulative epsilon, including ``more``."""


class NothingYet:
    """The empty ledger of a new party."""

    def cumulative_epsilon(self, delta: Delta, *more: Synthesis) -> Figure:
        """See :class:`Figures`."""
        return cumulative_epsilon((), delta, more)


@dataclass(frozen=True)
class Budget:
    """A bound on the cumulative epsilon of a home.

    Attributes:
        rule: its origin, for the message.
        epsilon: largest cumulative epsilon.
        delta: of that epsilon, with its parts.

    Raises:
        UsageError: for invalid figures.
    """

    rule: str
    epsilon: float
    delta: Delta

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise UsageError(f"{self.rule} must be a number above 0, got {self.epsilon:g}")


def budgets_of(
    policy: Policy, max_epsilon: float | None, max_delta: float | None
) -> tuple[Budget, ...]:
    """Return the bounds in force: the policy's, and that of the command line.

    Raises:
        UsageError: for invalid figures.
    """
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
    return tuple(found)


def check_allowed(
    plan: Plan,
    entry: Synthesis,
    domain: Domain,
    ledger: Figures,
    policy: Policy,
    budgets: Sequence[Budget],
) -> None:
    """Return if a release is allowed.

    Args:
        plan: of the release, with its cost.
        entry: for the ledger.
        domain: the public schema.
        ledger: with all earlier releases.
        policy: of the site.
        budgets: from :func:`budgets_of`.

    Raises:
        RefusedError: if the policy does not allow its unit.
        BudgetError: if it does not fit; the message says what would.
    """
    if entry.unit not in policy.units:
        raise RefusedError(
            f"our policy refuses it: units is {', '.join(policy.units)}, and these rows would "
            f"protect a {entry.unit}"
            + ("; name the patient's column with --group" if "patient" in policy.units else "")
        )
    for each in budgets:
        if ledger.cumulative_epsilon(each.delta, entry).epsilon > each.epsilon:
            raise BudgetError(_refusal(plan, entry, domain, ledger, each))


def _refusal(plan: Plan, entry: Synthesis, domain: Domain, ledger: Figures, budget: Budget) -> str:
    asked = plan.asked
    whole = ledger.cumulative_epsilon(budget.delta, entry)
    now = ledger.cumulative_epsilon(budget.delta)
    what = (
        f"the cumulative epsilon would be {rounded_up(whole.epsilon)}"
        if math.isfinite(whole.epsilon)
        else whole.why_none
    )
    spent = f" ({rounded_up(now.epsilon)} is spent)" if 0 < now.epsilon < math.inf else ""
    line = (
        f"refused: {plan.in_words}; {what} at delta {budget.delta.whole:g}, "
        f"{budget.rule} is {budget.epsilon:g}{spent}"
    )
    if asked.release == "seeded":
        found = _smaller(asked, entry, domain, ledger, budget)
        line += f"; {found} would fit" if found else "; no k would fit"
        return f"{line}; seedless: eps={float(asked.epsilon):g}"
    most = _largest(asked, entry, domain, ledger, budget)
    return f"{line}; --epsilon {most:g} would fit" if most else f"{line}; nothing more fits"


def _fits(
    asked: ReleaseRequest, entry: Synthesis, domain: Domain, ledger: Figures, to: Budget
) -> bool:
    other = entry_of(plan_of(asked, domain), domain, entry.unit, entry.data)
    return ledger.cumulative_epsilon(to.delta, other).epsilon <= to.epsilon


def _largest(
    asked: ReleaseRequest, entry: Synthesis, domain: Domain, ledger: Figures, budget: Budget
) -> float:
    """Return an epsilon of two digits that fits, or 0."""

    def fits(epsilon: Fraction) -> bool | None:
        """Return whether it fits, or None if the generator has no noise for so small an epsilon."""
        try:
            return _fits(replace(asked, epsilon=epsilon), entry, domain, ledger, budget)
        except UsageError:
            return None

    low, high, best = Fraction(0), asked.epsilon, Fraction(0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        found = fits(_short(middle))
        low, high = (low, middle) if found is False else (middle, high)
        best = middle if found else best
    if best <= Fraction(1, 1000):
        return 0.0
    digits = 1 - math.floor(math.log10(best))
    told = Fraction(math.floor(best * Fraction(10) ** digits)) / Fraction(10) ** digits
    return float(told) if fits(told) else 0.0


def _short(value: Fraction) -> Fraction:
    return value.limit_denominator(10**6)


def _smaller(
    asked: ReleaseRequest, entry: Synthesis, domain: Domain, ledger: Figures, budget: Budget
) -> str:
    """Return a test that fits, in words, or an empty text."""
    failure = asked.delta / 100
    try:
        seeds = least_seeds(domain.min_rows, SEEDS, failure)
        fixed = len(resampled_of(asked, domain)) == 1
        target = Fraction(budget.epsilon)
        for _ in range(_HALVINGS):
            # Its own total is sharper than the sum of rho in the ledger: try again with less.
            test = smallest_k(
                attempts=asked.tries,
                gamma=asked.gamma,
                epsilon=target,
                delta=asked.delta - failure,
                seeds=Seeds(seeds, fixed),
            )
            other = replace(asked, k=test.k, epsilon0=test.epsilon0)
            if _fits(other, entry, domain, ledger, budget):
                return f"k >= {test.k} with --eps0 {float(test.epsilon0):.4g}"
            target = target * 9 / 10
    except InfeasibleError:
        return ""
    return ""
