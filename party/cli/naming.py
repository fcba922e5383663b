"""The name that a party runs under: that of its enrolment, or the one that was given."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pate.errors import ProtocolError, UsageError
from pate.formats.enrolment import check_name
from pate.runtime.home import locked

if TYPE_CHECKING:
    from pathlib import Path


def checked_name(name: str, place: Path, *, asked: bool) -> str:
    """Return the party's name: that of its enrolment, or else ``name``.

    Raises:
        UsageError: if the name is invalid, or differs from that of the enrolment.
        StateError: if the enrolment in ``place`` is damaged.
    """
    from party.identity.enrolment import Enrolment

    with contextlib.ExitStack() as held:
        if place.exists():
            held.enter_context(locked(place / "lock", "another pate-party"))
        enrolment = Enrolment.load(place)
    if enrolment is not None and not asked:
        return enrolment.name
    try:
        check_name(name)
    except ProtocolError as error:
        raise UsageError(f"{error}; give one with --name") from error
    if enrolment is not None and name != enrolment.name:
        raise UsageError(
            f"{place} is enrolled as {enrolment.name}, not as {name}: leave out --name, or name "
            "another --home"
        )
    return name
