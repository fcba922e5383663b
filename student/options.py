"""The options of ``pate-student``, and which of them go together."""

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
    DropOption,
    LabelOption,
    WindowOption,
    of_data,
)

_labels = partial(typer.Option, rich_help_panel="Labels: of a server, or of a file")
_training = partial(typer.Option, rich_help_panel="Training")

GroupColumnOption = Annotated[
    str | None,
    of_data(
        metavar="COLUMN",
        help="Column of the labelled data whose groups are compared, such as sex; for an .npz the "
        "array of groups.",
    ),
]
ModelFolder = Annotated[
    Path,
    typer.Option("--model", metavar="DIR", help="Folder that `train --out` wrote."),
]
DataPath = Annotated[
    Path,
    of_data(
        "--data",
        metavar="PATH",
        help="Images in a folder, .npz or IDX files; or a CSV or Parquet table.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class TrainOptions(CommandOptions):
    """What ``pate-student train`` is asked; each field is the option of that name.

    Raises:
        UsageError: for options that make no sense together.
    """

    public: Annotated[
        Path,
        of_data(
            metavar="PATH",
            help="The public set: the same files as the server has. Its labels, if it has any, are "
            "not read.",
        ),
    ]
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder to publish the student into."),
    ]
    server: Annotated[
        str | None,
        _labels(metavar="HOST:PORT", help="Student service of the server."),
    ] = None
    labels: Annotated[
        Path | None,
        _labels(
            metavar="FILE",
            help="Labels from `pate-server export`, instead of --server.",
        ),
    ] = None
    model: Annotated[
        str,
        _training(
            help="auto; propagation, fixmatch, vat or pate-g (images); selftraining or smoothing "
            "(tables)."
        ),
    ] = "auto"
    device: DeviceOption = "auto"
    seed: Annotated[int, _training(min=0, help="Seed of the training.")] = 0
    steps: Annotated[
        int | None,
        _training(
            min=1,
            help="Optimisation steps (images) or trees (tables). Default: what suits the inputs.",
        ),
    ] = None
    seconds: Annotated[
        float | None,
        _training(
            min=1.0,
            help="Stop each training after so long. What comes out then depends on the machine.",
        ),
    ] = None
    test: Annotated[
        Path | None,
        of_data(
            metavar="PATH",
            help="Labelled public data to measure the student on; not learnt from.",
        ),
    ] = None
    label: LabelOption = None
    group_column: GroupColumnOption = None
    drop: DropOption = None
    window: WindowOption = None
    ca: Annotated[
        Path | None,
        _labels(
            metavar="FILE",
            help="PEM file: the certificate of whatever ends TLS there, or an authority's without "
            "constraints on addresses (a campaign's own has some, which gRPC does not read). Without "
            "it the connection is not encrypted.",
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        _labels(
            metavar="FILE",
            help="The server's student.token, or a copy of it. Predictions are taken from a student "
            "with this token only. Default: the one in your state directory, for a server on this "
            "machine.",
        ),
    ] = None
    max_wait: Annotated[
        float,
        _labels(min=0.0, help="Give up after so many seconds without an answer."),
    ] = 600.0

    def __post_init__(self) -> None:
        if (self.server is None) == (self.labels is None):
            raise UsageError("give either --server HOST:PORT or --labels FILE")
        if self.labels is not None and self.ca is not None:
            raise UsageError("--ca is about a connection, and --labels needs none")
        if self.labels is not None and self.token_file is not None:
            raise UsageError("--token-file is about a connection, and --labels needs none")
