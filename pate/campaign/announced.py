"""What a campaign is: announced before its first party connects, and the same for every role."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from pate.accounting import Unit  # noqa: TC001 — its reader looks it up
from pate.campaign import choices
from pate.campaign.roster import SumTerms  # noqa: TC001 — its reader looks it up
from pate.codes import NEAREST, code_of
from pate.data.labels import LONGEST_CLASS_LIST, can_be_class
from pate.errors import ProtocolError, UsageError
from pate.exact import in_text, parse, read, write
from pate.formats.privacy_statement import in_words, neighbours_of
from pate.mechanisms.matrix import require_unit
from pate.rounds.plan import MOST_ROUNDS
from pate.storage.hash_chain import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.answers import Answer

#: Longest name of a series, in characters.
LONGEST_SERIES: Final = 64
#: Longest text of a campaign: a class list, a schema line and a roster, each of the largest size.
LONGEST_TEXT: Final = 2**21
_LONGEST_SCHEMA: Final = 65_536
_MOST_QUERIES: Final = 10**9
_MOST_ROUNDS: Final = 10_000
_MOST_CLASSES: Final = 10_000
_LARGEST_EPSILON: Final = 1e6
#: Of one party on one count of records' votes.
LARGEST_COUNT: Final = 2**16


@dataclass(frozen=True, kw_only=True)
class Announced:
    """A campaign as its server announces it: all of it is public, and never changes."""

    id: str  # 16 random bytes in hex
    aggregator: choices.Aggregator
    # how votes are summed, and from whom they are hidden
    sums: SumTerms = field(metadata=in_text(flat=""))
    public_set: str  # content hash of the public set, 32 bytes in hex
    queries: int
    schema: str
    epsilon: float  # of all labels together, towards the public
    # of that epsilon, well below one over the number of records; 0 for neighbour votes with
    # geometric noise
    delta: float
    unit: Unit = "record"
    # class names, in the order of the vote columns; None to take those of the parties
    classes: tuple[str, ...] | None = None
    rounds: int = 1  # number of rounds of labels; where records vote in rounds, number of releases
    vote_proofs: bool = False  # whether each party proves that its masked votes are well formed
    # where records vote, most votes of one party on one count; else None
    most_votes: int | None = None
    #: Omitted from the text at its default, as are the next two.
    # how votes are cast, the text of a :class:`~pate.codes.Code`; its default for teachers whose
    # votes for a class are released query by query
    code: str = field(default=NEAREST, metadata=in_text(omitted=True))
    # name of the series of campaigns in which a unit votes once; None for none
    series: str | None = field(default=None, metadata=in_text(omitted=True))
    # k of a party whose owner states none; None: no number is wanted
    wanted_teachers: int | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        self._check_names()
        self._check_sizes()
        choices.check_budget(self.epsilon, self.delta, records_vote=self.records_vote)
        if self.epsilon > _LARGEST_EPSILON:
            raise UsageError(f"epsilon is at most {_LARGEST_EPSILON:g}, got {self.epsilon!r}")
        self._check_votes()
        self._check_rounds()
        self._check_proofs()
        self._check_series()

    @property
    def records_vote(self) -> bool:
        """Whether records vote instead of teachers, in one matrix that is charged once."""
        return self.aggregator == "neighbour"

    @property
    def voted_for(self) -> Answer:
        """What is voted for."""
        return code_of(self.code).answer

    @property
    def one_release(self) -> bool:
        """Whether all votes, or those of a round, are one matrix: of records, or of teachers."""
        return self.records_vote or self.code != NEAREST

    @property
    def in_rounds(self) -> bool:
        """Whether records vote in rounds, each a matrix of its own that is charged and released."""
        return self.voted_for.in_rounds

    @property
    def neighbours(self) -> str:
        """Between which collections its guarantee holds, in a few words."""
        how = self.records_vote
        return neighbours_of(self.unit, records_vote=how, series=self.series, code=self.code)

    @property
    def cost_in_words(self) -> str:
        """The epsilon of the whole campaign, at most, with its terms."""
        return in_words(self.epsilon, self.delta, self.unit, neighbours=self.neighbours)

    @property
    def text(self) -> str:
        """Its canonical JSON; of a specification that of what is announced."""
        return canonical(write(self.announced))

    @classmethod
    def of_text(cls, text: bytes) -> Announced:
        """Read back a text."""
        what = "the terms of a campaign"
        fields_ = parse(text, most=LONGEST_TEXT, error=ProtocolError, what=what)
        made = read(Announced, fields_, error=ProtocolError, what=what)
        if made.text.encode() != text:
            raise ProtocolError(f"{what}: not the text of its values")
        return made

    @property
    def announced(self) -> Announced:
        """What of it is announced: all, but for what only the server needs."""
        return Announced(**{each.name: getattr(self, each.name) for each in fields(Announced)})

    def _check_names(self) -> None:
        check_line("schema", self.schema, _LONGEST_SCHEMA)
        for name, value, length in (("id", self.id, 32), ("public_set", self.public_set, 64)):
            if not re.fullmatch(f"[0-9a-f]{{{length}}}", value):
                raise UsageError(f"{name} must be {length} hexadecimal digits, got {value!r:.100}")
        choices.check_choice("aggregator", self.aggregator, choices.AGGREGATORS)
        choices.check_choice("unit", self.unit, choices.UNITS)

    def _check_sizes(self) -> None:
        choices.check_count("queries", self.queries, 1, _MOST_QUERIES)
        choices.check_count("rounds", self.rounds, 1, _MOST_ROUNDS)
        if self.classes is not None:
            check_list("classes", self.classes)
            if (size := sum(len(each.encode()) for each in self.classes)) > LONGEST_CLASS_LIST:
                raise UsageError(
                    f"the names of all classes have {size:,} bytes, at most {LONGEST_CLASS_LIST:,}"
                )
            if not all(map(can_be_class, self.classes)):
                raise UsageError("classes has a name that is too long")
            choices.check_count("number of classes", len(self.classes), 2, _MOST_CLASSES)
        if (self.most_votes is not None) != self.records_vote:
            raise UsageError(
                "most_votes is of neighbour votes, the most of a party on one count, and no other "
                "campaign has it"
            )
        if self.most_votes is not None:
            choices.check_count("most_votes", self.most_votes, 1, LARGEST_COUNT)
        if self.wanted_teachers is not None:
            if self.records_vote:
                raise UsageError(
                    "wanted_teachers is for teachers: where records vote there are none"
                )
            choices.check_count("wanted_teachers", self.wanted_teachers, 1, choices.MOST_WANTED)

    def _check_votes(self) -> None:
        code = code_of(self.code)
        if self.records_vote:
            require_unit(self.unit)
            if code.of_teachers:
                raise UsageError(f"records do not vote by the code {code}")
        elif self.code != NEAREST and not (code.of_teachers and self.aggregator == "gnmax"):
            raise UsageError(
                f"teachers do not vote by the code {code} with --aggregator {self.aggregator}"
            )
        code.answer.check_columns(self.classes)

    def _check_rounds(self) -> None:
        if self.in_rounds:
            choices.check_count("rounds", self.rounds, 2, MOST_ROUNDS + 1)
            if self.delta == 0:
                raise UsageError(
                    "records that vote in rounds have Gaussian noise, at a delta above 0"
                )
            if self.series is not None:
                raise UsageError(
                    "a campaign of a series has one release: in rounds a record votes more than once; "
                    "leave the series out, or give --answer class"
                )
        elif self.records_vote and self.rounds != 1:
            raise UsageError(
                "records vote in rounds in directions, each for one of a list of classes (--code dense "
                "--classes a,b), outside of a series: otherwise leave rounds out"
            )
        elif self.one_release and self.rounds != 1:
            raise UsageError("votes of one release have one round: leave rounds out")

    def _check_proofs(self) -> None:
        if not self.vote_proofs:
            return
        if not self.sums.masked:
            raise UsageError("vote proofs are for masked sums: plain votes are checked directly")
        if self.sums.distributed:
            raise UsageError(
                "vote proofs do not cover noise shares: a share may be any number, and so could votes"
            )
        if self.one_release:
            raise UsageError(
                "vote proofs show that a row sums to a party's teachers, whose votes are released query "
                "by query: leave them out"
            )

    def _check_series(self) -> None:
        if self.series is None:
            return
        if not self.records_vote:
            raise UsageError(
                "a series is for neighbour votes (--aggregator neighbour): a teacher learns from "
                "records that it has learnt from before, so campaigns of teachers add up"
            )
        check_line("series", self.series, LONGEST_SERIES)


def check_line(what: str, text: str, longest: int) -> None:
    """Check that a text can be displayed: one line, no control characters; UsageError otherwise."""
    if not text.strip() or not text.isprintable() or len(text) > longest:
        raise UsageError(
            f"{what} must be a line of text of at most {longest} characters, got {text!r:.80}"
        )


def check_list(what: str, names: Sequence[str]) -> None:
    """Check that names are distinct and can be displayed; UsageError otherwise."""
    if not all(name and name.isprintable() for name in names) or len(set(names)) != len(names):
        listed = ", ".join(names)
        raise UsageError(f"{what} has an empty, repeated or unprintable name: {listed:.200}")
