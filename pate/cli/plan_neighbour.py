"""``pate plan-neighbour``: choose the number of representatives, before any votes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

from rich.console import Console
from rich.table import Table as Sheet

from pate.campaign.options import DeltaOption
from pate.codes import DENSE, NEAREST, SPREAD, code_of
from pate.errors import UsageError
from pate.formats.privacy_statement import in_words, neighbours_of
from pate.runtime.command import print_json
from pate.runtime.options import CommandOptions, of_campaign, of_privacy, takes

if TYPE_CHECKING:
    from pate.planning.neighbour import NeighbourNoise, NeighbourPlan

#: Numbers of representatives shown in addition to the default.
_STEPS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class NeighbourOptions(CommandOptions):
    """The options."""

    records: Annotated[int, of_campaign(min=1, help="Your guess at all parties' records.")] = 10_000
    parties: Annotated[int, of_campaign(min=1, help="How many parties.")] = 5
    classes: Annotated[int, of_campaign(min=2, help="Number of classes.")] = 10
    epsilon: Annotated[float, of_privacy(help="What the one release may cost.")] = 1.0
    delta: DeltaOption = 1e-5
    purity: Annotated[
        float,
        of_campaign(help="Guess: share of near records of the same class.", metavar="SHARE"),
    ] = 0.9
    colluders: Annotated[
        int | None,
        of_privacy(min=0, help="Parties that may tell the server their noise. Default: a third"),
    ] = None
    unit: Annotated[Literal["record", "patient"], of_privacy(help="What is protected.")] = "record"
    votes_per_patient: Annotated[
        int, of_privacy(min=1, help="Patient: most votes of one patient.")
    ] = 1
    representatives: Annotated[
        int | None, of_campaign(min=1, help="Public inputs to vote at. Default: as the server")
    ] = None
    code: Annotated[
        str, of_campaign(help="nearest; spread or spread-K: vote at several.", metavar="CODE")
    ] = NEAREST


@takes(NeighbourOptions)
def plan_neighbour(options: NeighbourOptions) -> None:
    """Plan neighbour votes: representatives and labels.

    Nothing of it depends on data. For example: pate plan-neighbour --records 60000 --epsilon 0.1
    """
    from pate.campaign.representatives import default_number, finer_number, settled_code
    from pate.planning.neighbour import NeighbourNoise, plan_representatives

    epsilon, delta, unit = options.epsilon, options.delta, options.unit
    votes, chosen = options.votes_per_patient, options.representatives
    if votes != 1 and unit != "patient":
        raise UsageError("--votes-per-patient is for --unit patient")
    usual = default_number(options.records, 10**9, epsilon, delta, votes)
    middle = chosen or finer_number(options.code, usual, 10**9)
    plans = []
    if options.code.startswith(DENSE):
        raise UsageError(
            "dense votes have no cells to be pure: try the code on labelled public data"
        )
    least = 1 if options.code == SPREAD else code_of(options.code).places
    if middle < least:
        raise UsageError(f"--code {options.code} needs that many representatives, not {middle}")
    for number in sorted({max(least, round(middle * step)) for step in _STEPS}):
        made = settled_code(options.code, number, usual)
        noise = NeighbourNoise.of(
            epsilon, delta, options.parties, votes, options.colluders, str(made)
        )
        plans.append(
            plan_representatives(
                number,
                records=options.records,
                classes=options.classes,
                purity=options.purity,
                sigma=noise.carried,
                threshold=noise.threshold,
                places=made.places,
            )
        )
    noise = NeighbourNoise.of(epsilon, delta, options.parties, votes, options.colluders)
    words = in_words(epsilon, delta, unit, neighbours=neighbours_of(unit, records_vote=True))
    default = middle if chosen is None else None
    if not options.as_json:
        _show(noise, plans, default, words)
        return
    print_json(
        {
            "guarantee": {"epsilon": epsilon, "delta": delta, "unit": unit, "in_words": words},
            "noise": {
                "share": str(noise.share),
                "counted_shares": noise.honest,
                "carried_sigma": noise.carried,
                "threshold": noise.threshold,
            },
            "code": options.code,
            "server_default": default,
            "plans": [asdict(each) | {"labels": each.labels} for each in plans],
        }
    )


def _show(
    noise: NeighbourNoise, plans: list[NeighbourPlan], default: int | None, words: str
) -> None:
    console, spread = Console(highlight=False), any(plan.places > 1 for plan in plans)
    console.print(f"{words}, whatever the number of representatives")
    console.print(
        f"each count carries noise of sigma {noise.carried:.4g} ({noise.honest} shares of "
        f"{float(noise.share):.4g} are counted); a label leads by {noise.threshold} noisy votes"
        + (
            ", times the square root of the representatives that a record votes at"
            if spread
            else ""
        )
    )
    sheet = Sheet()
    titles = (
        "representatives", "votes at each", "get a label", "labels", "of these right",
        "largest count right",
    )  # fmt: skip
    sheet.add_column(titles[0], justify="right", no_wrap=True)
    if spread:
        sheet.add_column("a record votes at", justify="right")
    for title in titles[1:]:
        sheet.add_column(title, justify="right")
    for plan in plans:
        sheet.add_row(
            f"{plan.representatives}{' *' if plan.representatives == default else ''}",
            *([str(plan.places)] if spread else []),
            f"{plan.votes:.0f}",
            f"{plan.labelled:.1%}",
            f"{plan.labels:.0f}",
            f"{plan.right:.1%}" if plan.labels >= 0.5 else "-",
            f"{plan.top_right:.1%}",
        )
    console.print(sheet)
    star = "" if default is None else "* as the server would choose; "
    console.print(f"{star}right: the class of most records there")
    console.print(
        "A student learns from the noisy counts at every representative, not only from labels: what it "
        "gets is the last column times the representatives. "
        + (
            "There the counts of neighbours are taken together, as many as a record votes at. With more "
            "of them the noise averages away, and classes that are close are blurred: this share of the "
            "representatives is twice that of nearest votes."
            if spread
            else "Few of them are nearly all right and teach little; many spread the records too thinly. "
            "The server lets six sigmas of votes come to each, of the least noise that the budget "
            "allows. --code spread has each record vote at several."
        )
    )
