"""The methods, in the order of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.versus.methods import federated, linear, ours, plain, pooled, taught, teachers

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.versus.method import Method
    from pate.runtime.screen import Screen


def all_methods(work: Path, screen: Screen) -> dict[str, Method]:
    """Return every method by name.

    Args:
        work: folder for the parties' homes and what may be used again.
        screen: for the lines of campaigns.
    """
    every = (
        ours.method(work, screen),
        teachers.method(work, screen),
        pooled.method(work),
        taught.method(pooled.method(work)),
        *linear.METHODS,
        federated.opacus_at_each(work),
        *federated.METHODS,
        *plain.METHODS,
    )
    return {method.name: method for method in every}
