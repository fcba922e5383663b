"""The party's own data, read by a campaign's signed schema, and its voters.

The campaign determines column types, image size and classes in its signed schema, independently of
our data. So each record is read by itself: its content changes neither how another votes nor which
teacher gets it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from party.teachers.ensemble import Averaged, Ensemble, columns_of
from party.teachers.linear import OF_MANY, OF_PARTIES
from party.teachers.training import train_ensemble
from party.voting.neighbour import NeighbourVotes, require_answer
from party.voting.own_file import against_schema, alike, described, warnings
from party.voting.voters import no_patients, nobody_votes
from pate.answers import CLASS
from pate.campaign.choices import RECORDS_EACH, TEACHERS_EACH
from pate.codes import adjacency_for, code_of
from pate.data.labels import sorted_classes
from pate.data.odd import DEEP, OUTSIDE, WINDOW, DeepImagesError, Odd
from pate.data.records import require_trainable
from pate.data.schema import Schema
from pate.errors import PateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from party.voting.own_file import Classes, OwnFile
    from party.voting.received import Encoders
    from pate.campaign.announced import Announced
    from pate.data.values import Dataset


class GaveUpError(Exception):
    """Training was left off, since something else is to be prepared; what is trained is stored."""


def _none_takes_part(odd: Odd) -> str:
    deep = any(DEEP in why or OUTSIDE in why for why in odd.reasons)
    return "none of our records can take part in this campaign" + (f": {WINDOW}" if deep else "")


@dataclass(frozen=True, kw_only=True)
class Training:
    """How many teachers a party trains, when, and how."""

    teachers: int
    # whether k is what a campaign wants, if it wants a number: the owner states none
    takes_wanted: bool = False
    later: bool = False  # whether they are trained only once a campaign asks for them
    model: str
    device: str
    home: Path
    # context manager during training, which provides a callback for the number of teachers done and
    # k
    shown: Callable[[], AbstractContextManager[Callable[[int, int], None]]]

    def number(self, wanted: int | None) -> int:
        """Return k: the owner's number, else what a campaign wants. No record of ours has a say in it."""
        return wanted if wanted and self.takes_wanted else self.teachers


