"""What an audit claims to know: a claim, a lower bound on the truth, and all terms of both."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from pate.accounting.conversion import check_delta
from pate.errors import AccountingError


@dataclass(frozen=True)
class Claim:
    """What an accountant says.

    Attributes:
        epsilon: of (epsilon, delta)-DP.
        delta: at which it is said.
        mu: of Gaussian DP, where the accountant counts in it, else None.

    Raises:
        AccountingError: for a figure that is NaN or negative, or a delta outside (0, 1).
    """

    epsilon: float
    delta: float
    mu: float | None = None

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not self.epsilon >= 0.0 or (self.mu is not None and not self.mu >= 0.0):
            raise AccountingError(f"an accountant cannot claim {self.epsilon} or mu {self.mu}")


@dataclass(frozen=True)
class Seen:
    """Whether an audit sees a bug.

    Attributes:
        bug: its name.
        runs: from how many runs on, in each world, as ``--runs`` counts; None if not even ten
            million would do, or it costs no privacy.
        pair: the neighbours that tell on it, where any do.
        seen: whether the audit at hand has as many.
    """

    bug: str
    runs: int | None
    pair: str | None
    seen: bool


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One audit. A lower bound above the claim refutes it; one below it proves nothing.

    Attributes:
        subject: what was run.
        kind: ``mechanism``, ``gated``, ``campaign`` or ``canary``.
        claimed: epsilon, by the accountant.
        lower_bound: on epsilon, by the attack; at least 0.
        delta: at which both hold.
        mu_claimed: of Gaussian DP, or None where the claim is not made in it.
        mu_lower_bound: likewise.
        pair: the neighbours that the attack told apart best; None of canaries.
        bugs: what this audit would have found, said before it ran.
        confidence: with which both lower bounds hold together.
        runs: independent runs in all, or canaries of the one run.
        queries: of each run: at most so many are answered at full cost.
        unit: whom the claim protects.
        adjacency: what neighbouring worlds differ by.
        observer: what the attacker sees.

    Raises:
        AccountingError: for a figure that is NaN or negative.
    """

    subject: str
    kind: str
    claimed: float
    lower_bound: float
    delta: float
    confidence: float
    runs: int
    queries: int
    unit: str
    adjacency: str
    observer: str
    mu_claimed: float | None = None
    mu_lower_bound: float | None = None
    pair: str | None = None
    bugs: tuple[Seen, ...] = ()

    def __post_init__(self) -> None:
        figures = (self.claimed, self.lower_bound, self.mu_claimed, self.mu_lower_bound)
        if any(each is not None and not each >= 0.0 for each in figures):
            raise AccountingError(f"an audit came out as NaN or negative: {figures}")
        if math.isinf(self.lower_bound):
            raise AccountingError("no number of runs shows an infinite epsilon")

    @property
    def holds(self) -> bool:
        """Whether no lower bound is above what was claimed."""
        mu = self.mu_claimed is None or (self.mu_lower_bound or 0.0) <= self.mu_claimed
        return self.lower_bound <= self.claimed and mu

    def to_dict(self) -> dict[str, object]:
        """Return a JSON object."""
        return {**asdict(self), "holds": self.holds}
