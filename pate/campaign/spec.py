"""The specification of a campaign: everything that is fixed before the first party connects.

The specification is the first entry of the ledger. It depends on no private data and never changes:
a resume with other parameters is refused, naming the field.
"""

from __future__ import annotations

import itertools
import re
import secrets
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pate.accounting.events import GatedBatch  # noqa: TC001 — its reader looks it up
from pate.campaign import choices
from pate.campaign.announced import Announced, check_line, check_list
from pate.campaign.choices import Parameters
from pate.codes import AXES, NEAREST, code_of, require_places
from pate.data.embeddings import encoder_in
from pate.errors import StateError, UsageError
from pate.exact import in_text, read, write
from pate.mechanisms.matrix import MAX_MATRIX, MAX_MATRIX_QUERIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.storage.hash_chain import Json

#: Mechanisms that support noise shares.
DISTRIBUTED: Final = ("gnmax", "confident-gnmax", "interactive-gnmax", "neighbour")

#: Mechanisms whose data-dependent cost a gate can test.
GATED: Final = ("gnmax", "confident-gnmax")

#: Default for the most votes of one party on one count: five parties and their noise then fit 16
#: bits. A party with more records at one query sends no more than that.
MOST_VOTES: Final = 4095
#: Of a count, without its noise: the ring has 32 bits, and so has a ledger.
_LARGEST_SUM: Final = 2**30
#: What is said of an encoder.
_LONGEST_WORDS: Final = 2000
_LONGEST_NAME: Final = 65_536


