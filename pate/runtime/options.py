"""Options of a command as one frozen value: ``--help`` lists its fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import partial
from inspect import Parameter, Signature, cleandoc
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_origin, get_type_hints

import click
import typer

from pate.runtime.config import load, write_given
from pate.runtime.home import default_home

T = TypeVar("T")


#: Options by topic, each with a help text of one line.
of_campaign = partial(typer.Option, rich_help_panel="Campaign")
of_data = partial(typer.Option, rich_help_panel="Data")
of_network = partial(typer.Option, rich_help_panel="Network")
of_output = partial(typer.Option, rich_help_panel="Output")
of_privacy = partial(typer.Option, rich_help_panel="Privacy")
of_storage = partial(typer.Option, rich_help_panel="Storage")
of_teachers = partial(typer.Option, rich_help_panel="Teachers")

_STATE: Final = str(default_home("")).replace(str(Path.home()), "~")

#: ``--config FILE``: a TOML file whose keys are the long options of the command.
ConfigOption = Annotated[
    Path | None,
    of_output(
        "--config",
        help="TOML file of options; typed ones win.",
        is_eager=True,
        callback=load,
        metavar="FILE",
    ),
]

#: ``--write-config FILE``: what is typed, and every other option in a comment.
WriteConfigOption = Annotated[
    Path | None,
    of_output(
        "--write-config", help="Write the options as a new TOML file, and end.", metavar="FILE"
    ),
]

#: ``--json``: the result as one JSON object on the standard output.
JsonOption = Annotated[
    bool, of_output("--json", help="Print the result as one JSON object on stdout.")
]

HomeOption = Annotated[
    Path | None, of_storage(help=f"Keys, ledgers, state. Default: below {_STATE}", metavar="DIR")
]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option(rich_help_panel="Training", help="Where networks are trained."),
]

LabelOption = Annotated[
    str | None, of_data(help="Table: the column with the class.", metavar="COLUMN")
]
LabelsOption = Annotated[
    str | None, of_data(help="Table: columns of yes or no, each a label: a,b,c.", metavar="COLUMNS")
]
NumberOption = Annotated[
    str | None, of_data(help="Table: the column with the number to learn.", metavar="COLUMN")
]
DropOption = Annotated[
    list[str] | None,
    of_data(help="Table: a column to leave out; repeat for more.", metavar="COLUMN"),
]
TextOption = Annotated[
    str | None, of_data(help="Table: the column with the text, for an encoder.", metavar="COLUMN")
]
DicomLabelsOption = Annotated[
    Path | None, of_data(help="DICOM: a table of classes by study or image UID.", metavar="FILE")
]
WindowOption = Annotated[
    tuple[int, int] | None,
    of_data(help="Images over 8 bits: the values of black and white.", metavar="LOW HIGH"),
]
EncoderOption = Annotated[
    Path | None,
    of_data(help="Folder of a public encoder, by which inputs are embedded.", metavar="DIR"),
]


def names_in(text: str | None) -> tuple[str, ...]:
    """Return the names of an option such as ``a,b,c``."""
    return tuple(each.strip() for each in text.split(",")) if text else ()


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Common options of commands with many; each field, here and in a subclass, is an option."""

    as_json: JsonOption = False
    config: ConfigOption = None
    write_config: WriteConfigOption = None


def takes(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Give a command of typer the annotated fields of the dataclass ``kind`` as options, in one value.

    Options of several commands are in a common base class; those of :class:`CommandOptions` come last.
    """
    hints = get_type_hints(kind, include_extras=True)
    common = {each.name for each in fields(CommandOptions)}
    options = [
        Parameter(
            each.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in sorted(fields(kind), key=lambda each: each.name in common)  # type: ignore[arg-type] # it is a dataclass
        if get_origin(hints[each.name]) is Annotated
    ]

    def decorate(command: Callable[[T], None]) -> Callable[..., None]:
        def called(**values: Any) -> None:
            made, to = kind(**values), values.get("write_config")
            if to is None:
                command(made)
            else:
                write_given(click.get_current_context(), to)

        called.__name__ = command.__name__
        # Typer keeps a docstring's line breaks; it must be refolded for display.
        paragraphs = cleandoc(command.__doc__ or "").split("\n\n")
        called.__doc__ = "\n\n".join(" ".join(each.split()) for each in paragraphs)
        called.__signature__ = Signature(options)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in options}
        return called

    return decorate
