"""The options of ``pate-party start``, and of ``pate-party check``, which adds more."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from pate.accounting import Unit
from pate.data.cells import Decimal, Reading, Thousands, clean_name
from pate.errors import PateError, UsageError
from pate.runtime.home import default_home
from pate.runtime.options import (
    CommandOptions,
    DicomLabelsOption,
    DropOption,
    EncoderOption,
    HomeOption,
    LabelOption,
    LabelsOption,
    NumberOption,
    TextOption,
    names_in,
    of_campaign,
    of_data,
    of_network,
    of_output,
    of_privacy,
    of_teachers,
)

_monitoring = partial(typer.Option, rich_help_panel="Monitoring")
_DATA: Final = of_data(help="Records: images, .npz, IDX, a table, texts or DICOM.", metavar="PATH")

DecimalOption = Annotated[
    Decimal,
    of_data(help="Table: before decimals stands a point (12.5) or a comma (12,5)."),
]
ThousandsOption = Annotated[
    Thousands | None,
    of_data(help="Table: what stands between thousands (1,250); none: nothing."),
]
MissingOption = Annotated[
    list[str] | None,
    of_data(
        help="A word for no value, in any column, such as 999; repeat for more.",
        metavar="WORD",
    ),
]
PolicyOption = Annotated[
    Path | None,
    of_privacy(help="Your terms. Default: policy.toml in --home", metavar="FILE"),
]


@dataclass(frozen=True, kw_only=True)
class OwnOptions(CommandOptions):
    """The options about this party and its data; each field is the option of that name."""

    data: Annotated[Path | None, _DATA] = None
    name: Annotated[
        str | None,
        of_campaign(help="Your name on the roster. Default: that of --data", metavar="NAME"),
    ] = None
    teachers: Annotated[
        int | None,
        of_teachers(min=1, help="Teachers, each of its own shard. Default: as the campaign wants"),
    ] = None
    votes: Annotated[
        Literal["any", "teachers", "neighbour"],
        of_teachers(help="Who votes; any: as asked."),
    ] = "any"
    model: Annotated[
        str,
        of_teachers(
            help="linear, nearest, cnn; tables: prior, logistic, forest, boosting.",
            metavar="KIND",
        ),
    ] = "auto"
    device: Annotated[
        Literal["auto", "cpu", "cuda"], of_teachers(help="Where networks are trained.")
    ] = "auto"
    label: LabelOption = None
    labels: LabelsOption = None
    number: NumberOption = None
    text: TextOption = None
    dicom_labels: DicomLabelsOption = None
    group: Annotated[
        str | None,
        of_data(help="Table: the column that names the patient.", metavar="COLUMN"),
    ] = None
    classes: Annotated[
        str | None,
        of_data(help="Class names a,b,c. Default: those in the data", metavar="NAMES"),
    ] = None
    public: Annotated[
        Path | None,
        of_data(help="Your own public set. Default: the server sends it", metavar="PATH"),
    ] = None
    drop: DropOption = None
    encoder: EncoderOption = None
    decimal: DecimalOption = "point"
    thousands: ThousandsOption = None
    missing: MissingOption = None
    strict: Annotated[
        bool,
        of_data("--strict", help="Refuse cells and records that cannot be read."),
    ] = False
    home: HomeOption = None
    policy: PolicyOption = None

    @property
    def class_list(self) -> tuple[str, ...] | None:
        """``--classes``, None if there are none."""
        return tuple(map(clean_name, self.classes.split(","))) if self.classes else None

    @property
    def label_list(self) -> tuple[str, ...]:
        """``--labels``, each."""
        return tuple(map(clean_name, names_in(self.labels)))

    @property
    def only_records(self) -> bool:
        """Whether only records vote: if so wanted, or as teachers learn no number."""
        if self.number is not None and self.votes == "teachers":
            raise UsageError(
                "teachers learn a class or several labels, no number: --number leaves --votes out"
            )
        return self.number is not None or self.votes == "neighbour"

    def require_sense(self) -> None:
        """Check what needs no campaign, before a command imports what is slow."""
        from pate.data.locate import require_there

        if self.data is not None:
            require_there(self.data)
        _ = self.reading, self.only_records

    @property
    def trained_later(self) -> bool:
        """Whether teachers are trained only once a campaign asks for them.

        Several labels mostly vote themselves, and take a model a label.
        """
        return bool(self.labels) and self.votes == "any"

    @property
    def reading(self) -> Reading:
        """The format of a table's cells; errors as of :meth:`Reading.of`."""
        return Reading.of(self.decimal, self.missing, self.thousands)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Each ``--drop``."""
        return tuple(self.drop or ())


@dataclass(frozen=True, kw_only=True)
class Options(OwnOptions):
    """The same, with those of a connection."""

    server: Annotated[
        str | None,
        of_network(
            help="The server. Default: as enrolled, else 127.0.0.1:9092", metavar="HOST:PORT"
        ),
    ] = None
    max_wait: Annotated[
        float | None,
        of_network(min=0, help="Give up after this long without the server.", metavar="SECONDS"),
    ] = None
    page: Annotated[
        bool,
        _monitoring("--page", help="Show this party in a browser, and answer there."),
    ] = False
    page_port: Annotated[
        int | None,
        _monitoring(
            min=0,
            max=65535,
            help="Port of the page; 0: any. Default: 9096, or a free one",
            metavar="PORT",
        ),
    ] = None
    metrics_port: Annotated[
        int | None,
        _monitoring(
            min=0,
            max=65535,
            help="Serve /metrics here; 0: any. Default: nowhere",
            metavar="PORT",
        ),
    ] = None
    metrics_host: Annotated[
        str,
        _monitoring(help="Its address.", metavar="ADDRESS"),
    ] = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class StartOptions(Options):
    """The options of ``pate-party start``; data is required."""

    data: Annotated[Path, _DATA] = field()


@dataclass(frozen=True, kw_only=True)
class EnvelopeOptions(OwnOptions):
    """The options of ``pate-party answer`` and ``train``; data is required."""

    file: Annotated[
        Path, typer.Argument(help="An envelope that the coordinator sent.", metavar="FILE")
    ] = field()
    data: Annotated[Path, _DATA] = field()


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(EnvelopeOptions):
    """The options of ``pate-party answer``."""

    out: Annotated[
        Path | None,
        of_output(help="Answer: a file or folder. Default: this folder", metavar="PATH"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class WatchOptions(OwnOptions):
    """The options of ``pate-party watch``; data is required."""

    inbox: Annotated[
        Path, typer.Argument(help="Folder where envelopes arrive.", metavar="INBOX")
    ] = field()
    outbox: Annotated[
        Path, typer.Argument(help="Folder that answers are written to.", metavar="OUTBOX")
    ] = field()
    data: Annotated[Path, _DATA] = field()
    once: Annotated[bool, of_output("--once", help="Answer what is there, and end.")] = False
    every: Annotated[
        float, of_output(min=0.1, help="How often to look into INBOX.", metavar="SECONDS")
    ] = 10.0


@dataclass(frozen=True, kw_only=True)
class CheckOptions(Options):
    """The options of ``pate-party check``; all are optional. ``clock`` is this machine's."""

    bundle: Annotated[
        Path | None,
        of_campaign(help="The coordinator's bundle: check its server.", metavar="FILE"),
    ] = None
    schema: Annotated[
        str | None,
        of_campaign(
            help="`images 28x28x1`, `table age:number`, or a schema's file.", metavar="LINE"
        ),
    ] = None
    unit: Annotated[Unit | None, of_privacy(help="What it protects; patient needs --group.")] = None
    counts: Annotated[
        bool,
        of_output("--counts", help="Print numbers of records, too; they are private."),
    ] = False
    offline: Annotated[bool, of_network("--offline", help="Ask no server and look up no name.")] = (
        False
    )
    timeout: Annotated[
        float,
        of_network(min=0.1, help="For one check; data: 12 times that.", metavar="SECONDS"),
    ] = 5.0
    clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)

    @property
    def place(self) -> Path:
        """The home that ``enroll`` or ``start`` would use; else that of the only party on this machine."""
        if self.home is not None:
            return self.home
        above = default_home("party")
        if self.name is not None:
            return above / self.name
        if self.bundle is not None:
            from pate.formats.enrolment import Bundle  # its cryptography is slow to import

            with contextlib.suppress(OSError, PateError):  # reported by the checks
                return above / Bundle.from_json(self.bundle.read_bytes()).name
        if self.data is not None:
            return above / name_of(self.data)
        found = [path for path in above.glob("*") if path.is_dir()]
        return found[0] if len(found) == 1 else above / "party"


def name_of(data: Path) -> str:
    """Return a name derived from the data's file or folder name, without suffixes."""
    return data.resolve().name.split(".")[0] or "party"
