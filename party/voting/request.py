"""What votes at a party, and whether our data fit a campaign."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pate.answers import NONE
from pate.errors import ProtocolError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.campaign.announced import Announced
    from pate.campaign.offer import Settled
    from pate.codes import Code
    from pate.data.values import Inputs
    from pate.votes import Counts


class Voting(Protocol):
    """The common interface of teachers and voting records."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The class list of the party's data."""

    @property
    def unit(self) -> str:
        """``record`` or ``patient``: the unit of one vote, or of a bounded number of votes."""

    @property
    def schema(self) -> str:
        """One line that describes the inputs."""


class Ensemble(Voting, Protocol):
    """The voter's interface of a party's teachers."""

    @property
    def teachers(self) -> int:
        """k, the number of teachers."""

    @property
    def answer(self) -> str:
        """What they say: ``class`` or ``labels``."""

    @property
    def fingerprint(self) -> bytes:
        """Digest of the data and the settings, 32 bytes."""

    def conform(self, inputs: Inputs) -> Inputs:
        """Return inputs with only what the teachers use."""

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code, /
    ) -> Counts:
        """Return (rows, m) int64, in units of the code, of teachers at rows of the public set."""


def check_fits(
    ours: Voting,
    *,
    unit: str,
    schema: str,
    classes: Sequence[str] | None,
    of_teachers: bool = False,
) -> None:
    """Check that our teachers, or our records, can serve a campaign.

    ``of_teachers``: teachers vote in it, in one release.
    """
    if unit == "patient" and ours.unit != "patient":
        raise SchemaError(
            "the campaign protects patients, but our data has only records; "
            "start again with --group COLUMN, the column that names the patient"
        )
    # Where teachers vote there is no column for records that have no label.
    apart = {NONE} if of_teachers else set()
    unknown = sorted(set(ours.classes) - set(classes or ()) - apart)
    if classes and unknown:
        raise SchemaError(
            f"our data has classes that the campaign has not: {', '.join(unknown)}; "
            f"the campaign's are {', '.join(classes)}"
        )
    both_images = schema.startswith("images") or ours.schema.startswith("images")
    if both_images and schema != ours.schema:
        raise SchemaError(f"the public set is {schema}, our data is {ours.schema}")


def nobody_votes(campaign: Announced) -> SchemaError:
    """Return the error of a campaign in which nothing of ours may vote."""
    what = "our records vote" if campaign.records_vote else "teachers vote"
    return SchemaError(
        f"the campaign uses {campaign.aggregator}: {what} in it; start without --votes, or "
        f"with --votes {'neighbour' if campaign.records_vote else 'teachers'}"
    )


def other_classes(ours: tuple[str, ...], agreed: tuple[str, ...]) -> str:
    """Return why a class list that is not that of most parties is refused, and what to do."""
    parts = [
        f"{who} {', '.join(names)}"
        for who, names in (
            ("only ours have", sorted(set(ours) - set(agreed))),
            ("ours lack", sorted(set(agreed) - set(ours))),
        )
        if names
    ]
    return (
        f"our records have other classes than most parties of the campaign name: {'; '.join(parts)}. Correct "
        f"the labels, or start again with --classes {','.join(agreed)}: records of any other class then take "
        "no part"
    )


def check_on_roster(settled: Settled, name: str, identity: bytes, teachers: int) -> None:
    """Check our entry on the roster."""
    for member in settled.roster:
        if (member.name, member.identity) == (name, identity.hex()):
            if member.teachers == teachers:
                return
            raise ProtocolError(
                f"the roster lists us with {member.teachers} teachers, but we have {teachers}"
            )
    raise ProtocolError("we are not on the roster of the campaign that requests our votes")
