"""The options of a campaign, for every command that creates, simulates or plans one.

A help text is one line; the site makes its page of options from them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Literal

import typer

from pate.accounting import Unit
from pate.campaign.choices import Aggregation, Aggregator, NoiseSource, Parameters, Publish, exact
from pate.noise import NoiseLawName
from pate.runtime.options import of_campaign, of_privacy

#: The mechanisms that have teachers.
OfTeachers = Literal["lnmax", "gnmax", "confident-gnmax", "interactive-gnmax"]

_masked = partial(typer.Option, rich_help_panel="Masked sums")
_neighbour = partial(typer.Option, rich_help_panel="Neighbour votes")
_interactive = partial(typer.Option, rich_help_panel="Interactive-GNMax")
_gated = partial(typer.Option, rich_help_panel="Gated release")
_settings = partial(typer.Option, rich_help_panel="Mechanism", metavar="NUMBER")

CampaignOption = Annotated[
    str, of_campaign("--campaign", help="Name of the campaign.", metavar="NAME")
]
AggregatorOption = Annotated[Aggregator, of_campaign(help="Mechanism that answers queries.")]
EpsilonOption = Annotated[
    float, of_privacy(help="Hard budget, towards the public.", metavar="NUMBER")
]
DeltaOption = Annotated[float, of_privacy(help="Well below 1/records.", metavar="NUMBER")]
UnitOption = Annotated[Unit, of_privacy(help="Who or what is protected.")]
FirstRoundShareOption = Annotated[
    str, _interactive(help="Share of the budget for round 1.", metavar="SHARE")
]
NoiseLawOption = Annotated[
    NoiseLawName | None, _neighbour(help="Geometric needs no delta. Default: the smaller noise")
]
CodeOption = Annotated[
    str | None,
    _neighbour(
        help="nearest, dense, or dense-K in K directions. Default: by the set",
        metavar="CODE",
    ),
]
AnswerOption = Annotated[
    str | None,
    of_campaign(
        help="class, labels-T, ordered, number, residual, residual-labels",
        metavar="ANSWER",
    ),
]
ReleaseOption = Annotated[
    str | None,
    of_campaign(
        help="labels (default), or at once counts, balanced, arrays, axes-K: gnmax",
        metavar="WHAT",
    ),
]
RoundsOption = Annotated[
    int | None,
    of_campaign(
        min=1,
        help="Of labels, default 1, interactive 2; dense, after class counts: default 4",
    ),
]
RangeOption = Annotated[
    str | None,
    _neighbour(
        help="With --answer number: its public ends, or points, as 0,2,5,14",
        metavar="LOW,HIGH",
    ),
]
RarestOption = Annotated[
    float | None,
    of_campaign(help="Your guess at the share of the rarest class, as 0.05.", metavar="SHARE"),
]
NoiseOption = Annotated[
    NoiseSource | None, _masked(help="By server or parties. Default: by who votes")
]


@dataclass(frozen=True, kw_only=True)
class QuorumOptions:
    """The least numbers of parties in a sum. Each field, here and below, is the option of that name."""

    min_parties: Annotated[
        int | None,
        _masked(min=1, help="Stop with fewer parties. Default: about two thirds"),
    ] = None
    colluders: Annotated[
        int | None, _masked(min=0, help="Colluders to tolerate. Default: what fits")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SumOptions(QuorumOptions):
    """How votes are summed."""

    aggregation: Annotated[
        Aggregation | None, _masked(help="Default: masked (sums only) from 3 parties on")
    ] = None
    noise: NoiseOption = None


@dataclass(frozen=True, kw_only=True)
class ParameterOptions:
    """The parameters of a mechanism, exact numbers such as 40, 2.5 or 1/3."""

    threshold: Annotated[
        str | None, _settings(help="Votes (neighbour: lead) that the top class needs.")
    ] = None
    sigma1: Annotated[
        str | None, _settings(help="Noise on the threshold test: standard deviation.")
    ] = None
    sigma2: Annotated[
        str | None,
        _settings("--sigma2", "--sigma", help="Noise on each count: standard deviation."),
    ] = None
    scale: Annotated[
        str | None, _settings(help="Scale of Laplace or geometric noise on each count, in votes.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class MechanismOptions(SumOptions, ParameterOptions):
    """A campaign's name, mechanism, budget and parties."""

    campaign: CampaignOption = "campaign"
    aggregator: AggregatorOption = "confident-gnmax"
    parties: Annotated[
        str,
        of_campaign(help="Wait for how many, or for these names: a,b,c.", metavar="N|NAMES"),
    ] = "3"
    classes: Annotated[
        str | None,
        of_campaign(help="Class names a,b,c. Default: those of the parties", metavar="NAMES"),
    ] = None
    epsilon: EpsilonOption = 2.0
    delta: Annotated[
        float | None,
        of_privacy(help="Well below 1/records. Default: 1e-5; gated 1e-6", metavar="NUMBER"),
    ] = None
    unit: UnitOption = "record"
    rounds: RoundsOption = None
    max_queries: Annotated[
        int | None, of_campaign(min=1, help="Ask at most this many queries, whatever the budget.")
    ] = None
    publish: Annotated[Publish, of_privacy(help="How labels are released.")] = "capped"
    first_round_share: FirstRoundShareOption = "1/2"
    interactive_threshold: Annotated[
        str | None,
        _interactive(help="Lead of the votes over the student's belief.", metavar="N"),
    ] = None
    confidence: Annotated[
        str | None,
        _interactive(help="Reinforce labels at this student's probability.", metavar="NUMBER"),
    ] = None
    vote_proofs: Annotated[
        bool, _masked("--vote-proofs", help="Parties prove that their votes are well-formed.")
    ] = False
    release: ReleaseOption = None
    gate_order: Annotated[
        float | None, _gated(help="Renyi order; `pate account --gate` proposes one.")
    ] = None
    gate_share: Annotated[float, _gated(help="Share of the cost that the test may take.")] = 0.15
    representatives: Annotated[
        int | None,
        _neighbour(min=1, help="Public inputs to vote at. Default: from the budget"),
    ] = None
    expected_records: Annotated[
        int | None, of_campaign(min=1, help="Your guess at all parties' records. Default: 10000")
    ] = None
    code: CodeOption = None
    answer: AnswerOption = None
    range: RangeOption = None
    most_votes: Annotated[
        int | None, _neighbour(min=1, help="Most votes of a party on one count. Default: by code")
    ] = None
    votes_per_patient: Annotated[
        int | None, _neighbour(min=1, help="Most votes of one patient. Default: 1")
    ] = None
    noise_law: NoiseLawOption = None
    series: Annotated[
        str | None,
        _neighbour(help="Series in which each unit votes in one campaign only.", metavar="NAME"),
    ] = None

    def parameters(self) -> Parameters:
        """Return the stated parameters, checked without mathematics: a command refuses them at once."""
        given = {field.name: getattr(self, field.name) for field in fields(Parameters)}
        found = Parameters(
            **{name: exact(name, text) for name, text in given.items() if text is not None}
        )
        found.check(self.aggregator, distributed=self.noise == "distributed")
        return found
