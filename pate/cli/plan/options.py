"""The options of ``pate plan``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from pate.campaign.options import (
    AggregatorOption,
    AnswerOption,
    CodeOption,
    DeltaOption,
    FirstRoundShareOption,
    NoiseLawOption,
    NoiseOption,
    ParameterOptions,
    QuorumOptions,
    RangeOption,
    RarestOption,
    ReleaseOption,
    UnitOption,
)
from pate.errors import UsageError
from pate.runtime.options import CommandOptions, of_campaign, of_data, of_privacy

_assumed = partial(typer.Option, rich_help_panel="Votes: assumed, or of a public proxy")
_wanted = partial(typer.Option, rich_help_panel="Search", metavar="NUMBER")
_neighbour = partial(typer.Option, rich_help_panel="Neighbour votes")

#: What only plans of teachers have, and only plans of records that vote.
OF_TEACHERS: Final = (
    "teachers", "votes_per_unit", "at_least", "least_accuracy", "release",
    "rarest", "agreement", "spread", "rival", "proxy_votes", "proxy_labels",
)  # fmt: skip
OF_RECORDS: Final = (
    "public", "expected_records", "purity", "representatives", "votes_per_patient", "noise_law",
    "code", "answer", "range",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PlanOptions(ParameterOptions, QuorumOptions, CommandOptions):
    """The options. Omitted settings are those that a server would choose."""

    aggregator: AggregatorOption = "confident-gnmax"
    teachers: Annotated[
        int | None,
        of_campaign(min=1, help="Teachers of all parties. Default: the proxy's"),
    ] = None
    parties: Annotated[int | None, of_campaign(min=1, help="How many parties.")] = None
    queries: Annotated[
        int | None, of_campaign(min=1, help="Size of the public set. Default: 1000; neighbour: any")
    ] = None
    delta: DeltaOption = 1e-5
    unit: UnitOption = "record"
    votes_per_unit: Annotated[
        int | None,
        of_privacy(min=1, help="--unit party: teachers of the largest party."),
    ] = None
    noise: NoiseOption = None
    first_round_share: FirstRoundShareOption = "1/2"
    epsilon: Annotated[
        float | None,
        _wanted(help="Find the best settings for this hard budget. neighbour: default 2"),
    ] = None
    at_least: Annotated[
        int | None,
        _wanted(min=1, help="Find the most accurate labels, at least this many."),
    ] = None
    least_accuracy: Annotated[
        float | None,
        _wanted(help="Find the most right labels at this accuracy."),
    ] = None
    classes: Annotated[
        int | None, _assumed(min=2, help="Number of classes. Default: 10, or the proxy's")
    ] = None
    rarest: RarestOption = None
    release: ReleaseOption = None
    agreement: Annotated[
        float | None, _assumed(help="Accuracy of one teacher. Default: 0.85", metavar="SHARE")
    ] = None
    spread: Annotated[
        float | None,
        _assumed(help="Its standard deviation over queries.", metavar="NUMBER"),
    ] = None
    rival: Annotated[
        float | None,
        _assumed(help="Share of wrong votes on one class. Default: 0.5", metavar="SHARE"),
    ] = None
    proxy_votes: Annotated[
        Path | None,
        _assumed(help="Votes on a PUBLIC proxy, .npy, instead.", metavar="FILE"),
    ] = None
    proxy_labels: Annotated[
        Path | None,
        _assumed(help="Its right labels, .npy.", metavar="FILE"),
    ] = None
    public: Annotated[
        Path | None,
        of_data(help="neighbour: the public set, for as many places as it has.", metavar="PATH"),
    ] = None
    expected_records: Annotated[
        int | None, _neighbour(min=1, help="Your guess at all parties' records. Default: 10000")
    ] = None
    purity: Annotated[
        float | None,
        _neighbour(help="Share of near records of one class. Default: 0.9", metavar="SHARE"),
    ] = None
    representatives: Annotated[
        int | None, _neighbour(min=1, help="Public inputs to vote at. Default: as the server")
    ] = None
    votes_per_patient: Annotated[
        int | None, _neighbour(min=1, help="Most votes of one patient. Default: 1")
    ] = None
    noise_law: NoiseLawOption = None
    code: CodeOption = None
    answer: AnswerOption = None
    range: RangeOption = None

    def __post_init__(self) -> None:
        records = self.aggregator == "neighbour"
        for name in OF_TEACHERS if records else OF_RECORDS:
            if name == "expected_records" and self.release is not None:
                continue  # arrays have as many directions as records allow
            if getattr(self, name) is not None:
                whose = "teachers" if records else "--aggregator neighbour"
                raise UsageError(f"--{name.replace('_', '-')} is for {whose}: leave it out")
