"""The options of ``pate plan``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pate.campaign.options import (
    DeltaOption,
    FirstRoundShareOption,
    NoiseOption,
    OfTeachers,
    ParameterOptions,
    QuorumOptions,
    RarestOption,
    UnitOption,
)
from pate.runtime.options import CommandOptions, of_campaign, of_output, of_privacy

_assumed = partial(typer.Option, rich_help_panel="Votes: assumed, or of a public proxy")
_wanted = partial(typer.Option, rich_help_panel="Search", metavar="NUMBER")


@dataclass(frozen=True, kw_only=True)
class PlanOptions(ParameterOptions, QuorumOptions, CommandOptions):
    """The options. Omitted settings are those that a server would choose."""

    mechanism: Annotated[
        OfTeachers,
        of_campaign(help="Mechanism with teachers."),
    ] = "confident-gnmax"
    teachers: Annotated[
        int | None,
        of_campaign(min=1, help="Teachers of all parties. Default: the proxy's"),
    ] = None
    parties: Annotated[int | None, of_campaign(min=1, help="How many parties.")] = None
    queries: Annotated[int, of_campaign(min=1, help="Size of the public set.")] = 1000
    delta: DeltaOption = 1e-5
    unit: UnitOption = "record"
    votes_per_unit: Annotated[
        int | None,
        of_privacy(min=1, help="--unit party: teachers of the largest party."),
    ] = None
    png: Annotated[
        Path | None,
        of_output(help="Draw what other budgets and accuracies give.", metavar="FILE"),
    ] = None
    noise: NoiseOption = None
    first_round_share: FirstRoundShareOption = "1/2"
    epsilon: Annotated[
        float | None,
        _wanted(help="Find the best settings for this hard budget."),
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
