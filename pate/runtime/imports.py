"""Importing much at once, without looking for garbage in between."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: From so many new modules on it was worth it.
_MANY: Final = 100


@contextmanager
def importing() -> Iterator[None]:
    """Import what a program needs; a tenth of the time would go into looking for garbage.

    What is imported stays, so it is not looked through later either.
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
