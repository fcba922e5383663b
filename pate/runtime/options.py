"""Options of a command as one frozen value: its fields are what ``--help`` lists."""

from __future__ import annotations

from dataclasses import MISSING, fields
from inspect import Parameter, Signature, cleandoc
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def takes(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Give a command of typer the annotated fields of a dataclass as options.

    The command gets them as one value. What two commands share is a base of both their classes.

    Args:
        kind: a dataclass. Its fields that are ``Annotated`` are options; others keep their defaults.
    """
    hints = get_type_hints(kind, include_extras=True)
    options = [
        Parameter(
            each.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(kind)  # type: ignore[arg-type] # it is a dataclass
        if get_origin(hints[each.name]) is Annotated
    ]

    def decorate(command: Callable[[T], None]) -> Callable[..., None]:
        def called(**values: Any) -> None:
            command(kind(**values))

        called.__name__ = command.__name__
        # Typer keeps a docstring's lines; they are to be folded where they are shown.
        paragraphs = cleandoc(command.__doc__ or "").split("\n\n")
        called.__doc__ = "\n\n".join(" ".join(each.split()) for each in paragraphs)
        called.__signature__ = Signature(options)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in options}
        return called

    return decorate
