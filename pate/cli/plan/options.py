"""``pate plan``: what a campaign may be expected to give and cost, before anyone trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pate.runtime.command import option

_PLAIN = "numbers such as 40, 2.5 or 1/3; left out, the server's default"


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What was typed: each field is the option of that name."""

    teachers: int | None = option(
        "M, teachers of all parties together. Default: the proxy's.", min=1
    )
    parties: int | None = option("How many parties.", min=1)
    classes: int | None = option("Number of classes. Default: 10, or the proxy's.", min=2)
    agreement: float | None = option("Assumed accuracy of one teacher on its own. Default: 0.85.")
    spread: float | None = option(
        "Standard deviation of that over queries: hard ones are hard for all teachers. "
        "Default: half of the largest there can be."
    )
    rival: float | None = option(
        "Share of a query's wrong votes on one class: 0 spreads them evenly, 1 puts all on it. "
        "Default: 0.5."
    )
    mechanism: str = option(
        "lnmax, gnmax, confident-gnmax, or the first round of interactive-gnmax.",
        default="confident-gnmax",
    )
    noise: str = option(
        "Drawn by the server: central; or distributed: a share from each of --parties.",
        default="central",
    )
    min_parties: int | None = option(
        "Distributed: t, fewest parties in a sum. Default: above two thirds.", min=1
    )
    colluders: int | None = option(
        "Distributed: c, parties that may tell the server their noise. Default: the most for t.",
        min=0,
    )
    threshold: str | None = option("Votes that the top class needs, about.")
    sigma1: str | None = option(f"Noise of the check, in votes; {_PLAIN}.")
    sigma2: str | None = option(
        "Noise on each count, in votes. Distributed: what is guaranteed, for the check too.",
        *("--sigma2", "--sigma"),
    )
    scale: str | None = option("LNMax: scale of the noise (1/gamma), in votes.")
    queries: int = option("Unlabelled public queries that there are.", default=1000, min=1)
    epsilon: float | None = option(
        "A hard budget, and a search for the settings that make most of it."
    )
    delta: float = option("At which epsilon holds; well below one over all records.", default=1e-5)
    unit: str = option(
        "What is protected: a record, a patient, or a whole party.", default="record"
    )
    votes_per_unit: int | None = option(
        "Party: most teachers that one of them has. Default: as if --parties had equally many.",
        min=1,
    )
    at_least: int | None = option("Search for the most accurate labels, at least so many.", min=1)
    least_accuracy: float | None = option(
        "Search for the most right labels at such an accuracy. Default: nine tenths of "
        "what the votes give without noise."
    )
    first_round_share: str = option(
        "Interactive: the first round's share of the budget.", default="1/2"
    )
    proxy_votes: Path | None = option(  # noqa: RUF009
        "Votes on a public proxy instead of assumptions: a .npy file of (queries, classes) "
        "counts. They must be public: tuning on private votes is itself a leak.",
        metavar="FILE",
    )
    proxy_labels: Path | None = option(  # noqa: RUF009
        "Its right labels: a .npy file of (queries,) indices.", metavar="FILE"
    )
    png: Path | None = option(  # noqa: RUF009
        "Draw what other budgets and accuracies would give.", metavar="FILE"
    )