class OwnVoters:
    """The voters of a party from its file: its teachers, its records, or either.

    ``training``: of its teachers; None: it has none; ``records``: whether its records vote in a
    campaign of neighbour votes; ``key``: its secret that decides shards, at most 64 bytes.
    """

    by_terms = True

    def __init__(
        self,
        file: OwnFile,
        *,
        training: Training | None,
        records: bool,
        key: bytes,
        say: Callable[[str], None],
        warn: Callable[[str], None],
        encoders: Encoders | None = None,
    ) -> None:
        self._file = file
        # received from servers; None: the file has its own, or the site's policy accepts none
        self.encoders = encoders
        self._training = training
        self._votes = records
        self._key = key
        self._say = say
        self._warn = warn
        self._asked: tuple[Schema | None, Classes] = (None, None)
        self._held: Dataset | None = None
        self._records: NeighbourVotes | None = None
        self._ensemble: tuple[Dataset, int, Ensemble] | None = None
        self._mean: Averaged | None = None
        self._odd = Odd()
        self._warned: set[str] = set()
        self._described: list[str] = []

    def ahead(
        self,
        schema: Schema | None,
        classes: Classes,
        *,
        is_guess: bool = True,
        wanted: int | None = None,
        trains: bool = True,
        stops: Callable[[], bool] = lambda: False,
    ) -> Dataset | None:
        """Read, and train, before a campaign is known, by what the last one had.

        The terms are decisive later: ``is_guess`` says that a mismatch is not yet an error. Returns
        None for records that need a campaign's window or encoder. GaveUpError if ``stops``, asked
        after each teacher.
        """
        if self.encoders is not None and self._file.needs_encoder:
            self._say("the data are read once a campaign is known, by its encoder if it has one")
            return None
        try:
            dataset = self._guess(schema, classes, is_guess)
        except DeepImagesError as error:
            self._warn(f"the data are read once a campaign is known: {error}")
            return None
        if trains and self._training is not None and not self._training.later:
            teachers = self._training.number(wanted)
            require_trainable(dataset, teachers)
            self._trained(dataset, teachers, stops)
        return dataset

    def _guess(self, schema: Schema | None, classes: Classes, is_guess: bool) -> Dataset:
        try:
            return self._read(schema, classes)
        except PateError:  # an encoder that was received before is found once the campaign is known
            if not is_guess or (schema is None and classes is None):
                raise
            return self._read(None, None)

    def require_fit(self, campaign: Announced) -> None:
        """Check what our options say of a campaign, before a record is read for it."""
        self._require_vote(campaign)
        self._with_encoder(campaign)
        self._file.require_encoder(campaign.schema)
        if campaign.unit == "patient" and self._file.group is None:
            raise no_patients()
        if self._file.answer == CLASS and self._file.classes is not None and campaign.classes:
            columns_of(self._file.classes, campaign.classes)

    def read(self, campaign: Announced) -> NeighbourVotes:
        """Return our records as read for a campaign; no teacher is trained.

        If none of the records can be used, none of them votes: that is no error, since it can
        depend on one record.
        """
        self._require_vote(campaign)
        schema = self._with_encoder(campaign)
        dataset = self._read(schema, campaign.classes, none_fits=True)
        if self._records is None or self._records.records is not dataset:
            self._records = NeighbourVotes(
                dataset, self._key, say=self._say, known_by=self._file.known_by
            )
        return self._records

    def _require_vote(self, campaign: Announced) -> None:
        if not (self._votes if campaign.records_vote else self._training is not None):
            raise nobody_votes(campaign)
        require_answer(
            code_of(campaign.code), self._file.answer, of_teachers=not campaign.records_vote
        )

    def _with_encoder(self, campaign: Announced) -> Schema:
        """Take the encoder of a campaign if we are sent ours, and return the schema."""
        schema = Schema.parse(campaign.schema)
        if self.encoders is not None and schema.encoder is not None:
            self._file = replace(self._file, encoder=self.encoders.find(schema.encoder))
        return schema

    def voters(
        self, campaign: Announced, stops: Callable[[], bool] = lambda: False
    ) -> Ensemble | Averaged | NeighbourVotes:
        """Return the voters of a campaign, with trained teachers; GaveUpError as of :meth:`ahead`."""
        found = self.read(campaign)
        if campaign.records_vote:
            return found
        # A party that is removed casts nothing; nor may its teachers cast without data.
        silent = adjacency_for(code_of(campaign.code), campaign.unit) == "remove"
        if self._averages(campaign):
            return self._averaged(found.records, self.weight(campaign), silent)
        made = self._trained(found.records, self.weight(campaign), stops)
        return made.silenced() if silent else made

    def _averages(self, campaign: Announced) -> bool:
        """Whether only the mean of our teachers counts, and the owner states no kind of them."""
        code = code_of(campaign.code)
        auto = self._training is not None and self._training.model == "auto"
        return auto and code.of_teachers and not code.answer.of

    def _averaged(self, dataset: Dataset, teachers: int, of_party: bool) -> Averaged:
        last, asked = self._mean, (teachers, of_party)
        if last is None or last.records is not dataset or (last.teachers, last.silent) != asked:
            penalty = OF_PARTIES if of_party else OF_MANY
            last = self._mean = Averaged(dataset, teachers, self._key, penalty, of_party)
            self._say(
                f"{teachers} teachers of one release: they learn when the votes are asked for"
            )
        return last

    def weight(self, campaign: Announced) -> int:
        """Return the sum of our vote rows, or for records the largest count."""
        teachers = 0 if self._training is None else self._training.number(campaign.wanted_teachers)
        return campaign.most_votes or teachers

    def _trained(self, dataset: Dataset, teachers: int, stops: Callable[[], bool]) -> Ensemble:
        last, how = self._ensemble, self._training
        if how is None:
            raise ValueError("this party has no teachers")
        if last is None or last[0] is not dataset or last[1] != teachers:
            if last is not None:
                self._say("the campaign's terms are other ones than expected: training again")
            if how.takes_wanted and teachers != TEACHERS_EACH:
                self._say(
                    f"{teachers} teachers, as the campaign wants: --teachers states another number"
                )
            self._warn_of_few(dataset, teachers)
            with how.shown() as progress:

                def moved(done: int, total: int) -> None:
                    progress(done, total)
                    if done < total and stops():
                        raise GaveUpError

                made = train_ensemble(
                    dataset,
                    teachers=teachers,
                    model=how.model,
                    device=how.device,
                    home=how.home,
                    key=self._key,
                    progress=moved,
                    few_fit=True,
                )
            last = self._ensemble = (dataset, teachers, made)
            self._say(f"{teachers} teachers are ready")
        return last[2]

    def _warn_of_few(self, dataset: Dataset, teachers: int) -> None:
        """Warn if our records are too few for so many teachers."""
        what, units = "records", len(dataset)
        if dataset.groups is not None:
            what, units = "patients", len(set(dataset.groups.tolist()))
        if units < RECORDS_EACH * teachers:
            self._warn(
                f"{teachers} teachers want {RECORDS_EACH * teachers} {what} or more, and ours are fewer: "
                "--teachers states another number, before the campaign's roster is complete"
            )

    def _read(self, schema: Schema | None, classes: Classes, *, none_fits: bool = False) -> Dataset:
        if self._held is not None and self._is_read_so(self._held, schema, classes):
            self._asked = (schema, classes)
            self._tell(self._held, schema)
            return self._held
        held, odd = self._file.read(schema, classes, none_fits=none_fits)
        self._asked, self._held, self._odd = (schema, classes), held, odd
        self._warn_once(odd.lines(len(held)))
        form = described(held.inputs, odd, counts=True)
        if form != self._described:
            self._described = form
            for line in ["our table, as it is read:", *(f"  {each}" for each in form)]:
                self._say(line)
        self._tell(held, schema)
        return held

    def _tell(self, held: Dataset, schema: Schema | None) -> None:
        """Warn of what is odd about our file, each once, though it is read again."""
        odd = self._odd
        found = alike("classes", held.classes) if held.kind == "class" else []
        if schema is not None:
            found += against_schema(self._file, held, odd, schema)
        else:
            found += warnings(held.inputs, None, (*self._file.no_features, *odd.names))
        extra = [] if len(held) else [_none_takes_part(odd)]
        self._warn_once([*map(str, found), *extra])

    def _warn_once(self, lines: Iterable[str]) -> None:
        for line in lines:
            if line not in self._warned:
                self._warned.add(line)
                self._warn(line)

    def _is_read_so(self, dataset: Dataset, schema: Schema | None, classes: Classes) -> bool:
        """Return whether reading the file again would change nothing."""
        before, listed = self._asked
        if classes != listed and (classes is None or sorted_classes(classes) != dataset.classes):
            return False
        if schema == before:
            return True
        if before is not None or schema is None:
            return False
        # It was read without a schema. A column of only numbers is as with a schema of numbers, and
        # likewise for text: each cell is as in the file.
        own = Schema.of(dataset.inputs)
        if schema.numeric is None or own.numeric is None:
            return schema == own
        return all(schema.numeric.get(name) is kind for name, kind in own.numeric.items())
