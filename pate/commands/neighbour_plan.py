"""``pate plan-neighbour``: how many representatives, before anybody votes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table as Sheet

from pate.masking.context import threshold_for
from pate.mechanisms.neighbour import clear_margin, least_share
from pate.noise_shares import total_sigma
from pate.planning.matrix import plan_matrix
from pate.runtime.command import ConfigOption, JsonOption, print_json
from pate.statement import in_words, neighbours_of

if TYPE_CHECKING:
    from fractions import Fraction

    from pate.planning.matrix import MatrixPlan

#: Numbers of representatives that are shown beside the default.
_STEPS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Noise:
    """The noise of a campaign.

    Attributes:
        share: of each party, or of the server, in votes.
        honest: shares that are counted.
        carried: standard deviation of what counts carry if nobody drops out.
        threshold: least noisy margin of a label.
    """

    share: Fraction
    honest: int
    carried: float
    threshold: int


def noise_of(
    epsilon: float, delta: float, parties: int, votes: int, colluders: int | None
) -> Noise:
    """Return the noise that a server would choose.

    Raises:
        UsageError: for parties that cannot have a masked sum, or colluders that are too many.
        BudgetError: if no noise is worth so little.
    """
    if parties < 3:  # no masks, so the server draws it
        share = least_share(epsilon, delta, 1, votes)
        return Noise(share, 1, float(share), clear_margin(share, 1))
    fewest, colluding = threshold_for(parties, colluders)
    honest = fewest - colluding
    share = least_share(epsilon, delta, honest, votes)
    return Noise(share, honest, float(total_sigma(share, parties)), clear_margin(share, parties))


def plan_neighbour(
    records: Annotated[
        int, typer.Option(min=1, help="About how many records all parties have: your guess.")
    ] = 10_000,
    parties: Annotated[int, typer.Option(min=1, help="How many parties.")] = 5,
    classes: Annotated[int, typer.Option(min=2, help="Number of classes.")] = 10,
    epsilon: Annotated[float, typer.Option(help="What the one release may cost.")] = 1.0,
    delta: Annotated[
        float, typer.Option(help="At which it holds; well below one over all records.")
    ] = 1e-5,
    purity: Annotated[
        float,
        typer.Option(
            help="Assumed share of the records near a public input that have its class. Guess it "
            "from labelled public data, never from these records."
        ),
    ] = 0.9,
    colluders: Annotated[
        int | None,
        typer.Option(min=0, help="Parties that may tell the server their noise. Default: a third."),
    ] = None,
    unit: Annotated[str, typer.Option(help="What is protected: a record or a patient.")] = "record",
    votes_per_patient: Annotated[
        int, typer.Option(min=1, help="Patient: most votes of one patient.")
    ] = 1,
    representatives: Annotated[
        int | None, typer.Option(min=1, help="Look at so many. Default: as the server would.")
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Say what neighbour votes would give, for several numbers of representatives.

    Nothing of it depends on data. For example: pate plan-neighbour --records 60000 --epsilon 0.1
    """
    del config
    from aggregator_server.representatives import default_number
    from pate.errors import UsageError
    from pate.mechanisms.neighbour import require_unit

    require_unit(unit)
    if votes_per_patient != 1 and unit != "patient":
        raise UsageError("--votes-per-patient is for --unit patient")
    noise = noise_of(epsilon, delta, parties, votes_per_patient, colluders)
    middle = representatives or default_number(records, 10**9, epsilon, delta, votes_per_patient)
    numbers = sorted({max(1, round(middle * step)) for step in _STEPS})
    plans = [
        plan_matrix(
            number,
            records=records,
            classes=classes,
            purity=purity,
            sigma=noise.carried,
            threshold=noise.threshold,
        )
        for number in numbers
    ]
    words = in_words(epsilon, delta, unit, neighbours=neighbours_of(unit, records_vote=True))
    if as_json:
        print_json(
            {
                "guarantee": {"epsilon": epsilon, "delta": delta, "unit": unit, "in_words": words},
                "noise": {
                    "share": str(noise.share),
                    "counted_shares": noise.honest,
                    "carried_sigma": noise.carried,
                    "threshold": noise.threshold,
                },
                "server_default": middle if representatives is None else None,
                "plans": [asdict(each) | {"labels": each.labels} for each in plans],
            }
        )
    else:
        _show(noise, plans, middle, words)


def _show(noise: Noise, plans: list[MatrixPlan], middle: int, words: str) -> None:
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
            f"{plan.representatives}{' *' if plan.representatives == middle else ''}",
            f"{plan.votes:.0f}",
            f"{plan.labelled:.1%}",
            f"{plan.labels:.0f}",
            f"{plan.right:.1%}" if plan.labels >= 0.5 else "-",
        )
    console.print(sheet)
    console.print("* as the server would choose; right: the class of most records there")
