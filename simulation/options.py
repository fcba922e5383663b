"""The options of ``pate simulate`` and their valid combinations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from pate.answers import CLASS, LABELS, NUMBER, answer_of
from pate.campaign.options import (
    AggregatorOption,
    AnswerOption,
    CodeOption,
    NoiseLawOption,
    RangeOption,
    ReleaseOption,
    RoundsOption,
    SumOptions,
)
from pate.errors import UsageError
from pate.runtime.options import (
    CommandOptions,
    EncoderOption,
    LabelOption,
    LabelsOption,
    NumberOption,
    TextOption,
    names_in,
    of_campaign,
    of_data,
    of_output,
    of_privacy,
)

_run = partial(typer.Option, rich_help_panel="Simulation")
OutOption = Annotated[
    Path, of_output(help="Folder for the student, figures and logs.", metavar="DIR")
]


@dataclass(frozen=True, kw_only=True)
class SimulationOptions(SumOptions, CommandOptions):
    """The options; each field is the option of that name."""

    parties: Annotated[int, of_campaign(min=1, help="How many parties to simulate.")] = 50
    teachers: Annotated[int, of_campaign(min=1, help="Teachers of each party.")] = 2
    aggregator: AggregatorOption = "confident-gnmax"
    epsilon: Annotated[
        float, of_privacy(help="Hard budget; that of `pate-server` is 2.", metavar="NUMBER")
    ] = 8.0
    delta: Annotated[float, of_privacy(help="That of `pate-server` is 1e-5.", metavar="NUMBER")] = (
        1e-4
    )
    unit: Annotated[
        Literal["record", "party"],
        of_privacy(help="A record, or all of a party."),
    ] = "record"
    noise_law: NoiseLawOption = None
    code: CodeOption = None
    answer: AnswerOption = None
    range: RangeOption = None
    release: ReleaseOption = None
    rounds: RoundsOption = None
    data: Annotated[
        Path | None, of_data(help="Labelled records to deal out. Default: digits", metavar="PATH")
    ] = None
    label: LabelOption = None
    labels: LabelsOption = None
    number: NumberOption = None
    text: TextOption = None
    encoder: EncoderOption = None
    queries: Annotated[
        int | None, of_data(help="Made-up digits for the public set. Default: 3/10 of all")
    ] = None
    processes: Annotated[
        int | None,
        _run(min=0, help="Processes for parties. Default: 0; beyond 128 parties a core each"),
    ] = None
    student: Annotated[
        bool, _run("--student/--no-student", help="Train a student on the labels.")
    ] = True
    out: OutOption = Path("simulation-output")

    @property
    def label_list(self) -> tuple[str, ...]:
        """``--labels``, each."""
        return names_in(self.labels)

    @property
    def masked(self) -> bool:
        """Whether votes are masked."""
        return (self.aggregation or ("masked" if self.parties >= 3 else "plain")) == "masked"

    @property
    def outside(self) -> int:
        """Number of additional processes for the parties; 0: threads of this one."""
        from pate.masking.graph import COMPLETE_UP_TO
        from simulation.processes import default_processes

        if self.processes is None:
            return default_processes(self.parties) if self.parties > COMPLETE_UP_TO else 0
        return self.processes

    def __post_init__(self) -> None:
        if self.aggregator == "interactive-gnmax" and not self.student:
            raise UsageError("interactive-gnmax asks a student: leave --no-student out")
        if self.queries is not None and self.queries < 1:
            raise UsageError(f"--queries must be at least 1, got {self.queries}")
        if self.encoder is not None and self.data is None:
            raise UsageError("--encoder embeds the records of --data: name them")
        if self.queries is not None and self.data is not None:
            raise UsageError("--queries is for made-up digits: of --data three tenths are public")
        for option, column, kind in (
            ("--labels", self.labels, LABELS),
            ("--number", self.number, NUMBER),
        ):
            if (column is not None) != (answer_of(self.answer or CLASS).permission == kind):
                raise UsageError(
                    f"--answer {kind}{'-T' if kind == LABELS else ''} needs {option}, and nothing "
                    "else has it"
                )
            if column is not None and self.data is None:
                raise UsageError(f"{option} is of --data: the digits have a class each")
