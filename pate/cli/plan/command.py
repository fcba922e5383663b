"""``pate plan``: expected utility and privacy cost of a campaign, before any training."""

from __future__ import annotations

from pate.cli.plan.options import PlanOptions
from pate.runtime.command import print_json
from pate.runtime.options import takes
from pate.runtime.screen import Screen


@takes(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Plan a campaign: expected labels, accuracy, epsilon.

    For example: pate plan --teachers 200 --epsilon 2. Neighbour votes, which have no teachers, have
    `pate plan-neighbour`.

    The guarantee depends on no votes. The expectations are those of the assumptions, or of a public
    proxy's votes, so they are as good as these are.
    """
    from pate.cli.plan.report import as_object, show
    from pate.cli.plan.run import run_plan

    report = run_plan(options, Screen("pate"))
    if options.as_json:
        print_json(as_object(report))
    else:
        show(report)
