"""``pate plan-neighbour``: choose the number of representatives, before any votes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

from rich.console import Console
from rich.table import Table as Sheet

from pate.campaign.options import DeltaOption, NoiseLawOption
from pate.codes import DENSE, NEAREST, SPREAD, code_of
from pate.errors import UsageError
from pate.formats.privacy_statement import in_words, neighbours_of
from pate.noise.share_laws import IN_WORDS, GeometricShares
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
    noise_law: NoiseLawOption = None
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
    from pate.campaign.representatives import (
        default_number,
        finer_number,
        require_spread,
        settled_code,
    )
    from pate.planning.neighbour import NeighbourNoise, plan_representatives

    epsilon, unit = options.epsilon, options.unit
    votes, chosen = options.votes_per_patient, options.representatives
    if votes != 1 and unit != "patient":
        raise UsageError("--votes-per-patient is for --unit patient")
    if options.code.startswith(DENSE):
        raise UsageError(
            "dense votes have no cells to be pure: try the code on labelled public data"
        )
    of_one = epsilon, options.delta, options.parties, votes, options.colluders
    noise = NeighbourNoise.of(*of_one, options.noise_law)
    delta = noise.delta
    if options.code != NEAREST:
        delta = 0.0 if options.noise_law == "geometric" else options.delta
        require_spread(options.code, delta)
    usual = default_number(options.records, 10**9, epsilon, delta, votes)
    middle = chosen or finer_number(options.code, usual, 10**9)
    least = 1 if options.code == SPREAD else code_of(options.code).places
    if middle < least:
        raise UsageError(f"--code {options.code} needs that many representatives, not {middle}")
    noise = NeighbourNoise.of(
        *of_one, options.noise_law, str(settled_code(options.code, middle, usual))
    )
    delta, plans = noise.delta, []
    for number in sorted({max(least, round(middle * step)) for step in _STEPS}):
        code = settled_code(options.code, number, usual)
        each = NeighbourNoise.of(*of_one, noise.law, str(code))
        plans.append(
            plan_representatives(
                number,
                records=options.records,
                classes=options.classes,
                purity=options.purity,
                sigma=each.carried,
                threshold=each.threshold,
                places=code.places,
            )
        )
    words = in_words(epsilon, delta, unit, neighbours=neighbours_of(unit, records_vote=True))
    default = middle if chosen is None else None
    if not options.as_json:
        _show(noise, plans, default, words, options.delta)
        return
    print_json(
        {
            "guarantee": {"epsilon": epsilon, "delta": delta, "unit": unit, "in_words": words},
            "noise": {
                "law": noise.law,
                **_parameter(noise),
                "counted_shares": noise.honest,
                "carried_sigma": noise.carried,
                "sigma_of_each_law": noise.spreads,
                "threshold": noise.threshold,
            },
            "code": options.code,
            "server_default": default,
            "plans": [asdict(each) | {"labels": each.labels} for each in plans],
        }
    )


def _parameter(noise: NeighbourNoise) -> dict[str, str]:
    """Return the parameter of the noise by its name in a mechanism."""
    shares = noise.shares
    if isinstance(shares, GeometricShares):
        return {"scale": str(shares.scale)}
    return {"share": str(shares.share)}


def _show(
    noise: NeighbourNoise,
    plans: list[NeighbourPlan],
    default: int | None,
    words: str,
    wanted: float,
) -> None:
    console, spreading = Console(highlight=False), any(plan.places > 1 for plan in plans)
    console.print(f"{words}, whatever the number of representatives")
    counted = "1 share is" if noise.honest == 1 else f"{noise.honest} shares are"
    console.print(
        f"each count carries {IN_WORDS[noise.law]} noise of standard deviation {noise.carried:.4g} "
        f"({counted} counted); a label leads by {noise.threshold} noisy votes"
    )
    for law, spread in noise.spreads.items():
        if law != noise.law:
            at = 0.0 if law == "geometric" else wanted
            console.print(f"{IN_WORDS[law]} noise would have {spread:.4g}, at delta {at:g}")
    if spreading:
        console.print(
            "that is in the middle row: noise grows with the square root of the representatives that a "
            "record votes at"
        )
    sheet = Sheet()
    titles = (
        "representatives", "votes at each", "get a label", "labels", "of these right",
        "largest count right",
    )  # fmt: skip
    sheet.add_column(titles[0], justify="right", no_wrap=True)
    if spreading:
        sheet.add_column("a record votes at", justify="right")
    for title in titles[1:]:
        sheet.add_column(title, justify="right")
    for plan in plans:
        sheet.add_row(
            f"{plan.representatives}{' *' if plan.representatives == default else ''}",
            *([str(plan.places)] if spreading else []),
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
            if spreading
            else "Few of them are nearly all right and teach little; many spread the records too thinly. "
            "The server lets six standard deviations of votes come to each, of the least noise that the "
            "budget allows. --code spread has each record vote at several."
        )
    )
