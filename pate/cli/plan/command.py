"""``pate plan``: expected utility and privacy cost of a campaign, before any training."""

from __future__ import annotations

from pate.cli.plan.options import PlanOptions
from pate.runtime.command import print_json
from pate.runtime.options import takes
from pate.runtime.screen import Screen


@takes(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Plan a campaign: expected labels, accuracy, epsilon.

    For example: pate plan --teachers 200 --epsilon 2; or, where records vote,
    pate plan --aggregator neighbour --expected-records 60000 --epsilon 0.1

    The guarantee depends on no votes. The expectations are those of the assumptions, or of a public
    proxy's votes, so they are as good as these are.
    """
    if options.aggregator == "neighbour":
        from pate.cli.plan.records import RecordsReport

        of_records = RecordsReport.of(options)
        if options.as_json:
            print_json(of_records.to_dict())
        else:
            of_records.show()
        return
    from pate.cli.plan.report import as_object, show
    from pate.cli.plan.teachers import run_plan

    report = run_plan(options, Screen("pate"))
    if options.as_json:
        print_json(as_object(report))
    else:
        show(report)
