"""The options of ``pate-student`` and their valid combinations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pate.errors import UsageError
from pate.runtime.options import (
    CommandOptions,
    DeviceOption,
    DicomLabelsOption,
    DropOption,
    EncoderOption,
    LabelOption,
    TextOption,
    WindowOption,
    of_data,
    of_network,
    of_output,
)

_training = partial(typer.Option, rich_help_panel="Training")

GroupColumnOption = Annotated[
    str | None, of_data(metavar="COLUMN", help="Compare these groups of the test data.")
]
PatientColumnOption = Annotated[
    str | None, of_data(metavar="COLUMN", help="Names the patient; intervals count patients.")
]
_decision = partial(typer.Option, rich_help_panel="Two classes")
PositiveOption = Annotated[
    str | None, _decision(metavar="CLASS", help="The class to find. Default: the second.")
]
ThresholdOption = Annotated[
    float | None,
    _decision(metavar="SHARE", help="Probability that is enough to predict that class."),
]
SensitivityOption = Annotated[
    float | None,
    _decision(metavar="SHARE", help="Choose the threshold here, for this sensitivity."),
]
ModelFolder = Annotated[
    Path, of_data("--model", metavar="DIR", help="Folder that `train --out` wrote.")
]
DataPath = Annotated[
    Path, of_data("--data", metavar="PATH", help="Image folder, .npz, IDX, CSV or Parquet.")
]


@dataclass(frozen=True, kw_only=True)
class TrainOptions(CommandOptions):
    """The options of ``pate-student train``; each field is the option of that name."""

    public: Annotated[Path, of_data(metavar="PATH", help="The same public set as the server's.")]
    out: Annotated[
        Path, of_output(metavar="DIR", help="New folder to publish the student into.")
    ] = Path("student")
    force: Annotated[
        bool, of_output("--force", help="Replace the student that is published in --out.")
    ] = False
    server: Annotated[
        str | None,
        of_network(metavar="HOST:PORT", help="Its student service. Default: 127.0.0.1:9093"),
    ] = None
    labels: Annotated[
        list[Path] | None,
        of_data(metavar="FILE", help="Labels of `pate-server export`; of a series, oldest first."),
    ] = None
    half_life: Annotated[
        float | None,
        _training(metavar="N", help="Several --labels: votes count half after N campaigns."),
    ] = None
    model: Annotated[
        str,
        _training(
            metavar="KIND", help="auto; propagation, vat, pate-g; selftraining, smoothing; head."
        ),
    ] = "auto"
    device: DeviceOption = "auto"
    seed: Annotated[int, _training(min=0, help="Seed of the training.")] = 0
    steps: Annotated[
        int | None, _training(min=1, help="Steps, or trees. Default: by the inputs")
    ] = None
    seconds: Annotated[
        float | None,
        _training(min=1.0, metavar="SECONDS", help="Stop each training after this long."),
    ] = None
    test: Annotated[
        Path | None, of_data(metavar="PATH", help="Labelled public data to measure the student on.")
    ] = None
    label: LabelOption = None
    group_column: GroupColumnOption = None
    patient_column: PatientColumnOption = None
    text: TextOption = None
    dicom_labels: DicomLabelsOption = None
    drop: DropOption = None
    window: WindowOption = None
    encoder: EncoderOption = None
    ca: Annotated[
        Path | None, of_network(metavar="FILE", help="PEM certificate of --server. Default: no TLS")
    ] = None
    token_file: Annotated[
        Path | None,
        of_network(metavar="FILE", help="The server's student.token. Default: this machine's"),
    ] = None
    max_wait: Annotated[
        float,
        of_network(min=0.0, metavar="SECONDS", help="Give up after this long without an answer."),
    ] = 600.0

    def __post_init__(self) -> None:
        if self.labels and self.server is not None:
            raise UsageError("give either --server HOST:PORT or --labels FILE")
        if self.half_life is not None and not self.labels:
            raise UsageError("--half-life is for --labels of several campaigns of a series")
        if self.labels and self.ca is not None:
            raise UsageError("--ca is about a connection, and --labels needs none")
        if self.labels and self.token_file is not None:
            raise UsageError("--token-file is about a connection, and --labels needs none")
