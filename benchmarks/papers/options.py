"""What the campaign of a row is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a campaign is started with, as ``pate-server`` and ``pate-party start`` name it.

    Attributes:
        aggregator: the mechanism.
        epsilon: of the cap, data-independent.
        delta: at which it holds.
        unit: record, patient or party.
        max_queries: or None.
        rounds: or None for the least that the mechanism has.
        noise: central or distributed, or None for what the mechanism has by default.
        min_parties: or None for the default of masked sums.
        colluders: or None for the most that masked sums stand.
        numbers: text of each fractional parameter by its option's name: threshold, sigma1, ...
        teachers: per party, the same at each or one number for each; not looked at by neighbour
            votes, which have none.
        model: kind of the teachers.
        representatives: neighbour votes: how many public inputs records vote at, or None for what
            suits ``expected_records`` and the budget.
        expected_records: neighbour votes: about how many all parties have.
        votes_per_patient: neighbour votes with patients: most votes of one.
    """

    aggregator: str
    epsilon: float
    delta: float
    unit: str = "record"
    max_queries: int | None = None
    rounds: int | None = None
    noise: str | None = None
    min_parties: int | None = None
    colluders: int | None = None
    numbers: Mapping[str, str] = field(default_factory=dict)
    teachers: int | tuple[int, ...] = 50
    model: str = "auto"
    representatives: int | None = None
    expected_records: int | None = None
    votes_per_patient: int | None = None

    def teachers_of(self, parties: int) -> tuple[int, ...]:
        """Return the number of teachers of each party.

        Raises:
            UsageError: if there is not one number for each.
        """
        if isinstance(self.teachers, int):
            return (self.teachers,) * parties
        if len(self.teachers) != parties:
            raise UsageError(f"{len(self.teachers)} numbers of teachers for {parties} parties")
        return self.teachers
