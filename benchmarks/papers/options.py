"""Start options of a row's campaign."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from pate.campaign.options import MechanismOptions
from pate.errors import UsageError

if TYPE_CHECKING:
    from pate.campaign.choices import Aggregator

_ALWAYS: Final = ("aggregator", "epsilon", "delta", "unit")


@dataclass(frozen=True, kw_only=True)
class Options(MechanismOptions):
    """Start options of a campaign, named as in ``pate-server`` and ``pate-party start``.

    Attributes:
        teachers: per party, one number for all or one each; ignored by neighbour votes.
        model: kind of the teachers.
    """

    aggregator: Aggregator = field()
    epsilon: float = field()
    delta: float = field()
    teachers: int | tuple[int, ...] = 50
    model: str = "auto"

    def told(self) -> dict[str, object]:
        """Return, by name, the options that differ from the defaults of ``pate-server``."""
        usual = MechanismOptions()
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if name in _ALWAYS or value != getattr(usual, name, None)
        }

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