@dataclass(frozen=True, kw_only=True)
class CampaignSpec(Announced):
    """A campaign as its server plans it: what it announces, and what only the server needs."""

    name: str
    parties: int | tuple[str, ...]  # the expected number of parties, or their names
    parameters: Parameters = field(default_factory=Parameters, metadata=in_text(flat=""))
    # share of the budget that round 1 may use if there are others
    first_round_share: Fraction = Fraction(1, 2)
    # most queries that are answered in all rounds together (a label or no answer), or None for no
    # bound but the budget
    max_queries: int | None = None
    # the one batch of a gated campaign, None for a capped one
    gate: GatedBatch | None = field(default=None, metadata=in_text(flat="gate_"))
    # where records vote, the queries at which they do, ascending rows of the public set; else None
    representatives: tuple[int, ...] | None = None
    # where records vote, most votes of one patient at one party, 1 for records; else None
    votes_per_patient: int | None = None
    #: Omitted from the text if there is none, as is the next one.
    # of a series, the public key by which parties know its server, 32 bytes in hex; None in a
    # specification that no server has stored
    series_key: str | None = field(default=None, metadata=in_text(omitted=True))
    # what is said of the public encoder of the inputs, with its digest; None if there is none
    encoder: str | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_line("name", self.name, _LONGEST_NAME)
        if self.encoder is not None and not 0 < len(self.encoder) <= _LONGEST_WORDS:
            raise UsageError(f"encoder must have 1 to {_LONGEST_WORDS} characters")
        if not isinstance(self.parties, int):
            check_list("parties", self.parties)
        choices.check_count("parties", self.wanted_parties, 1)
        if self.max_queries is not None:
            choices.check_count("max_queries", self.max_queries, 1)
        self._check_mechanism()
        self._check_gate()
        self._check_sums()
        self._check_records()
        self._check_release()
        self._check_key()

    @property
    def publish(self) -> choices.Publish:
        """How labels are released."""
        return "capped" if self.gate is None else "gated"

    @property
    def most_asked(self) -> int:
        """Most queries that may be asked in one round; of arrays, one for each direction."""
        if (code := code_of(self.code)).name == AXES:
            return code.places
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
        """Read back what :meth:`to_dict` made."""
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
        """Check that a resume asks for the parameters of this campaign, its random id and its key aside."""
        mine, asked = ({"code": NEAREST, **each.to_dict()} for each in (self, other))
        follow = ("code", "representatives")  # mostly from other parameters, which are named first
        for name in sorted(mine | asked, key=follow.__contains__):
            if name not in ("id", "series_key") and mine.get(name) != asked.get(name):
                raise StateError(
                    f"this campaign has {name} = {mine.get(name)}, but {asked.get(name)} was given: "
                    "resume with the same parameters, or start a new one with another --campaign"
                )

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
        if not self.sums.masked and self.sums.colluders:
            raise UsageError("plain aggregation hides nothing from the server: no colluders")
        if not self.sums.distributed:
            return
        if self.aggregator not in DISTRIBUTED:
            raise UsageError(
                f"noise shares are for {', '.join(DISTRIBUTED)}: choose one of them, or --noise central"
            )
        if self.gate is not None:
            raise UsageError("a gate needs exact votes, which noise shares never reveal")

    def _check_records(self) -> None:
        """Check what records' votes have in addition, and what they cannot have."""
        if not self.records_vote:
            if self.representatives is not None or self.votes_per_patient is not None:
                raise UsageError(
                    "representatives and votes_per_patient are of neighbour votes: leave them out"
                )
            return
        if self.representatives is None or self.votes_per_patient is None:
            raise UsageError(
                "neighbour votes need representatives, the queries that records vote at, and "
                "votes_per_patient"
            )
        law, other = ("geometric", "sigma2") if self.delta == 0 else ("Gaussian", "scale")
        if other in self.parameters.stated():
            raise UsageError(f"{other} has no meaning for {law} noise, at delta {self.delta:g}")
        if self.parameters.threshold is not None and not self.voted_for.labelled:
            raise UsageError(
                f"threshold is for classes: with the answer {self.voted_for} noisy counts are released, "
                "and no query gets a label"
            )
        self._check_places(self.representatives)
        choices.check_count("votes_per_patient", self.votes_per_patient, 1, 2**16)
        if self.votes_per_patient != 1 and self.unit != "patient":
            raise UsageError("votes_per_patient is for unit = patient: a record has one vote")
        most = code_of(self.code).bounds((self.most_votes or 0) * self.wanted_parties)[1]
        if most > _LARGEST_SUM:
            raise UsageError(
                f"{self.wanted_parties} parties with most_votes = {self.most_votes} each are too "
                f"many for counts of 32 bits by the code {self.code}: lower most_votes"
            )
        if self.in_rounds:
            self._check_rounds_of_records()
        if self.max_queries is not None:
            raise UsageError(
                "neighbour votes are over all representatives: leave max_queries out, and choose their number"
            )

    def _check_places(self, rows: tuple[int, ...]) -> None:
        if (
            not rows
            or not 0 <= rows[0] <= rows[-1] < self.queries
            or any(a >= b for a, b in itertools.pairwise(rows))
        ):
            raise UsageError(
                f"representatives are ascending rows of the {self.queries} public inputs"
            )
        require_size(len(rows), len(self.classes or ("", "")))
        require_places(code_of(self.code), len(rows))

    def _check_rounds_of_records(self) -> None:
        """Check what votes in rounds cannot have."""
        if self.parameters.stated():
            raise UsageError(
                "records that vote in rounds have Gaussian noise that epsilon determines, at a delta above "
                "0: leave sigma2, scale and threshold out"
            )
        if self.sums.exact:
            raise UsageError(
                "records that vote in rounds with masked sums need noise by the parties (--noise "
                "distributed): parties give their records' votes for one exact sum only"
            )
        if self.votes_per_patient != 1:
            raise UsageError(
                "in rounds all records of a patient count, in one array: leave votes_per_patient out"
            )

    def _check_release(self) -> None:
        """Check teachers' votes that are one release."""
        if self.records_vote or not self.one_release:
            return
        code = code_of(self.code)
        if code.name == AXES and self.max_queries is not None:
            raise UsageError("arrays are answers to the whole public set: leave max_queries out")
        if self.most_asked > self.queries:
            raise UsageError(
                f"release = {self.code}: that many directions need as many of the {self.queries} "
                "public inputs"
            )
        if code.places != self.most_asked:
            raise UsageError(f"the code {code} is not for {self.most_asked} queries")
        require_size(self.most_asked, len(self.classes or ("", "")), "queries")
        if self.gate is not None:
            raise UsageError("votes of one release have no gate: leave it out")

    def _check_key(self) -> None:
        key = self.series_key
        if key is not None and (self.series is None or not re.fullmatch("[0-9a-f]{64}", key)):
            raise UsageError(f"series_key is of a series, 64 hexadecimal digits, got {key!r:.80}")
        if self.series is None:
            return
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


def require_size(queries: int, classes: int, what: str = "representatives") -> None:
    """Check that a matrix is not too large for one message, and for one entry of the ledger."""
    if queries > MAX_MATRIX_QUERIES or queries * classes > MAX_MATRIX:
        raise UsageError(
            f"{queries} {what} with {classes} classes are too many for one matrix: at most "
            f"{MAX_MATRIX_QUERIES}, and {MAX_MATRIX} counts"
        )
