"""The options that say what a campaign is, for every command that makes, simulates or plans one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import typer

from pate.campaign.choices import Aggregation, Aggregator, NoiseSource, Publish, Unit

#: The mechanisms that have teachers.
OfTeachers = Literal["lnmax", "gnmax", "confident-gnmax", "interactive-gnmax"]

_masked = partial(typer.Option, rich_help_panel="Masked sums")
_neighbour = partial(typer.Option, rich_help_panel="Neighbour votes (--aggregator neighbour)")
_interactive = partial(typer.Option, rich_help_panel="Interactive-GNMax")
_gated = partial(typer.Option, rich_help_panel="Gated release (--publish gated)")
_settings = partial(typer.Option, rich_help_panel="Settings of the mechanism: 40, 2.5 or 1/3")

CampaignOption = Annotated[str, typer.Option("--campaign", help="Name of the campaign.")]
AggregatorOption = Annotated[
    Aggregator,
    typer.Option(
        help="Mechanism. confident-gnmax answers only where teachers agree; interactive-gnmax where "
        "they agree and the student does not know. neighbour has no teachers: each record votes "
        "once, at its nearest public input, so that all labels together cost one release."
    ),
]
EpsilonOption = Annotated[
    float, typer.Option(help="Hard budget: no label leaves once it is spent.")
]
DeltaOption = Annotated[
    float, typer.Option(help="At which epsilon holds; well below one over all records.")
]
UnitOption = Annotated[Unit, typer.Option(help="What is protected; party: all that one party has.")]
FirstRoundShareOption = Annotated[
    str, _interactive(help="Share of the budget that the first of several rounds may use.")
]
NoiseOption = Annotated[
    NoiseSource | None,
    _masked(
        help="central: the server adds the noise. distributed: every party adds a share to its "
        "masked votes, so that the server sees no exact sum either. Default: central; of masked "
        "neighbour votes distributed."
    ),
]


@dataclass(frozen=True, kw_only=True)
class QuorumOptions:
    """How many parties a sum needs. Each field, here and below, is the option of that name."""

    min_parties: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With fewer the campaign stops, and masked no fewer votes are summed. Default: two "
            "thirds of the parties; masked: more than that.",
        ),
    ] = None
    colluders: Annotated[
        int | None,
        _masked(
            min=0,
            help="Number of parties that may collude with the server. Default: the most that "
            "--min-parties allows, below a third of the parties.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SumOptions(QuorumOptions):
    """How votes are summed."""

    aggregation: Annotated[
        Aggregation | None,
        typer.Option(
            help="masked: the server learns only sums of votes. plain: it sees every party's votes. "
            "Default: masked from three parties on."
        ),
    ] = None
    noise: NoiseOption = None


@dataclass(frozen=True, kw_only=True)
class ParameterOptions:
    """The numbers of a mechanism: such as 40, 2.5 or 1/3."""

    threshold: Annotated[
        str | None,
        _settings(
            help="Confident: votes that the top class needs, about. Neighbour: noisy votes by which "
            "it must lead."
        ),
    ] = None
    sigma1: Annotated[
        str | None, _settings(help="Standard deviation of the threshold's noise, in votes.")
    ] = None
    sigma2: Annotated[
        str | None,
        _settings(
            *("--sigma2", "--sigma"),
            help="Standard deviation of the noise on each count, in votes. Distributed: what is "
            "guaranteed, for the threshold too.",
        ),
    ] = None
    scale: Annotated[
        str | None, _settings(help="LNMax: scale of the Laplace noise (1/gamma), in votes.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class MechanismOptions(SumOptions, ParameterOptions):
    """What a campaign is: name, mechanism, budget, parties."""

    campaign: CampaignOption = "campaign"
    aggregator: AggregatorOption = "confident-gnmax"
    parties: Annotated[
        str, typer.Option(help="How many parties to wait for, or their names, comma separated.")
    ] = "3"
    classes: Annotated[
        str | None,
        typer.Option(help="Class names, comma separated. Default: the parties', who must agree."),
    ] = None
    epsilon: EpsilonOption = 2.0
    delta: Annotated[
        float | None,
        typer.Option(
            help="At which epsilon holds; well below one over all records. Default: 1e-5; gated 1e-6, as "
            "much as parties set aside for it."
        ),
    ] = None
    unit: UnitOption = "record"
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of labels. Default: 2 if interactive, else 1.")
    ] = None
    max_queries: Annotated[
        int | None, typer.Option(min=1, help="Most queries that are asked, whatever the budget.")
    ] = None
    publish: Annotated[
        Publish,
        typer.Option(
            help="capped: labels leave as they are answered, under a cap that looks at no vote. "
            "gated: those of one batch (--max-queries) leave together, if a private test finds that "
            "these votes cost little; far more labels for teachers that agree, or none at all."
        ),
    ] = "capped"
    first_round_share: FirstRoundShareOption = "1/2"
    interactive_threshold: Annotated[
        str | None,
        _interactive(help="Votes by which teachers must exceed the student's belief."),
    ] = None
    confidence: Annotated[
        str | None,
        _interactive(help="The student's probability at which its label is reinforced."),
    ] = None
    class_quota: Annotated[
        bool,
        _interactive(
            "--class-quota",
            help="Later rounds ask first about inputs that the student takes for classes with few "
            "labels so far. All of that is public: it costs nothing.",
        ),
    ] = False
    vote_proofs: Annotated[
        bool,
        _masked(
            "--vote-proofs",
            help="Every party proves, showing nothing else, that each row of its votes sums to its "
            "teachers and has no negative count. A party whose proof fails is reported and excluded.",
        ),
    ] = False
    gate_order: Annotated[
        float | None,
        _gated(help="Renyi order. Take it from `pate account --gate` on public votes."),
    ] = None
    gate_share: Annotated[
        float, _gated(help="Share of the divergence that the test itself may cost.")
    ] = 0.15
    representatives: Annotated[
        int | None,
        _neighbour(
            min=1,
            help="How many public inputs records vote at. Default: as many as --expected-records and "
            "the budget let win clearly.",
        ),
    ] = None
    expected_records: Annotated[
        int | None,
        _neighbour(
            min=1,
            help="About how many records all parties have: your guess, since none of them tells. "
            "Default: 10000.",
        ),
    ] = None
    most_votes: Annotated[
        int | None,
        _neighbour(min=1, help="Most votes of one party on one count. Default: 4095."),
    ] = None
    votes_per_patient: Annotated[
        int | None,
        _neighbour(min=1, help="--unit patient: most votes of one patient. Default: 1."),
    ] = None
