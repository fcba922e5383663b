"""The figures of a plan, before they are printed or drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pate.planning.search import Search

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.campaign.spec import CampaignSpec
    from pate.cli.plan.options import PlanOptions
    from pate.planning.plans import Plan
    from pate.planning.population import Population


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanReport:
    """A plan in numbers.

    Attributes:
        options: of the command.
        spec: the campaign that a server would have of it.
        population: of the expectations.
        votes_per_unit: k.
        plans: ``given`` (what was typed, the rest as the server has it), ``best`` (what was found) and
            ``enough`` (the most accurate of that many labels); None where there is none.
        enough: number of labels sufficient for all classes, at most the size of the public set.
        floor: accuracy below which labels are taken for noise.
        search: for the best settings, or None if there was none.
        notes: warnings, for people.
    """

    options: PlanOptions
    spec: CampaignSpec
    population: Population
    votes_per_unit: int
    plans: Mapping[str, Plan | None]
    enough: int
    floor: float
    search: Search | None
    notes: tuple[str, ...]

    @property
    def headings(self) -> dict[str, str]:
        """Existing plans, and their titles."""
        asked = self.options
        settings = (asked.threshold, asked.sigma1, asked.sigma2, asked.scale)
        given = "as given" if any(settings) else "server's defaults"
        names = {"given": given, "best": "best found", "enough": f"{self.enough} labels or more"}
        return {key: name for key, name in names.items() if self.plans[key] is not None}

    def is_noise(self, plan: Plan) -> bool:
        """Whether too few of a plan's labels are expected to be right."""
        return plan.accuracy is None or plan.accuracy < self.floor

    @property
    def title(self) -> str:
        """One line about the planned campaign."""
        parties = "" if self.options.parties is None else f" at {self.options.parties} parties"
        shares = ", noise from the parties" if self.spec.sums.distributed else ""
        return (
            f"{self.spec.aggregator}, {self.population.teachers} teachers{parties}, "
            f"{self.population.classes} classes{shares}"
        )

    @property
    def adjective(self) -> str:
        """The definition of an accurate label, in words."""
        return "right" if self.population.meaning == "right" else "agreeing"
