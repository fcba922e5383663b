"""Releases of synthetic rows in ``pate-party ledger``: as lines, and as JSON; dates only, no times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from party.ledger.accountant import cumulative_epsilon
from pate.formats.privacy_statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from party.ledger.synthesis import Synthesis, SynthesisRecord
    from pate.accounting.filters import Delta
    from pate.storage.hash_chain import Json


def in_words(record: SynthesisRecord, delta: Delta) -> Iterator[str]:
    """Yield lines about one release; ``delta`` is that of the party's cumulative epsilon."""
    made = record.synthesis
    yield f"synthetic rows {made.id}, reserved on {_day(record)}"
    yield f"  made: at most {made.rows} rows by {made.method}, {made.release}, of the schema {made.schema}"
    if record.spent_at is None:
        yield "  written: as far as is known, no; they count all the same"
    else:
        yield f"  written, SHA-256 {record.output}"
    if record.model is not None:
        yield f"  model kept, SHA-256 {record.model}: more rows of it cost nothing"
    yield f"  cost: {_cost(made)}"
    if not made.free:
        yield f"  by our own accountant: {cumulative_epsilon([], delta, [made]).in_words}"


def as_json(record: SynthesisRecord) -> dict[str, Json]:
    """Return one release; the costs are exact, as text."""
    return {
        **record.synthesis.to_dict(),
        "reserved_on": _day(record),
        "output": record.output,
        "model_kept": record.model,
        "state": "reserved" if record.spent_at is None else "spent",
    }


def _day(record: SynthesisRecord) -> str:
    """Return when it was reserved: only the date.

    Learning a model from more records takes longer, so exact times of its start and of its end, or of
    the next release, would reveal about how many records there are.
    """
    return record.reserved_at[:10]


def _cost(made: Synthesis) -> str:
    if made.parent is not None:
        return f"nothing more: their model was paid for with synthetic rows {made.parent}"
    parts = [f"rho {float(made.rho):.4g}"]
    if made.epsilon is not None:
        parts.insert(0, f"pure epsilon {rounded_up(float(made.epsilon))}")
    if made.delta:
        parts.append(f"delta {float(made.delta):.3g}")
    return f"{', '.join(parts)}, per {made.unit}"
