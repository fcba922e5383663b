"""The options that say what a campaign is, for every command that makes or plans one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from pate.campaign.choices import (  # noqa: TC001 — commands look them up
    Aggregation,
    Aggregator,
    NoiseSource,
    Publish,
    Unit,
)

CampaignOption = Annotated[str, typer.Option("--campaign", help="Name of the campaign.")]


@dataclass(frozen=True, kw_only=True)
class MechanismOptions:
    """What a campaign is: name, mechanism, budget, parties. Each field is the option of that name."""

    campaign: CampaignOption = "campaign"

    aggregator: Annotated[
        Aggregator,
        typer.Option(
            help="Mechanism: lnmax, gnmax, confident-gnmax (answers only where teachers agree), "
            "interactive-gnmax (answers where they agree and the student does not know), or "
            "neighbour (no teachers: each record votes once, at its nearest public input, so that "
            "all labels together cost one release)."
        ),
    ] = "confident-gnmax"
    parties: Annotated[
        str, typer.Option(help="How many parties to wait for, or their names, comma separated.")
    ] = "3"
    min_parties: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With fewer the campaign stops. Default: two thirds of the roster; masked: more "
            "than that.",
        ),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(help="Class names, comma separated. Default: the parties', who must agree."),
    ] = None
    epsilon: Annotated[
        float, typer.Option(help="Hard budget: no label leaves once it is spent.")
    ] = 2.0
    delta: Annotated[
        float | None,
        typer.Option(
            help="At which epsilon holds; well below one over all records. Default: 1e-5; gated 1e-6, as "
            "much as parties set aside for it."
        ),
    ] = None
    unit: Annotated[
        Unit, typer.Option(help="What is protected: a record, a patient, or a whole party.")
    ] = "record"
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of labels. Default: 2 if interactive, else 1.")
    ] = None
    first_round_share: Annotated[
        str, typer.Option(help="Share of the budget that the first of several rounds may use.")
    ] = "1/2"
    max_queries: Annotated[
        int | None, typer.Option(min=1, help="Ask at most so many queries, budget or not.")
    ] = None
    threshold: Annotated[
        str | None,
        typer.Option(
            help="Confident: votes that the top class needs, about. Neighbour: noisy votes by which "
            "it must lead."
        ),
    ] = None
    interactive_threshold: Annotated[
        str | None,
        typer.Option(help="Interactive: votes by which teachers must exceed the student's belief."),
    ] = None
    sigma1: Annotated[
        str | None, typer.Option(help="Standard deviation of the threshold's noise, in votes.")
    ] = None
    sigma2: Annotated[
        str | None, typer.Option(help="Standard deviation of the noise on each count, in votes.")
    ] = None
    scale: Annotated[
        str | None, typer.Option(help="LNMax: scale of the Laplace noise (1/gamma), in votes.")
    ] = None
    confidence: Annotated[
        str | None,
        typer.Option(help="Interactive: student's probability at which its label is reinforced."),
    ] = None
    publish: Annotated[
        Publish,
        typer.Option(
            help="capped: labels leave as they are answered, under a cap that looks at no vote. "
            "gated: those of one batch (--max-queries) leave together, if a private test finds that "
            "these votes cost little; far more labels for teachers that agree, or none at all."
        ),
    ] = "capped"
    gate_order: Annotated[
        float | None,
        typer.Option(
            help="Gated: Renyi order. Take it from `pate account --gate` on public votes."
        ),
    ] = None
    aggregation: Annotated[
        Aggregation | None,
        typer.Option(
            help="masked: this server learns sums of votes alone. plain: it sees every party's "
            "votes. Default: masked from three parties on."
        ),
    ] = None
    noise: Annotated[
        NoiseSource | None,
        typer.Option(
            help="central: this server adds the noise. distributed: every party adds a share to its "
            "masked votes, so that this server sees no exact sum either. Default: central; of "
            "masked neighbour votes distributed."
        ),
    ] = None
    colluders: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Masked: parties that may be in league with this server without harm. Default: "
            "the most that --min-parties allows, below a third of the roster.",
        ),
    ] = None
    vote_proofs: Annotated[
        bool,
        typer.Option(
            "--vote-proofs",
            help="Masked: every party proves, showing nothing else, that each row of its votes sums "
            "to its teachers and has no negative count. Who fails is named and left out.",
        ),
    ] = False
    class_quota: Annotated[
        bool,
        typer.Option(
            "--class-quota",
            help="Interactive: later rounds ask first about inputs that the student takes for classes "
            "with few labels so far. All of that is public: it costs nothing.",
        ),
    ] = False
    gate_share: Annotated[
        float, typer.Option(help="Gated: share of the divergence that the test itself may cost.")
    ] = 0.15
    representatives: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Neighbour: how many public inputs records vote at. Default: as many as "
            "--expected-records and the budget let win clearly.",
        ),
    ] = None
    expected_records: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Neighbour: about how many records all parties have: your guess, since none of them "
            "tells. Default: 10000.",
        ),
    ] = None
    most_votes: Annotated[
        int | None,
        typer.Option(min=1, help="Neighbour: most votes of one party on one count. Default: 4095."),
    ] = None
    votes_per_patient: Annotated[
        int | None,
        typer.Option(
            min=1, help="Neighbour, --unit patient: most votes of one patient. Default: 1."
        ),
    ] = None
