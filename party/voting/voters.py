"""What votes at a party: its teachers, or its records; and which records in a campaign of a series.

In all campaigns of a series together a **patient** has as many votes as the terms charge for, cast
by those of its records that have not voted and have the least keyed hash; a **record** has one. A
record is known by its content, its cells and its label as our file has it; of equal rows as many
vote as there are now, less those that have voted. So whether one of them votes depends on no other
person's.

What a campaign chooses and a hash depends on, the schema by which cells are read, is in
``known_by``: a campaign that reads otherwise is refused. Each vote has a hash, keyed with the
party's secret and bound to the series (:mod:`party.ledger.series`). Votes that the same campaign
had before do not count, so an answer that is repeated has the same voters. Proof:
docs/proofs/composition.md, sections 8 and 9.
"""

from __future__ import annotations

import hmac
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from party.ledger.series import UNIT_BYTES
from party.voting.neighbour import NeighbourVotes, require_answer
from pate.answers import NONE
from pate.codes import code_of
from pate.data.embeddings import Embeddings
from pate.errors import ProtocolError, SchemaError, UsageError
from pate.features.neighbours import voters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from party.voting.received import Encoders
    from pate.campaign.announced import Announced
    from pate.campaign.offer import Offer
    from pate.codes import Code
    from pate.data.values import Inputs
    from pate.features.neighbours import Places
    from pate.votes import Counts

    #: Returns those of some hashes whose votes were cast in another campaign.
    Voted = Callable[[Sequence[bytes]], frozenset[bytes]]


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


class Voters(Protocol):
    """What votes for a :class:`~party.voting.voter.Voter`, ready or made by a campaign's terms."""

    @property
    def encoders(self) -> Encoders | None:
        """Received from servers; None where none is taken."""

    @property
    def by_terms(self) -> bool:
        """Whether a campaign's terms decide how our data are read, so that it takes a while."""

    def require_fit(self, campaign: Announced) -> None:
        """Check what our options say of a campaign, before a record is read for it."""

    def read(self, campaign: Announced) -> Voting:
        """Return what we know of our data in a campaign; no teacher is trained."""

    def voters(
        self, campaign: Announced, stops: Callable[[], bool] = lambda: False
    ) -> Ensemble | NeighbourVotes:
        """Return the teachers, or the records, that vote in a campaign."""

    def weight(self, campaign: Announced) -> int:
        """Return the sum of our vote rows, or for records the largest count."""


@dataclass
class ReadyVoters:
    """Teachers, records or both, whatever a campaign's terms are."""

    teachers: Ensemble | None = None
    records: NeighbourVotes | None = None
    encoders = None
    by_terms = False

    def __post_init__(self) -> None:
        if self.teachers is None and self.records is None:
            raise UsageError("a party votes with its teachers or with its records")

    def require_fit(self, campaign: Announced) -> None:
        """See :class:`Voters`."""
        self.read(campaign)

    def read(self, campaign: Announced) -> Ensemble | NeighbourVotes:
        """See :class:`Voters`."""
        who = self.voters(campaign)
        require_answer(code_of(campaign.code), who.answer, of_teachers=not campaign.records_vote)
        return who

    def voters(
        self, campaign: Announced, stops: Callable[[], bool] = lambda: False
    ) -> Ensemble | NeighbourVotes:
        """See :class:`Voters`."""
        del stops
        found = self.records if campaign.records_vote else self.teachers
        if found is None:
            raise nobody_votes(campaign)
        return found

    def weight(self, campaign: Announced) -> int:
        """See :class:`Voters`."""
        who = self.voters(campaign)
        return campaign.most_votes or 0 if isinstance(who, NeighbourVotes) else who.teachers


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
        raise no_patients()
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


def no_patients() -> SchemaError:
    """Return the error of data without patients in a campaign that protects them."""
    return SchemaError(
        "the campaign protects patients, but our data has only records; start again with --group "
        "COLUMN, the column that names the patient"
    )


def nobody_votes(campaign: Announced) -> SchemaError:
    """Return the error of a campaign in which nothing of ours may vote."""
    what = "our records vote" if campaign.records_vote else "teachers vote"
    return SchemaError(
        f"the campaign uses {campaign.aggregator}: {what} in it; start without --votes, or "
        f"with --votes {'neighbour' if campaign.records_vote else 'teachers'}"
    )


