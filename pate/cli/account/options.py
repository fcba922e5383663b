"""The options of ``pate account``, and which of them go together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import click
import typer

from pate.accounting import Adjacency, BoundName
from pate.campaign.choices import check_delta
from pate.campaign.options import DeltaOption, OfTeachers, UnitOption
from pate.errors import UsageError
from pate.runtime.options import CommandOptions, of_campaign, of_data, of_privacy

#: Noise, in votes: less is none, and more leaves no vote.
_LEAST: Final = 1e-9
_MOST: Final = 1e9
_settings = partial(typer.Option, rich_help_panel="Mechanism", metavar="NUMBER")


@dataclass(frozen=True, kw_only=True)
class AccountOptions(CommandOptions):
    """The options; each field is the option of that name."""

    votes: Annotated[Path, of_data(help="Votes: .npy, (queries, classes) counts.", metavar="FILE")]
    mechanism: Annotated[OfTeachers, of_campaign(help="Which gave the answers.")] = (
        "confident-gnmax"
    )
    queries: Annotated[
        int | None, of_data(min=1, help="Rows to use, from the top. Default: all")
    ] = None
    delta: DeltaOption = 1e-5
    bounds: Annotated[
        list[str] | None,
        of_privacy(
            click_type=click.Choice(get_args(BoundName)),
            help="Default: all but every-neighbour (PUBLIC votes)",
        ),
    ] = None
    unit: UnitOption = "record"
    votes_per_unit: Annotated[int, of_privacy(min=1, help="Party: its number of teachers.")] = 1
    adjacency: Annotated[
        Adjacency,
        of_privacy(help="A neighbour's votes."),
    ] = "change"
    noise: Annotated[
        Literal["continuous", "discrete"],
        of_privacy(help="As in papers or campaigns."),
    ] = "continuous"
    gate: Annotated[
        bool,
        of_privacy("--gate", help="PUBLIC votes: at what epsilon a gate opens."),
    ] = False
    predictions: Annotated[
        Path | None,
        of_data(help="Interactive: the student's probabilities, .npy.", metavar="FILE"),
    ] = None
    threshold: Annotated[float | None, _settings(help="Votes that the top class needs, about.")] = (
        None
    )
    sigma1: Annotated[float | None, _settings(help="Noise of the threshold test, in votes.")] = None
    sigma2: Annotated[
        float | None, _settings("--sigma2", "--sigma", help="Noise on each count, in votes.")
    ] = None
    gamma: Annotated[
        float | None, _settings(help="LNMax: 1/scale of the Laplace noise, per vote.")
    ] = None
    scale: Annotated[float | None, _settings(help="LNMax: 1/gamma, in votes.")] = None

    def __post_init__(self) -> None:
        if self.unit != "party" and self.votes_per_unit != 1:
            raise UsageError(
                f"a {self.unit} is in one shard of one teacher: --votes-per-unit is for --unit party"
            )
        if self.adjacency == "remove" and (self.gate or self.mechanism == "interactive-gnmax"):
            # A gate counts changed votes; and whole expected votes, which follow from the
            # number of those that vote, can move by more than the votes that are removed.
            raise UsageError("--adjacency remove is for neither interactive-gnmax nor --gate")
        check_delta(self.delta, records_vote=False)
        for name in ("sigma1", "sigma2", "gamma", "scale"):
            value = getattr(self, name)
            if value is not None and not _LEAST <= value <= _MOST:
                raise UsageError(f"--{name} must lie in [{_LEAST:g}, {_MOST:g}], got {value}")
        if self.threshold is not None and not abs(self.threshold) <= _MOST:
            raise UsageError(f"--threshold must be a number of votes, got {self.threshold}")
        if self.gamma is not None and self.scale is not None:
            raise UsageError("--gamma is 1 / --scale: give one of them")

    @property
    def laplace_scale(self) -> float | None:
        """LNMax's scale, given as --scale or by its inverse."""
        return self.scale if self.gamma is None else 1 / self.gamma

    @property
    def discrete(self) -> bool:
        """Whether the noise is discrete, as campaigns draw it."""
        return self.noise == "discrete"
