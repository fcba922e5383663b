"""``pate plan-neighbour``: choose code, representatives and noise, before any votes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table as Sheet

from pate.answers import CLASS, LABELS, NUMBER, RESIDUAL
from pate.cli.neighbour_plan import NeighbourOptions, Plan
from pate.codes import DENSE
from pate.runtime.command import print_json
from pate.runtime.options import takes
from pate.runtime.screen import Display

if TYPE_CHECKING:
    from pate.planning.neighbour import NeighbourPlan, SumsPlan


@takes(NeighbourOptions)
def plan_neighbour(options: NeighbourOptions) -> None:
    """Plan neighbour votes: code, representatives, noise.

    Nothing of it depends on private data. For example:
    pate plan-neighbour --records 60000 --epsilon 0.1
    """
    plan = Plan.of(options)
    if options.as_json:
        print_json(plan.to_dict())
    else:
        _show(plan)


def _show(plan: Plan) -> None:
    console, noise, code = Display(), plan.noise, plan.code
    console.print(f"{plan.in_words}, whatever the number of representatives")
    counted = "1 share is" if noise.honest == 1 else f"{noise.honest} shares are"
    least = "no query gets a label"
    if noise.threshold:
        least = f"a label leads by {noise.threshold / code.grid:.4g} noisy votes"
    console.print(f"{noise.in_words}; {counted} counted; {least}")
    if code.in_words:
        console.print(f"votes: {code.in_words}")
    if plan.by_labels:
        each = ", ".join(f"{answer} {spread:.4g}" for answer, spread in plan.by_labels.items())
        console.print(f"noise on each count by the number of labels that count: {each}")
    console.print(_sheet(plan))
    star = "" if plan.default is None else "* as the server would choose; "
    console.print(f"{star}{_MEANING[_kind(plan)]}")
    if _kind(plan) == CLASS:
        console.print(
            "A student learns from the noisy counts at every representative, not only from labels: what it "
            "gets is the last column times the representatives. Few of them are nearly all right and teach "
            "little; many spread the records too thinly. The server lets six standard deviations of votes "
            "come to each, of the least noise that the budget allows."
        )
    if plan.code.name == DENSE and plan.code.answer.one_hot and plan.code.answer.name != RESIDUAL:
        console.print(
            "With named --classes a server has records vote in rounds instead: --answer residual plans them."
        )
    console.print(f"The same campaign: {plan.options.of_server}")


def _kind(plan: Plan) -> str:
    """Return which table a plan has."""
    if plan.code.name == DENSE:
        return DENSE
    return CLASS if plan.code.answer.one_hot else plan.code.answer.name


#: What a table's last column means.
_MEANING: Final = {
    CLASS: "right: the class of most records there",
    LABELS: (
        "error: standard deviation, by noise, of a label's share of the records there. More "
        "representatives are finer places with fewer votes at each"
    ),
    NUMBER: (
        "error: standard deviation, by noise, of the mean of the numbers there, in parts of the range, "
        "at most. More representatives are finer places with fewer votes at each"
    ),
    DENSE: (
        "error: the noise in one direction, in parts of what all records of a class would sum to if "
        "they all pointed there (all records, where they say something else than a class). What a "
        "few times as many have in common is seen. More directions tell more apart, and each is as "
        "noisy"
    ),
}


def _sheet(plan: Plan) -> Sheet:
    """Return the table of representatives."""
    kind, sheet = _kind(plan), Sheet()
    last = {
        CLASS: ("get a label", "labels", "of these right", "largest count right"),
        LABELS: ("noise on each count", "error", "counts released"),
        NUMBER: ("noise on each count", "error", "counts released"),
        DENSE: ("noise on each count", "error", "counts released"),
    }[kind]
    titles = (
        "directions" if kind == DENSE else "representatives",
        *(["votes at each"] if kind != DENSE else []),
        *last,
    )
    for at, title in enumerate(titles):
        sheet.add_column(title, justify="right", no_wrap=at == 0)
    for each in plan.rows:
        sheet.add_row(
            f"{each.representatives}{' *' if each.representatives == plan.default else ''}",
            *([f"{each.votes:.0f}"] if kind != DENSE else []),
            *_cells(each),
        )
    return sheet


def _cells(plan: NeighbourPlan | SumsPlan) -> tuple[str, ...]:
    """Return the last cells of a row."""
    from pate.planning.neighbour import SumsPlan

    if isinstance(plan, SumsPlan):
        return f"{plan.noise:.4g}", f"{plan.error:.2%}", str(plan.counts)
    return (
        f"{plan.labelled:.1%}",
        f"{plan.labels:.0f}",
        f"{plan.right:.1%}" if plan.labels >= 0.5 else "-",
        f"{plan.top_right:.1%}",
    )