@dataclass(frozen=True, eq=False)
class SeriesVoters:
    """The records that vote in one campaign of a series, and the hashes of their votes, both ascending.

    ``known_by`` is what these hashes depend on besides the units: the party's key, how it reads its
    file, and what the campaign chooses.
    """

    rows: Places
    units: tuple[bytes, ...]
    known_by: str


def series_voters(
    records: NeighbourVotes, offer: Offer, key: bytes, voted: Voted, cap: int | None
) -> SeriesVoters:
    """Return the records that vote in a campaign of a series; none is a valid answer.

    ``cap`` is the votes of a patient in the whole series; None: each record has one.
    """
    hashes = _Hashes(key, offer)
    groups = records.records.groups
    if cap is None and isinstance(records.records.inputs, Embeddings):
        raise ProtocolError(
            "the series knows records by their embeddings, and another machine or version would give a "
            "record others: it could vote again"
        )
    if cap is None:
        contents = hashes.copies(records.row_hashes)
        cast = voted(contents)
        rows = [at for at, each in enumerate(contents) if each not in cast]
        units = [contents[at] for at in rows]
        known = hashes.known_by("record", records.schema, records.known_by)
    elif groups is None:
        raise ProtocolError("the series limits votes per patient, but our data names no patients")
    else:
        rows, units = _of_patients(groups.tolist(), records, hashes, voted, cap)
        # Columns may change: a patient is known by the identifier, and only its numbered votes are charged.
        known = hashes.known_by("patient", "", records.known_by)
    return SeriesVoters(np.array(sorted(rows), dtype=np.int64), tuple(sorted(units)), known)


def _of_patients(
    groups: Sequence[str], records: NeighbourVotes, hashes: _Hashes, voted: Voted, cap: int
) -> tuple[list[int], list[bytes]]:
    """Return the voting records, and the hashes of their patients' votes and of themselves."""
    votes = {name: [hashes.of("vote", name, str(at)) for at in range(cap)] for name in set(groups)}
    contents = hashes.copies(records.row_hashes, groups)
    cast = voted([*contents, *(each for some in votes.values() for each in some)])
    left = {name: [each for each in some if each not in cast] for name, some in votes.items()}
    rows: list[int] = []
    for number in range(1, cap + 1):
        open_ = [
            at
            for at, name in enumerate(groups)
            if len(left[name]) == number and contents[at] not in cast
        ]
        names = np.array([groups[at] for at in open_], dtype=np.str_)
        least = voters_of(names, [records.row_hashes[at] for at in open_], number, records.key)
        rows.extend(open_[at] for at in least.tolist())
    units = [contents[at] for at in rows]
    for name, number in Counter(groups[at] for at in rows).items():
        units.extend(left[name][:number])
    return rows, units


class _Hashes:
    """Keyed hashes of the votes of units in one series.

    The series is known by its name and the key that signs its campaigns.
    """

    def __init__(self, key: bytes, offer: Offer) -> None:
        series = json.dumps([offer.key.hex(), offer.announced.series])
        self._key = hmac.digest(key, b"pate units of a series v2\0" + series.encode(), "sha256")

    def of(self, *parts: str) -> bytes:
        """Return the hash of one vote."""
        return hmac.digest(self._key, json.dumps(parts).encode(), "sha256")[:UNIT_BYTES]

    def copies(self, contents: Sequence[bytes], groups: Sequence[str] | None = None) -> list[bytes]:
        """Return the hash of each record's own vote; of equal records of one patient each has another one."""
        seen: Counter[tuple[str, ...]] = Counter()
        made = []
        for at, content in enumerate(contents):
            whose = () if groups is None else (groups[at],)
            record = ("record", *whose, content.hex())
            made.append(self.of(*record, str(seen[record])))
            seen[record] += 1
        return made

    def known_by(self, *parts: str) -> str:
        """Return a digest, hex, of what these hashes depend on besides the units."""
        return hmac.digest(self._key, json.dumps(["known", *parts]).encode(), "sha256").hex()
