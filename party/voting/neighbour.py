"""Neighbour votes of a party: each record votes once, at its nearest query or in directions.

No teacher is trained. A feature space over the public set, fixed independently of the records,
determines where a record votes, so its vote depends only on itself.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from party.teachers.schema import OfRecords, schema_of
from pate.answers import (
    CLASS,
    LABELS,
    NONE,
    NUMBER,
    RESIDUAL_LABELS,
    all_labels,
    of_labels,
    of_numbers,
)
from pate.codes import DENSE, NEAREST, Code, require_places
from pate.data.values import Table, content_hash, is_numeric
from pate.errors import ProtocolError, SchemaError, UsageError
from pate.features.dense import Directions, dense_sums, dense_votes, looked_at
from pate.features.neighbours import cast_answers, cast_votes, voters_of
from pate.features.progress import Parts
from pate.features.space import directions_over, space_over
from pate.rounds.record_array import residual_sums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from pate.data.values import Dataset, Inputs
    from pate.features.neighbours import Places
    from pate.rounds.model import RoundModel
    from pate.votes import Counts

    Floats = NDArray[np.float32]

#: Version: changes whenever the same records would vote differently.
_VERSION: Final = b"pate neighbour votes v3\0"
#: Records processed at once, which bounds memory.
_AT_ONCE: Final = 2048
#: Progress interval, in such portions.
_TOLD: Final = 4
_NEAREST: Final = Code(NEAREST)
_ASKED: Final = {CLASS: "a class", LABELS: "several labels", NUMBER: "a number"}
_OPTION: Final = {CLASS: "--label", LABELS: "--labels", NUMBER: "--number"}


@dataclass(frozen=True, eq=False)
class NeighbourVotes(OfRecords):
    """A party's records, ready to vote."""

    records: Dataset
    key: bytes  # its secret, at most 64 bytes: decides which records of a patient vote
    say: Callable[[str], None] = lambda _: None
    known_by: str = ""  # how their file was read, in words
    # the last dense codes of all of them, by what they depend on: rounds ask for them again
    coded: dict[tuple[object, ...], NDArray[np.int16]] = field(default_factory=dict, repr=False)

    @property
    def classes(self) -> tuple[str, ...]:
        """The class list of the data; of several labels with the column of records that have none."""
        return (*self.records.classes, NONE) if self.answer == LABELS else self.records.classes

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that change when the records, their labels or their patients do."""
        whole = hashlib.sha256(_VERSION)
        for text in (self.schema, self.unit, *self.classes):
            whole.update(hashlib.sha256(text.encode()).digest())
        whole.update(hashlib.blake2b(b"fingerprint", key=self.key, digest_size=32).digest())
        groups = [""] * len(self.records) if self.records.groups is None else self.records.groups
        units = zip(self.row_hashes, groups, strict=True)
        for unit in sorted(row + hashlib.sha256(str(g).encode()).digest() for row, g in units):
            whole.update(unit)
        return whole.digest()

    def conform(self, inputs: Inputs) -> Inputs:
        """Return inputs with only the records' columns, in their order.

        The type of a column comes from the inputs, never from our cells.
        """
        if isinstance(inputs, Table) and isinstance(self.records.inputs, Table):
            return inputs.only(self.records.inputs.names).plain()
        return schema_of(self.records.inputs).conform(inputs)

    def _read_as(self, public: Inputs) -> Dataset:
        """Return the records, each cell read by its column's type in the public set, with the same texts."""
        inputs = self.records.inputs
        if not isinstance(public, Table):
            return self.records
        assert isinstance(inputs, Table)  # noqa: S101 - conform checked
        if self.schema != public.schema():
            numeric = [is_numeric(column) for column in public.columns]
            inputs = inputs.aligned(public.names, numeric, cell_by_cell=True)
        # The public set's are plain: "None" of a record would be another category than its "".
        plain = inputs.plain()
        return self.records if plain is self.records.inputs else replace(self.records, inputs=plain)

    def vote(
        self,
        public: Inputs,
        rows: Sequence[int],
        classes: Sequence[str],
        *,
        votes_per_patient: int | None,
        most_votes: int,
        code: Code = _NEAREST,
        voters: Places | None = None,
        shown: RoundModel | None = None,
    ) -> Counts:
        """Return (queries, m) int64: the records that vote at each query for each class, in the code's units.

        In rounds it is the sum of their residuals, of a patient cut as a whole. A count of more
        than ``most_votes`` votes is clipped, which does not increase the sensitivity. The feature
        space is fitted on all of ``public``. Without ``voters`` all vote, or as many of a patient
        as may. ``shown`` is the model of a round after the first, in which all records vote.
        """
        require_answer(code, self.answer)
        try:
            require_places(code, len(rows))
        except UsageError as error:
            raise ProtocolError(str(error)) from error
        seen = self.conform(public)
        # Of the public set only the columns matter that our records have, and they are always the same.
        if code.answer.in_rounds:
            about = (content_hash(seen), tuple(rows))
            if about not in self.coded:
                self.coded.clear()
                self.coded[about] = _codes(self._read_as(seen), seen, rows)
            codes = self.coded[about].astype(np.int64)
            summed = self._residuals(codes, classes, shown, code, votes_per_patient)
        else:
            records = self._read_as(seen)
            if voters is None:
                voters = self._voters(records, votes_per_patient)
            voting = records if voters is None else records.take(voters)
            summed = self._sums(voting, seen, rows, classes, code)
        return np.clip(summed, *code.bounds(most_votes))

    def _sums(
        self, voting: Dataset, seen: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        """Return the sum of what records say where they vote: each one's array is its own."""
        answers = self._answers(voting, classes, code)
        if answers.ndim == 2:
            code.answer.check(answers)
        votes = np.zeros((len(rows), len(classes)), dtype=np.int64)
        for some, described, places, directions in _placed(voting, seen, rows, code):
            given = answers[some.start : some.stop]
            if directions is None and given.ndim == 1:
                votes += cast_votes(places, described, given, len(classes))
            elif directions is None:
                votes += cast_answers(places, described, given)
            elif given.ndim == 1:
                votes += dense_votes(directions, described, given, len(classes))
            else:
                votes += dense_sums(directions, described, given, code.answer.grid)
            if some.stop == len(voting) or (some.start // _AT_ONCE) % _TOLD == _TOLD - 1:
                # In tenths: the number of records is private, and how many have voted is the same for all.
                self.say(f"votes counted: {10 * (10 * some.stop // len(voting))} %")
        return votes

    def _residuals(
        self,
        codes: Counts,
        classes: Sequence[str],
        shown: RoundModel | None,
        code: Code,
        votes_per_patient: int | None,
    ) -> Counts:
        """Return the sum of residuals of all records, of which these are the dense codes."""
        units = None
        if votes_per_patient is not None:
            if self.records.groups is None:
                raise _no_patients()
            units = np.unique(self.records.groups, return_inverse=True)[1].astype(np.int64)
        labels = self._answers(self.records, classes, code)
        return residual_sums(codes, labels, len(classes), shown, units)

    def _answers(self, voters: Dataset, classes: Sequence[str], code: Code) -> Counts:
        """Return what each record says: (n,) the column of its class, or (n, m) a number in each."""
        if voters.answers is None:
            columns = [list(classes).index(name) for name in voters.classes]
            labels: Counts = np.array(columns, dtype=np.int64)[voters.labels]
            return labels
        if voters.answers.dtype == np.float64:
            return of_numbers(voters.answers.astype(np.float64), classes)
        flags = voters.answers.astype(np.bool_)
        if code.answer.name == RESIDUAL_LABELS:
            return all_labels(flags, voters.classes, classes)
        hashes = voters.row_hashes()
        return of_labels(flags, voters.classes, classes, code.answer.most, hashes, self.key)

    def _voters(self, records: Dataset, votes_per_patient: int | None) -> Places | None:
        """Return which records vote: None for all, or a limited number per patient."""
        if votes_per_patient is None:
            return None
        if records.groups is None:
            raise _no_patients()
        hashes = self.row_hashes if records is self.records else records.row_hashes()
        return voters_of(records.groups, hashes, votes_per_patient, self.key)

    @cached_property
    def row_hashes(self) -> Sequence[bytes]:
        """One hash of each record's content: its input and its label's name, 32 bytes."""
        return self.records.row_hashes()


def _codes(records: Dataset, seen: Inputs, rows: Sequence[int]) -> NDArray[np.int16]:
    """Return (n, d) the dense codes of records; ``seen`` is the public set with their columns."""
    made = np.zeros((len(records), len(rows)), dtype=np.int16)
    for some, described, _, directions in _placed(records, seen, rows, Code(DENSE, len(rows))):
        assert directions is not None  # noqa: S101 - of a dense code
        made[some.start : some.stop] = directions.codes(described)
    return made


def _placed(
    records: Dataset, seen: Inputs, rows: Sequence[int], code: Code
) -> Iterator[tuple[range, Floats, Floats, Directions | None]]:
    """Yield which records, some at a time, their features, those of the queries, and directions if dense."""
    queries, dense = seen.take(list(rows)), code.name == DENSE
    require_different(queries.row_hashes())
    fitted = looked_at(len(seen)) if dense else []
    starts = range(0, len(records), _AT_ONCE)
    cuts = [range(start, min(start + _AT_ONCE, len(records))) for start in starts]
    parts = Parts(len(seen), len(queries), len(fitted), *map(len, cuts))
    with parts.next():
        space = directions_over(seen) if dense else space_over(seen)
    with parts.next():
        places = space.embed(queries)
    with parts.next():
        directions = Directions.fit(places, space.embed(seen.take(fitted))) if dense else None
    for some in cuts:  # none if no record of ours takes part, which is nobody else's business
        with parts.next():
            described = space.embed(records.inputs.take(some))
        yield some, described, places, directions


def _no_patients() -> ProtocolError:
    return ProtocolError("the campaign limits votes per patient, but our data names no patients")


def require_answer(code: Code, answer: str, *, of_teachers: bool = False) -> None:
    """Check that records, or teachers, can say what a campaign asks."""
    wanted = CLASS if code.answer.one_hot else code.answer.permission
    if wanted != answer:
        raise SchemaError(
            f"the campaign asks {'teachers' if of_teachers else 'records'} for {_ASKED[wanted]}, ours "
            f"have {_ASKED[answer]}: start again "
            f"with {_OPTION[wanted]}"
        )


def require_different(queries: Sequence[bytes]) -> None:
    """Check that no two queries are the same input to the records, by their hashes."""
    if len(set(queries)) != len(queries):
        raise SchemaError(
            "two public inputs at which records vote are equal in the columns that our table has: add the "
            "campaign's other columns"
        )
