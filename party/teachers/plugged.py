"""Kinds of teachers from other packages (plugins).

A package declares an entry point in the group ``federated_pate.teachers``. It refers to a callable
that takes a device (``auto``, ``cpu`` or ``cuda``) and returns a
:class:`~party.teachers.protocol.Kind`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from pate.errors import UsageError
from pate.runtime.plugins import TEACHERS, load_plugin

if TYPE_CHECKING:
    from party.teachers.protocol import Kind

#: Characters allowed in a file's name.
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def plugged(name: str, device: str) -> Kind:
    """Return the kind of teachers that an installed package offers under a name.

    Raises:
        UsageError: if there is none, or it is not a kind of teachers.
    """
    make = load_plugin(TEACHERS, name)
    if not callable(make):
        raise UsageError(f"plugin {name!r} is not callable: it is called with a device")
    kind = make(device)
    for part in ("fit", "restore"):
        if not callable(getattr(kind, part, None)):
            raise UsageError(f"plugin {name!r} returned a {type(kind).__name__} without {part}()")
    if getattr(kind, "name", None) != name:
        raise UsageError(f"plugin {name!r} returned a kind that calls itself {kind.name!r}")
    if not _PLAIN.fullmatch(str(getattr(kind, "suffix", ""))):
        raise UsageError(f"plugin {name!r}: its suffix is no plain file suffix")
    if not isinstance(getattr(kind, "version", None), str):
        raise UsageError(f"plugin {name!r}: its version is no text")
    return cast("Kind", kind)
