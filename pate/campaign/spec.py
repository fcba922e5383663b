"""The specification of a campaign: everything that is fixed before the first party connects.

The specification is the first entry of the ledger. It depends on no private data and never changes:
a resume with other parameters is refused, naming the field.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pate.accounting.events import GatedBatch  # noqa: TC001 — its reader looks it up
from pate.answers import BALANCED, CLASS, LABELS, RESIDUAL, Answer, answer_of
from pate.campaign import choices
from pate.campaign.neighbour_terms import NeighbourTerms, require_size
from pate.campaign.parameters import Parameters
from pate.campaign.sum_terms import SumTerms  # noqa: TC001 — its reader looks it up
from pate.codes import AXES, EACH, NEAREST, code_of
from pate.data.embeddings import encoder_in
from pate.data.labels import LONGEST_CLASS_LIST
from pate.errors import StateError, UsageError
from pate.exact import in_text, read, write
from pate.rounds.rule import MOST_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pate.storage.hash_chain import Json

#: Mechanisms that support noise shares.
DISTRIBUTED: Final = ("gnmax", "confident-gnmax", "interactive-gnmax", "neighbour")

#: Longest name of a series, in characters.
LONGEST_SERIES: Final = 64

#: Mechanisms whose data-dependent cost a gate can test.
GATED: Final = ("gnmax", "confident-gnmax")

#: Of a count, without its noise: the ring has 32 bits, and so has a ledger.
_LARGEST_SUM: Final = 2**30
#: What is said of an encoder.
_LONGEST_WORDS: Final = 2000


@dataclass(frozen=True, kw_only=True)
class CampaignSpec:
    """The parameters of one campaign.

    Attributes:
        name: chosen by the coordinator.
        id: 16 random bytes in hex, see :func:`new_campaign_id`.
        aggregator: the mechanism.
        parameters: its stated parameters.
        parties: the expected number of parties, or their names.
        sums: how their votes are summed; with fewer than its ``min_parties`` the campaign stops.
        public_set: content hash of the public set, 32 bytes in hex.
        queries: size of the public set.
        schema: the line that describes its inputs.
        classes: class names, or None to take those of the parties, who must agree.
        epsilon: of all labels together.
        delta: see above; well below one over the number of records. 0 for neighbour votes with
            geometric noise, above 0 for any other campaign.
        unit: unit of privacy.
        rounds: number of rounds of labels; at least 2 for ``interactive-gnmax``. Where records vote with the
            answer ``residual``, number of releases: class counts, then one or more of residuals.
        first_round_share: share of the budget that round 1 may use if there are others.
        max_queries: most queries that are answered in all rounds together (a label or no
            answer), or None for no bound but the budget.
        vote_proofs: whether each party proves that its masked votes are well formed.
        answer: what teachers say, ``class`` or ``labels-T``: up to T of the class list, all in one
            release. That of records is in ``neighbour``.
        release: what teachers' votes for a class are released as: ``labels``, ``counts``, ``balanced`` or
            ``axes-K``, the last three in one release.
        gate: the one batch of a gated campaign, None for a capped one.
        neighbour: terms of neighbour votes, None for teachers.
        series: name of the series of campaigns in which a unit votes once; None for none.
        series_key: of a series, the public key by which parties know its server, 32 bytes in hex; None
            in a specification that no server has stored.
        encoder: what is said of the public encoder of the inputs, with its digest; None if there is none.

    Raises:
        UsageError: for an invalid value, naming the field.
    """

    name: str
    id: str
    aggregator: choices.Aggregator
    parties: int | tuple[str, ...]
    sums: SumTerms = field(metadata=in_text(flat=""))
    public_set: str
    queries: int
    schema: str
    epsilon: float
    delta: float
    parameters: Parameters = field(default_factory=Parameters, metadata=in_text(flat=""))
    classes: tuple[str, ...] | None = None
    unit: choices.Unit = "record"
    rounds: int = 1
    first_round_share: Fraction = Fraction(1, 2)
    max_queries: int | None = None
    vote_proofs: bool = False
    #: Omitted from the text at its default.
    answer: str = field(default=CLASS, metadata=in_text(omitted=True))
    #: Likewise.
    release: str = field(default=choices.BY_LABEL, metadata=in_text(omitted=True))
    gate: GatedBatch | None = field(default=None, metadata=in_text(flat="gate_"))
    neighbour: NeighbourTerms | None = field(default=None, metadata=in_text(flat=""))
    #: Omitted from the text if there is none, as are the next two.
    series: str | None = field(default=None, metadata=in_text(omitted=True))
    series_key: str | None = field(default=None, metadata=in_text(omitted=True))
    encoder: str | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        self._check_names()
        self._check_sizes()
        choices.check_budget(self.epsilon, self.delta, records_vote=self.records_vote)
        self._check_mechanism()
        self._check_gate()
        self._check_sums()
        self._check_neighbour()
        self._check_answer()
        self._check_release()
        self._check_series()

    @property
    def publish(self) -> choices.Publish:
        """How labels are released."""
        return "capped" if self.gate is None else "gated"

    @property
    def records_vote(self) -> bool:
        """Whether records vote instead of teachers, in one matrix that is charged once."""
        return self.neighbour is not None

    @property
    def voted_for(self) -> Answer:
        """What is voted for."""
        if self.neighbour is not None or self.release != choices.BY_LABEL:
            return code_of(self.code).answer
        return answer_of(self.answer)

    @property
    def one_release(self) -> bool:
        """Whether all votes are one matrix, charged and released once: of records, or of teachers."""
        return self.records_vote or self.answer != CLASS or self.release != choices.BY_LABEL

    @property
    def in_rounds(self) -> bool:
        """Whether records vote in rounds, each a matrix of its own that is charged and released."""
        return self.neighbour is not None and self.voted_for.name == RESIDUAL

    @property
    def code(self) -> str:
        """How votes are cast: the text of a :class:`~pate.codes.Code`.

        Raises:
            UsageError: if teachers vote for several labels and there is no class list.
        """
        if self.neighbour is not None:
            return self.neighbour.code
        if self.release == choices.COUNTS:
            return f"{EACH}-{self.most_asked}"
        if self.release == choices.BALANCED_COUNTS:
            return f"{EACH}-{self.most_asked} {BALANCED}"
        if self.release != choices.BY_LABEL:
            return self.release
        if self.answer == CLASS:
            return NEAREST
        if self.classes is None:
            raise UsageError(f"answer = {self.answer} of teachers needs its labels: --classes")
        return f"{EACH}-{self.most_asked} {self.answer}-of-{len(self.classes)}"

    @property
    def most_asked(self) -> int:
        """Most queries that may be asked in one round; of arrays, one for each direction."""
        if self.release.startswith(AXES):
            return code_of(self.release).places
        return min(self.queries, self.max_queries or self.queries)

    @property
    def wanted_parties(self) -> int:
        """The expected number of parties."""
        return self.parties if isinstance(self.parties, int) else len(self.parties)

    @property
    def interactive(self) -> bool:
        """Whether rounds after the first need the student's predictions."""
        return self.aggregator == "interactive-gnmax"

    def to_dict(self) -> dict[str, Json]:
        """Return a JSON object from which :meth:`from_dict` makes an equal value."""
        text: dict[str, Json] = write(self) | {"publish": self.publish}
        return text

    @classmethod
    def from_dict(cls, text: Mapping[str, Json]) -> CampaignSpec:
        """Read back what :meth:`to_dict` made.

        Raises:
            UsageError: for an unknown, missing or invalid field.
        """
        fields = dict(text)
        publish = fields.pop("publish", None)
        choices.check_choice("publish", publish, choices.PUBLISH)
        made = read(cls, fields, error=UsageError, what="the parameters of the campaign")
        if made.publish != publish:
            raise UsageError(
                "publish = gated needs gate_order, gate_target, gate_test and gate_failure, and no other "
                "campaign has them"
            )
        return made

    def require_same(self, other: CampaignSpec) -> None:
        """Check that a resume asks for the parameters of this campaign, its random id and its key aside.

        Raises:
            StateError: naming the first field that differs, with both values.
        """
        mine, asked = (
            {"code": NEAREST, "answer": CLASS, "release": choices.BY_LABEL, **each.to_dict()}
            for each in (self, other)
        )
        for name in mine | asked:
            if name not in ("id", "series_key") and mine.get(name) != asked.get(name):
                raise StateError(
                    f"this campaign has {name} = {mine.get(name)}, but {asked.get(name)} was given: "
                    "resume with the same parameters, or start a new one with another --campaign"
                )

    def _check_names(self) -> None:
        for name, value in (("name", self.name), ("schema", self.schema)):
            if not value.strip() or not value.isprintable():
                raise UsageError(f"{name} must be a line of text, got {value!r}")
        for name, value, length in (("id", self.id, 32), ("public_set", self.public_set, 64)):
            if not re.fullmatch(f"[0-9a-f]{{{length}}}", value):
                raise UsageError(f"{name} must be {length} hexadecimal digits, got {value!r}")
        if self.encoder is not None and not 0 < len(self.encoder) <= _LONGEST_WORDS:
            raise UsageError(f"encoder must have 1 to {_LONGEST_WORDS} characters")
        choices.check_choice("aggregator", self.aggregator, choices.AGGREGATORS)
        choices.check_choice("unit", self.unit, choices.UNITS)

    def _check_sizes(self) -> None:
        if not isinstance(self.parties, int):
            _check_list("parties", self.parties)
        choices.check_count("parties", self.wanted_parties, 1)
        choices.check_count("queries", self.queries, 1)
        choices.check_count("rounds", self.rounds, 1)
        if self.max_queries is not None:
            choices.check_count("max_queries", self.max_queries, 1)
        if self.classes is not None:
            _check_list("classes", self.classes)
            if (size := sum(len(each.encode()) for each in self.classes)) > LONGEST_CLASS_LIST:
                raise UsageError(
                    f"the names of all classes have {size:,} bytes, at most {LONGEST_CLASS_LIST:,}"
                )
            choices.check_count("number of classes", len(self.classes), 2)

    def _check_mechanism(self) -> None:
        self.parameters.check(self.aggregator, distributed=self.sums.distributed)
        if not 0 < self.first_round_share <= 1:
            raise UsageError(
                f"first_round_share is above 0 and at most 1, got {self.first_round_share}"
            )
        if self.interactive and self.rounds < 2:
            raise UsageError(
                "interactive-gnmax needs rounds >= 2: the first one trains the student"
            )

    def _check_gate(self) -> None:
        if self.gate is not None and (self.aggregator not in GATED or self.rounds != 1):
            raise UsageError(
                f"only {' and '.join(GATED)} can be gated, in one round: the labels of a batch "
                "are released together or not at all"
            )

    def _check_sums(self) -> None:
        self.sums.check_roster(self.wanted_parties)
        if not self.sums.masked:
            if self.vote_proofs:
                raise UsageError(
                    "vote proofs are for masked sums: plain votes are checked directly"
                )
            if self.sums.colluders:
                raise UsageError("plain aggregation hides nothing from the server: no colluders")
        if not self.sums.distributed:
            return
        if self.vote_proofs:
            raise UsageError(
                "vote proofs do not cover noise shares: a share may be any number, and so could votes"
            )
        if self.aggregator not in DISTRIBUTED:
            raise UsageError(
                f"noise shares are for {', '.join(DISTRIBUTED)}: choose one of them, or --noise central"
            )
        if self.gate is not None:
            raise UsageError("a gate needs exact votes, which noise shares never reveal")

    def _check_neighbour(self) -> None:
        if (self.neighbour is not None) != (self.aggregator == "neighbour"):
            raise UsageError(
                "neighbour votes need representatives, the queries that records vote at, and no other "
                "mechanism has them"
            )
        if self.neighbour is None:
            return
        law, other = ("geometric", "sigma2") if self.delta == 0 else ("Gaussian", "scale")
        if other in self.parameters.stated():
            raise UsageError(f"{other} has no meaning for {law} noise, at delta {self.delta:g}")
        if self.parameters.threshold is not None and not self.voted_for.labelled:
            raise UsageError(
                f"threshold is for classes: with the answer {self.voted_for} noisy counts are released, "
                "and no query gets a label"
            )
        self.neighbour.check(queries=self.queries, classes=self.classes, unit=self.unit)
        most = code_of(self.neighbour.code).bounds(self.neighbour.most_votes * self.wanted_parties)[
            1
        ]
        if most > _LARGEST_SUM:
            raise UsageError(
                f"{self.wanted_parties} parties with most_votes = {self.neighbour.most_votes} each are too "
                f"many for counts of 32 bits by the code {self.neighbour.code}: lower most_votes"
            )
        if self.in_rounds:
            self._check_rounds()
        elif self.rounds != 1:
            raise UsageError(
                "records vote in rounds in directions, each for one of a list of classes (--code dense "
                "--classes a,b), outside of a series: otherwise leave rounds out"
            )
        if self.max_queries is not None:
            raise UsageError(
                "neighbour votes are over all representatives: leave max_queries out, and choose their number"
            )
        if self.vote_proofs:
            raise UsageError(
                "vote proofs show that a row sums to a party's teachers; what neighbour votes sum to is "
                "private: leave them out"
            )

    def _check_rounds(self) -> None:
        """Check what votes in rounds cannot have."""
        terms = self.neighbour
        assert terms is not None  # noqa: S101 - by the caller
        choices.check_count("rounds", self.rounds, 2, MOST_ROUNDS + 1)
        if self.delta == 0 or self.parameters.stated():
            raise UsageError(
                "records that vote in rounds have Gaussian noise that epsilon determines, at a delta above "
                "0: leave sigma2, scale and threshold out"
            )
        if self.sums.exact:
            raise UsageError(
                "records that vote in rounds with masked sums need noise by the parties (--noise "
                "distributed): parties give their records' votes for one exact sum only"
            )
        if terms.votes_per_patient != 1:
            raise UsageError(
                "in rounds all records of a patient count, in one array: leave votes_per_patient out"
            )
        if self.series is not None:
            raise UsageError(
                "a campaign of a series has one release: in rounds a record votes more than once; leave "
                "the series out, or give --answer class"
            )

    def _check_answer(self) -> None:
        if self.answer == CLASS:
            return
        if self.aggregator != "gnmax" or answer_of(self.answer).name != LABELS:
            raise UsageError(
                f"answer = {self.answer:.40} is not for {self.aggregator}: teachers vote for a class, or "
                "with --aggregator gnmax for labels-T; --aggregator neighbour has more answers"
            )
        require_size(self.most_asked, len(self.classes or ()), "queries")
        code_of(self.code).answer.check_columns(self.classes)
        if self.rounds != 1 or self.gate is not None or self.vote_proofs:
            raise UsageError(
                "votes for several labels are one release in one round: leave rounds, the gate and vote "
                "proofs out"
            )

    def _check_release(self) -> None:
        if self.release == choices.BY_LABEL:
            return
        if self.aggregator != "gnmax" or self.answer != CLASS:
            raise UsageError(
                f"release = {self.release:.40} is not for {self.aggregator} with the answer {self.answer}: "
                "teachers' votes for a class are released at once with --aggregator gnmax"
            )
        at_queries = self.release in (choices.COUNTS, choices.BALANCED_COUNTS)
        if not at_queries and code_of(self.release).name != AXES:
            raise UsageError(
                f"release is labels, counts, balanced or axes-K, got {self.release:.40}"
            )
        if self.release.startswith(AXES) and self.max_queries is not None:
            raise UsageError("arrays are answers to the whole public set: leave max_queries out")
        if self.most_asked > self.queries:
            raise UsageError(
                f"release = {self.release}: that many directions need as many of the {self.queries} "
                "public inputs"
            )
        require_size(self.most_asked, len(self.classes or ("", "")), "queries")
        if self.rounds != 1 or self.gate is not None or self.vote_proofs:
            raise UsageError(
                "counts of all queries are one release in one round: leave rounds, the gate and vote proofs "
                "out"
            )

    def _check_series(self) -> None:
        key = self.series_key
        if key is not None and (self.series is None or not re.fullmatch("[0-9a-f]{64}", key)):
            raise UsageError(f"series_key is of a series, 64 hexadecimal digits, got {key!r:.80}")
        if self.series is None:
            return
        if self.neighbour is None:
            raise UsageError(
                "a series is for neighbour votes (--aggregator neighbour): a teacher learns from "
                "records that it has learnt from before, so campaigns of teachers add up"
            )
        name = self.series
        if not name.strip() or not name.isprintable() or len(name) > LONGEST_SERIES:
            raise UsageError(
                f"a series is named by a line of at most {LONGEST_SERIES} characters, got {name!r:.80}"
            )
        if self.unit == "record" and encoder_in(self.schema):
            raise UsageError(
                "in a series a record is known by its content, and an encoder's last digits differ between "
                "machines and versions, so a record could vote again: protect patients (--unit patient)"
            )
        if self.sums.exact:
            raise UsageError(
                "a series with masked sums needs noise by the parties (--noise distributed): "
                "parties give their records' votes for one exact sum only"
            )


def new_campaign_id() -> str:
    """Return 16 fresh random bytes in hex."""
    return secrets.token_hex(16)


def _check_list(what: str, names: Sequence[str]) -> None:
    if not all(name and name.isprintable() for name in names) or len(set(names)) != len(names):
        raise UsageError(f"{what} has an empty, repeated or unprintable name: {', '.join(names)}")
