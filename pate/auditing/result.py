"""The result of an audit: a claim, a lower bound on the truth, and the terms of both."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from pate.accounting.conversion import check_delta
from pate.errors import AccountingError


@dataclass(frozen=True)
class Claim:
    """The claim of an accountant.

    Attributes:
        epsilon: of (epsilon, delta)-DP.
        delta: of the claim.
        mu: of Gaussian DP, if the accountant uses it, else None.

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
        runs: least number of runs in each world, as in ``--runs``; None if ten million do not
            suffice, or it costs no privacy.
        pair: the neighbours that show it, if any do.
        seen: whether this audit has that many.
    """

    bug: str
    runs: int | None
    pair: str | None
    seen: bool


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One audit. A lower bound above the claim refutes it; one below it proves nothing.

    Attributes:
        subject: the code that was run.
        kind: ``mechanism``, ``gated``, ``campaign`` or ``canary``.
        claimed: epsilon, by the accountant.
        lower_bound: on epsilon, by the attack; at least 0.
        delta: at which both hold.
        mu_claimed: of Gaussian DP, or None if the claim does not use it.
        mu_lower_bound: on mu, or None.
        pair: the neighbours that the attack distinguished best; None for canaries.
        bugs: which bugs this audit would have found, predicted before it ran.
        confidence: with which both lower bounds hold together.
        runs: total independent runs, or canaries of the one run.
        queries: of each run, at most; each answered at full cost.
        unit: whom the claim protects.
        adjacency: how neighbouring worlds differ.
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
            raise AccountingError(f"an audit has a NaN or negative figure: {figures}")
        if math.isinf(self.lower_bound):
            raise AccountingError("no number of runs shows an infinite epsilon")

    @property
    def holds(self) -> bool:
        """Whether no lower bound is above the claim."""
        mu = self.mu_claimed is None or (self.mu_lower_bound or 0.0) <= self.mu_claimed
        return self.lower_bound <= self.claimed and mu

    def to_dict(self) -> dict[str, object]:
        """Return a JSON object."""
        return {**asdict(self), "holds": self.holds}
