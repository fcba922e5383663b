"""``pate plan-neighbour``: how many representatives, before anybody votes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table as Sheet

from pate.errors import UsageError
from pate.formats.privacy_statement import in_words, neighbours_of
from pate.runtime.command import command_over, option, print_json

if TYPE_CHECKING:
    from pate.planning.neighbour import NeighbourNoise, NeighbourPlan

#: Numbers of representatives that are shown beside the default.
_STEPS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class NeighbourRequest:
    """What was typed: each field is the option of that name."""

    records: int = option(
        "About how many records all parties have: your guess.", default=10_000, min=1
    )
    parties: int = option("How many parties.", default=5, min=1)
    classes: int = option("Number of classes.", default=10, min=2)
    epsilon: float = option("What the one release may cost.", default=1.0)
    delta: float = option("At which it holds; well below one over all records.", default=1e-5)
    purity: float = option(
        "Assumed share of the records near a public input that have its class. Guess it "
        "from labelled public data, never from these records.",
        default=0.9,
    )
    colluders: int | None = option(
        "Parties that may tell the server their noise. Default: a third.", min=0
    )
    unit: str = option("What is protected: a record or a patient.", default="record")
    votes_per_patient: int = option("Patient: most votes of one patient.", default=1, min=1)
    representatives: int | None = option("Look at so many. Default: as the server would.", min=1)


@command_over(NeighbourRequest)
def plan_neighbour(request: NeighbourRequest, *, as_json: bool) -> None:
    """Say what neighbour votes would give, for several numbers of representatives.

    Nothing of it depends on data. For example: pate plan-neighbour --records 60000 --epsilon 0.1
    """
    from pate.campaign.representatives import default_number
    from pate.mechanisms.neighbour import require_unit
    from pate.planning.neighbour import NeighbourNoise, plan_representatives

    epsilon, delta, unit = request.epsilon, request.delta, request.unit
    votes, chosen = request.votes_per_patient, request.representatives
    require_unit(unit)
    if votes != 1 and unit != "patient":
        raise UsageError("--votes-per-patient is for --unit patient")
    noise = NeighbourNoise.of(epsilon, delta, request.parties, votes, request.colluders)
    middle = chosen or default_number(request.records, 10**9, epsilon, delta, votes)
    plans = [
        plan_representatives(
            number,
            records=request.records,
            classes=request.classes,
            purity=request.purity,
            sigma=noise.carried,
            threshold=noise.threshold,
        )
        for number in sorted({max(1, round(middle * step)) for step in _STEPS})
    ]
    words = in_words(epsilon, delta, unit, neighbours=neighbours_of(unit, records_vote=True))
    default = middle if chosen is None else None
    if not as_json:
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
            "server_default": default,
            "plans": [asdict(each) | {"labels": each.labels} for each in plans],
        }
    )


def _show(
    noise: NeighbourNoise, plans: list[NeighbourPlan], default: int | None, words: str
) -> None:
    console = Console(highlight=False)
    console.print(f"{words}, whatever the number of representatives")
    console.print(
        f"each count carries noise of sigma {noise.carried:.4g} ({noise.honest} shares of "
        f"{float(noise.share):.4g} are counted); a label leads by {noise.threshold} noisy votes"
    )
    sheet = Sheet()
    for title in ("representatives", "votes at each", "get a label", "labels", "of these right"):
        sheet.add_column(title, justify="right")
    for plan in plans:
        sheet.add_row(
            f"{plan.representatives}{' *' if plan.representatives == default else ''}",
            f"{plan.votes:.0f}",
            f"{plan.labelled:.1%}",
            f"{plan.labels:.0f}",
            f"{plan.right:.1%}" if plan.labels >= 0.5 else "-",
        )
    console.print(sheet)
    star = "" if default is None else "* as the server would choose; "
    console.print(f"{star}right: the class of most records there")
