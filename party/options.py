"""The options of ``pate-party start`` and ``pate-party check``, which has those of a start and more."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from pate.campaign.choices import Unit
from pate.errors import PateError
from pate.formats.enrolment import Bundle
from pate.runtime.home import default_home
from pate.runtime.options import (
    CommandOptions,
    DeviceOption,
    DropOption,
    HomeOption,
    LabelOption,
    of_data,
)

_monitoring = partial(typer.Option, rich_help_panel="Monitoring")
_campaign = partial(typer.Option, rich_help_panel="The campaign, as far as it is known")
_DATA: Final = of_data(
    help="Your records: a folder of class folders of images, an .npz, IDX (MNIST) files, or "
    "CSV/Parquet with --label.",
    metavar="PATH",
)

PolicyOption = Annotated[
    Path | None,
    typer.Option(help="What this site agrees to. Default: policy.toml in --home.", metavar="FILE"),
]


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """What both commands are asked; each field is the option of that name."""

    data: Annotated[Path | None, _DATA] = None
    server: Annotated[
        str | None,
        typer.Option(
            help="Where the campaign's server is. Default: the one that you are enrolled with, "
            "else 127.0.0.1:9092.",
            metavar="HOST:PORT",
        ),
    ] = None
    name: Annotated[
        str | None, typer.Option(help="Your name on the roster. Default: the data's file name.")
    ] = None
    teachers: Annotated[
        int,
        typer.Option(
            min=1, help="Into how many disjoint shards, one teacher each, to cut the data."
        ),
    ] = 10
    votes: Annotated[
        Literal["any", "teachers", "neighbour"],
        typer.Option(
            help="What votes. teachers: as trained here. neighbour: your records themselves, once "
            "each; no teacher is trained. any: whichever the campaign asks for."
        ),
    ] = "any"
    model: Annotated[
        str,
        typer.Option(
            help="Kind of teacher. Images: linear (on fixed features), nearest (few drawn records of "
            "many classes), cnn or resnet. Tables: "
            "logistic, forest or boosting. auto: linear for images; of tables each teacher chooses "
            "among the three by cross-validation within its own shard."
        ),
    ] = "auto"
    device: DeviceOption = "auto"
    label: LabelOption = None
    group: Annotated[
        str | None,
        of_data(
            help="Table: the column that names the patient. All rows of one patient then go to one "
            "teacher, and the campaign can protect patients and not only records.",
            metavar="COLUMN",
        ),
    ] = None
    classes: Annotated[
        str | None,
        of_data(help="The class list, comma separated. Default: the classes in the data."),
    ] = None
    public: Annotated[
        Path | None,
        of_data(
            help="Your own copy of the public set; without it the server sends one.", metavar="PATH"
        ),
    ] = None
    drop: DropOption = None
    strict: Annotated[
        bool,
        of_data(
            "--strict",
            help="Refuse to start over a cell or a record that cannot be read. Without it such a cell "
            "counts as missing and such a record takes no part; both are counted on this screen only.",
        ),
    ] = False
    home: HomeOption = None
    policy: PolicyOption = None
    max_wait: Annotated[
        float | None,
        typer.Option(min=0, help="Give up when the server does not answer for so many seconds."),
    ] = None
    metrics_port: Annotated[
        int | None,
        _monitoring(
            min=0,
            max=65535,
            help="Answer /metrics (for Prometheus), /healthz and /readyz on this port; 0: any free "
            "one. Default: nowhere.",
        ),
    ] = None
    metrics_host: Annotated[
        str,
        _monitoring(
            help="Address for --metrics-port. Whoever reaches it may read all of it; nothing there "
            "is about your records."
        ),
    ] = "127.0.0.1"

    @property
    def class_list(self) -> tuple[str, ...] | None:
        """``--classes``, None if there are none."""
        return tuple(c.strip() for c in self.classes.split(",")) if self.classes else None

    @property
    def dropped(self) -> tuple[str, ...]:
        """Each ``--drop``."""
        return tuple(self.drop or ())


@dataclass(frozen=True, kw_only=True)
class StartOptions(Options):
    """What ``pate-party start`` is asked: it needs data."""

    data: Annotated[Path, _DATA] = field()


@dataclass(frozen=True, kw_only=True)
class CheckOptions(Options):
    """What ``pate-party check`` is asked; none of it is needed.

    Attributes:
        clock: this machine's.
    """

    bundle: Annotated[
        Path | None,
        _campaign(
            help="The coordinator's bundle, before it is enrolled: check its server.",
            metavar="FILE",
        ),
    ] = None
    schema: Annotated[
        str | None,
        _campaign(
            help="What the campaign's inputs are, as its coordinator tells: `images 28x28x1`, or "
            "`table age:number, sex:category`.",
            metavar="LINE",
        ),
    ] = None
    unit: Annotated[Unit | None, _campaign(help="What it protects; patient needs --group.")] = None
    counts: Annotated[
        bool,
        typer.Option(
            "--counts", help="Tell numbers of records too. They are private: do not pass them on."
        ),
    ] = False
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no server and look up no name.")
    ] = False
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds for a question to the server; reading data may take 12 times that.",
        ),
    ] = 5.0
    clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)

    @property
    def place(self) -> Path:
        """The home that ``enroll`` or ``start`` would take; else that of the only party here."""
        if self.home is not None:
            return self.home
        above = default_home("party")
        if self.name is not None:
            return above / self.name
        if self.bundle is not None:
            with contextlib.suppress(OSError, PateError):  # told by the checks
                return above / Bundle.from_json(self.bundle.read_bytes()).name
        if self.data is not None:
            return above / name_of(self.data)
        found = [path for path in above.glob("*") if path.is_dir()]
        return found[0] if len(found) == 1 else above / "party"


def name_of(data: Path) -> str:
    """Return a name made of what the data is called: its file or folder, less the endings."""
    return data.resolve().name.split(".")[0] or "party"
