"""Bulk imports without garbage collection in between."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Number of new modules from which on freezing them pays off.
_MANY: Final = 100


@contextmanager
def importing() -> Iterator[None]:
    """Import a program's modules with the garbage collector off, which saves a tenth of the time.

    Imported modules are permanent, so they are excluded from later collections, too.
    """
    before, was_on = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) - before > _MANY:
            gc.freeze()
        if was_on:
            gc.enable()
