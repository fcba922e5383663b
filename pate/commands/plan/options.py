"""``pate plan``: what a campaign may be expected to give and cost, before anyone trains."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from pate.runtime.command import ConfigOption, JsonOption, print_json
from pate.runtime.screen import Screen

_PLAIN = "numbers such as 40, 2.5 or 1/3; left out, the server's default"


def plan(
    teachers: Annotated[
        int | None, typer.Option(min=1, help="M, teachers of all parties together.")
    ] = None,
    parties: Annotated[int | None, typer.Option(min=1, help="How many parties.")] = None,
    teachers_each: Annotated[
        int | None, typer.Option(min=1, help="Teachers of each party, instead of --teachers.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(min=2, help="Number of classes. Default: 10, or the proxy's.")
    ] = None,
    agreement: Annotated[
        float | None,
        typer.Option(help="Assumed accuracy of one teacher on its own. Default: 0.85."),
    ] = None,
    spread: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of that over queries: hard ones are hard for all teachers. "
            "Default: half of the largest there can be."
        ),
    ] = None,
    rival: Annotated[
        float | None,
        typer.Option(
            help="Share of a query's wrong votes that one class draws: 0 spreads them evenly, 1 "
            "puts them all on it. Default: 0.5."
        ),
    ] = None,
    mechanism: Annotated[
        str,
        typer.Option(
            help="lnmax, gnmax, confident-gnmax, or interactive-gnmax, of which the first round "
            "can be planned."
        ),
    ] = "confident-gnmax",
    noise: Annotated[
        str,
        typer.Option(
            help="central: the server draws it; distributed: each of --parties adds a share, and "
            "the server sees noisy sums alone."
        ),
    ] = "central",
    min_parties: Annotated[
        int | None,
        typer.Option(
            min=1, help="Distributed: t, fewest parties in a sum. Default: above two thirds."
        ),
    ] = None,
    colluders: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Distributed: c, parties that may tell the server their noise. Default: the most "
            "that t allows, up to a third.",
        ),
    ] = None,
    threshold: Annotated[
        str | None, typer.Option(help="Votes that the top class needs, about.")
    ] = None,
    sigma1: Annotated[
        str | None, typer.Option(help=f"Noise of the check, in votes; {_PLAIN}.")
    ] = None,
    sigma2: Annotated[
        str | None,
        typer.Option(
            "--sigma2",
            "--sigma",
            help="Noise on each count, in votes. Distributed: what is guaranteed, for the check too.",
        ),
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="LNMax: scale of the noise (1/gamma), in votes.")
    ] = None,
    queries: Annotated[
        int, typer.Option(min=1, help="Unlabelled public queries that there are.")
    ] = 1000,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Wanted: a hard budget, and a search for settings that make most of it."),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="At which epsilon holds; well below one over all records.")
    ] = 1e-5,
    unit: Annotated[
        str, typer.Option(help="What is protected: a record, a patient, or a whole party.")
    ] = "record",
    votes_per_unit: Annotated[
        int | None, typer.Option(min=1, help="Party: most teachers that one of them has.")
    ] = None,
    at_least: Annotated[
        int | None,
        typer.Option(
            min=1, help="Search for the most accurate labels of which so many are expected."
        ),
    ] = None,
    least_accuracy: Annotated[
        float | None,
        typer.Option(
            help="Search for the most right labels at such an accuracy. Default: nine tenths of "
            "what the votes give without noise."
        ),
    ] = None,
    first_round_share: Annotated[
        str, typer.Option(help="Interactive: share of the budget that the first round may use.")
    ] = "1/2",
    proxy_votes: Annotated[
        Path | None,
        typer.Option(
            help="Votes on a public proxy instead of assumptions: a .npy file of (queries, classes) "
            "counts. They must be public: tuning on private votes is itself a leak.",
            metavar="FILE",
        ),
    ] = None,
    proxy_labels: Annotated[
        Path | None,
        typer.Option(help="Its right labels: a .npy file of (queries,) indices.", metavar="FILE"),
    ] = None,
    histograms: Annotated[
        int, typer.Option(min=100, help="How many vote histograms to draw under the assumptions.")
    ] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of those draws.")] = 0,
    png: Annotated[
        Path | None,
        typer.Option(help="Draw what other budgets and accuracies would give.", metavar="FILE"),
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Plan a campaign: expected labels and their accuracy, and the epsilon that is guaranteed.

    For example: pate plan --teachers 200 --epsilon 2

    The guarantee depends on no votes. The expectations are those of the assumptions, or of a public
    proxy's votes, so they are as good as these are.
    """
    del config
    from pate.commands.plan.report import as_object, show
    from pate.commands.plan.run import Wish, run_plan

    wish = Wish(
        teachers=teachers,
        parties=parties,
        teachers_each=teachers_each,
        classes=classes,
        agreement=agreement,
        spread=spread,
        rival=rival,
        mechanism=mechanism,
        noise=noise,
        min_parties=min_parties,
        colluders=colluders,
        settings={"threshold": threshold, "sigma1": sigma1, "sigma2": sigma2, "scale": scale},
        queries=queries,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        votes_per_unit=votes_per_unit,
        at_least=at_least,
        least_accuracy=least_accuracy,
        first_round_share=first_round_share,
        proxy_votes=proxy_votes,
        proxy_labels=proxy_labels,
        histograms=histograms,
        seed=seed,
        png=png,
    )
    report = run_plan(wish, Screen("pate"))
    if as_json:
        print_json(as_object(report))
    else:
        show(report)
