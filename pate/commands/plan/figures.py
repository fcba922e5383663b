"""What ``pate plan`` found, in numbers: what its table, its remarks and its picture are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.planning.plans import Plan
    from pate.planning.population import Population
    from pate.planning.search import Frontier

OBSERVER: Final = "public"


@dataclass(frozen=True, eq=False)
class Findings:
    """What a search for settings found.

    Attributes:
        epsilon: the budget of the best plan.
        goal: what was searched for, in words.
        looked_at: queries of the population that were looked at.
        frontiers: by least accuracy of the labels, the most right ones for each of several budgets.
        trade: at ``epsilon``, the most right labels for each of several least accuracies.
    """

    epsilon: float
    goal: str
    looked_at: int
    frontiers: Mapping[float, Frontier]
    trade: Frontier


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanReport:
    """A plan in numbers.

    Attributes:
        plans: ``given`` (what was typed, the rest as the server has it) and ``best`` (what was
            found); None where there is none.
        given_is: heading of the former.
        findings: of the search, or None if there was none.
        wanted: epsilon that was asked for, or None.
        aggregator: name of the mechanism of the campaign.
        delta: at which each epsilon holds.
        unit: what is protected.
        votes_per_unit: k.
        population: what the expectations are made of.
        assumptions: under which it was drawn; empty for a proxy.
        parties: how many, or None if it was not said.
        noise: ``central`` or ``distributed``.
        min_parties: t, with noise shares; else None.
        colluders: c, with noise shares; else None.
        notes: what went wrong, for people.
        files: what was written, by what it is.
    """

    plans: Mapping[str, Plan | None]
    given_is: str
    findings: Findings | None
    wanted: float | None
    aggregator: str
    delta: float
    unit: str
    votes_per_unit: int
    population: Population
    assumptions: Mapping[str, float]
    parties: int | None
    noise: str
    min_parties: int | None
    colluders: int | None
    notes: tuple[str, ...]
    files: Mapping[str, str]

    @property
    def headings(self) -> dict[str, str]:
        """Plans that there are, and what to call them."""
        names = {"given": self.given_is, "best": "best found"}
        return {key: name for key, name in names.items() if self.plans[key] is not None}

    @property
    def title(self) -> str:
        """One line on what was planned."""
        parties = "" if self.parties is None else f" at {self.parties} parties"
        shares = ", noise from the parties" if self.noise == "distributed" else ""
        return (
            f"{self.aggregator}, {self.population.teachers} teachers{parties}, "
            f"{self.population.classes} classes{shares}"
        )

    @property
    def adjective(self) -> str:
        """What an accurate label is."""
        return "right" if self.population.meaning == "right" else "agreeing"
