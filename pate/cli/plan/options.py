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
    UnitOption,
)
from pate.runtime.options import CommandOptions

_assumed = partial(typer.Option, rich_help_panel="Votes: assumed, or of a public proxy")
_wanted = partial(typer.Option, rich_help_panel="Search for the best settings")


@dataclass(frozen=True, kw_only=True)
class PlanOptions(ParameterOptions, QuorumOptions, CommandOptions):
    """What was typed. Settings that are left out are those that a server would choose."""

    mechanism: Annotated[
        OfTeachers,
        typer.Option(
            help="Of interactive-gnmax the first round is planned. For neighbour votes, which have no "
            "teachers: `pate plan-neighbour`."
        ),
    ] = "confident-gnmax"
    teachers: Annotated[
        int | None,
        typer.Option(min=1, help="M, teachers of all parties together. Default: the proxy's."),
    ] = None
    parties: Annotated[int | None, typer.Option(min=1, help="How many parties.")] = None
    queries: Annotated[
        int, typer.Option(min=1, help="Unlabelled public queries that there are.")
    ] = 1000
    delta: DeltaOption = 1e-5
    unit: UnitOption = "record"
    votes_per_unit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Party: most teachers that one of them has. Default: as if --parties had equally many.",
        ),
    ] = None
    png: Annotated[
        Path | None,
        typer.Option(help="Draw what other budgets and accuracies would give.", metavar="FILE"),
    ] = None
    noise: NoiseOption = None
    first_round_share: FirstRoundShareOption = "1/2"
    epsilon: Annotated[
        float | None,
        _wanted(help="A hard budget, and a search for the settings that make most of it."),
    ] = None
    at_least: Annotated[
        int | None,
        _wanted(min=1, help="Search for the most accurate labels, at least so many."),
    ] = None
    least_accuracy: Annotated[
        float | None,
        _wanted(
            help="Search for the most right labels at such an accuracy. Default: nine tenths of "
            "what the votes give without noise."
        ),
    ] = None
    classes: Annotated[
        int | None, _assumed(min=2, help="Number of classes. Default: 10, or the proxy's.")
    ] = None
    agreement: Annotated[
        float | None, _assumed(help="Accuracy of one teacher on its own. Default: 0.85.")
    ] = None
    spread: Annotated[
        float | None,
        _assumed(
            help="Standard deviation of that over queries: hard ones are hard for all teachers. "
            "Default: half of the largest there can be."
        ),
    ] = None
    rival: Annotated[
        float | None,
        _assumed(
            help="Share of a query's wrong votes on one class: 0 spreads them evenly, 1 puts all on "
            "it. Default: 0.5."
        ),
    ] = None
    proxy_votes: Annotated[
        Path | None,
        _assumed(
            help="Votes on a public proxy instead of assumptions: a .npy file of (queries, classes) "
            "counts. They must be public: tuning on private votes is itself a leak.",
            metavar="FILE",
        ),
    ] = None
    proxy_labels: Annotated[
        Path | None,
        _assumed(help="Its right labels: a .npy file of (queries,) indices.", metavar="FILE"),
    ] = None
