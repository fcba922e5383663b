"""The privacy statement: a campaign's guarantee, as in ``privacy.json``.

Nothing in a statement depends on votes except the number of released labels: no margins, no
histogram, no data-dependent epsilon. The epsilon is that of the filter's cap, which was fixed before
the first answer; the realised charge is stated separately and is not a guarantee.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from typing import Final

from pate.accounting import Unit  # noqa: TC001 — its reader looks it up
from pate.codes import NEAREST, adjacency_for, code_of
from pate.errors import ProtocolError, UsageError
from pate.exact import in_text, parse, read, write

#: The digest in what a statement says of an encoder.
ENCODER: Final = re.compile("SHA-256 ([0-9a-f]{64})", re.ASCII)
#: Version of this text form. Readers refuse one that they do not know.
PROTOCOL_VERSION: Final = 2

#: Longest text of a statement, in characters.
_LONGEST: Final = 2**20
_REALISED: Final = "what this run was charged; a description of the run, not a guarantee"

_FIXED: Final = (
    "public, and the same for neighbours, are who takes part, each party's number of teachers, the "
    "class list and the names of columns"
)
#: The adjacency, per unit. "Reaches k" is the events' votes_per_unit.
ADJACENCY: Final[Mapping[str, str]] = {
    "record": (
        "one record added or removed: it is in one shard of one party, so it changes the votes of "
        "one teacher, on any number of queries; altering a record may change two teachers and is "
        "not covered at this epsilon; " + _FIXED
    ),
    "patient": (
        "all records of one patient at one party added, removed or altered: they are in one shard, "
        "so they change the votes of one teacher, on any number of queries; a patient known to "
        "several parties counts once at each; altered means that the patient's name stays; "
        + _FIXED
    ),
    "party": (
        "all data of one party altered: it changes the votes of all its teachers, on any number of "
        "queries; " + _FIXED
    ),
}

#: The same in a few words, for a line of a screen.
NEIGHBOURS: Final[Mapping[str, str]] = {
    "record": "one record added or removed",
    "patient": "all records of one patient at one party added, removed or altered",
    "party": "all data of one party altered",
}

#: The same of releases that are priced for a unit that comes or goes, and not for one that changes.
ADDED_OR_REMOVED: Final[Mapping[str, str]] = {
    "record": "one record added or removed",
    "patient": "all records of one patient at one party added or removed",
    "party": "all data of one party added or removed",
}
#: The adjacency of a party whose teachers' votes for a class are one release.
_PARTY_REMOVED: Final = (
    f"{ADDED_OR_REMOVED['party']}: without data it is on the roster all the same and its teachers cast "
    "nothing, on any query; altering its data, or one record of it, may change twice as much and is not "
    "covered at this epsilon; " + _FIXED
)

#: The same of neighbour votes, where units cast their votes themselves.
_VOTING: Final[Mapping[str, tuple[str, str]]] = {
    "record": (
        "one record added, removed or altered",
        "it votes once, for one class at one query, so it moves one vote of the whole matrix",
    ),
    "patient": (
        "all records of one patient at one party added, removed or altered",
        (
            "together they cast no more votes in the whole matrix than the mechanism says; a patient "
            "known to several parties counts once at each"
        ),
    ),
}
#: Why, in a series of campaigns.
_IN_SERIES: Final[Mapping[str, str]] = {
    "record": (
        "it votes once in all campaigns of the series, so it moves one vote of all their matrices "
        "together; a record has no identifier and is known by its content: it stays in its party's "
        "table while the series lasts, and one that reappears with other content counts as another"
    ),
    "patient": (
        "in all campaigns of the series together they cast no more votes than the mechanism says; a "
        "patient known to several parties counts once at each, and one who reappears under another "
        "identifier counts as another"
    ),
}
#: Why, where they vote in rounds.
_IN_ROUNDS: Final[Mapping[str, str]] = {
    "record": (
        "in each round it casts one array of at most one vote's length, and changes no other array"
    ),
    "patient": (
        "in each round they cast one array of at most one vote's length together; a patient known to "
        "several parties counts once at each"
    ),
}
_FIXED_FOR_VOTING: Final = (
    "public, and the same for neighbours, are who takes part, the class list, the names of columns, "
    "and the queries; how many records a party has is not public"
)


def adjacency_of(
    unit: str, *, records_vote: bool, series: bool = False, code: str = NEAREST
) -> str:
    """Return the adjacency, in words; ``code`` is the text of a :class:`~pate.codes.Code`."""
    if not records_vote:
        removed = adjacency_for(code_of(code), unit) == "remove"
        return _PARTY_REMOVED if removed else ADJACENCY[unit]
    what, why = _VOTING[unit]
    if series:
        why = _IN_SERIES[unit]
    elif code_of(code).answer.in_rounds:
        why = _IN_ROUNDS[unit]
    elif unit == "record" and (words := code_of(code).in_words):
        why = f"it casts one vote, {words.removeprefix('each ')}, and changes no other vote"
    return f"{what}: {why}; {_FIXED_FOR_VOTING}"


def do_records_vote(mechanism: object) -> bool:
    """Return whether a statement's mechanism is one of neighbour votes."""
    names = ("neighbour", "distributed-neighbour")
    return isinstance(mechanism, list | tuple) and any(
        isinstance(each, Mapping) and each.get("mechanism") in names for each in mechanism
    )


def code_of_statement(mechanism: object) -> str:
    """Return the text of the code of a statement's mechanism, that of the nearest query if it has none."""
    for each in mechanism if isinstance(mechanism, list | tuple) else ():
        code = each.get("code") if isinstance(each, Mapping) else None
        with contextlib.suppress(UsageError):
            return str(code_of(str(code)))
    return NEAREST


def series_of(statement: Mapping[str, object]) -> str | None:
    """Return the series that a statement's fields name, None for none."""
    series = statement.get("series")
    return series if isinstance(series, str) and series else None


def neighbours_of(
    unit: str, *, records_vote: bool, series: str | None = None, code: str = NEAREST
) -> str:
    """Return the same in a few words, for a line of a screen, with the name of a series.

    Of a unit that is neither record, patient nor party it is a pointer to the privacy statement.

    >>> neighbours_of("party", records_vote=False)
    'all data of one party altered'
    """
    other = "see the privacy statement"
    if records_vote:
        what = _VOTING.get(unit, (other, ""))[0]
        return what + (
            f", in all campaigns of series {series!r} with its composition and no larger cap"
            if series
            else ""
        )
    if adjacency_for(code_of(code), unit) == "remove":
        return ADDED_OR_REMOVED[unit]
    return NEIGHBOURS.get(unit, other)


def in_words(
    epsilon: float, delta: float, unit: str, observer: str = "public", *, neighbours: str
) -> str:
    """Return a guarantee as one line: never smaller than it is, and never without its terms.

    ``neighbours`` are its adjacency; see :func:`neighbours_of`.

    >>> in_words(1.96999, 1e-5, "record", neighbours=neighbours_of("record", records_vote=False))
    'epsilon 1.97 at delta 1e-05 (unit: record; adjacency: one record added or removed; observer: public)'
    """
    return (
        f"epsilon {rounded_up(epsilon)} at delta {delta_rounded_up(delta)} "
        f"(unit: {unit}; adjacency: {neighbours}; observer: {observer})"
    )


def noise_in_words(honest: int | None) -> str:
    """Return what a statement says of noise in shares of so many honest parties; None: of the server's."""
    if honest is None:
        return "central: exact discrete noise, drawn by the server"
    return (
        f"distributed: exact discrete noise, a share from each party, of which {honest} are counted"
    )


def rounded_up(epsilon: float) -> str:
    """Return epsilon with at most four decimals, rounded up: less would promise too much."""
    scaled = epsilon * 1e4
    return f"{epsilon if scaled == round(scaled) else math.ceil(scaled) / 1e4:.10g}"


def delta_rounded_up(delta: float) -> str:
    """Return delta with at most six digits, rounded up.

    >>> delta_rounded_up(1e-5), delta_rounded_up(1.0000049e-5), delta_rounded_up(0.0)
    ('1e-05', '1.00001e-05', '0')
    """
    # Without the last digit of a float, which sums of short numbers leave.
    plain = Decimal(f"{delta:.15g}")
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).plus(plain)):g}"


@dataclass(frozen=True)
class ObserverStatement:
    """The guarantee towards one observer.

    Attributes:
        observer: ``public`` sees the labels and everything made of them; ``server`` sees what the
            aggregator's machine sees.
        epsilon: of (epsilon, delta)-DP, or None where nothing is promised.
        delta: or None where nothing is promised.
        meaning: in words.
    """

    observer: str
    epsilon: float | None
    delta: float | None
    meaning: str


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """The guarantee towards the public at the top, and each observer's in ``statements``.

    Attributes:
        protocol_version: of this text form.
        campaign: id, hex.
        observer: whom ``epsilon`` is about: ``public``.
        epsilon: guarantee for all labels together, in nats; it depends on no data.
        delta: failure probability; 0 with geometric noise.
        unit: ``record``, ``patient`` or ``party``.
        adjacency: what one neighbour differs by, in words.
        mechanism: each mechanism with its parameters, in the order of its first round; last the
            gate of a gated campaign, its order and costs in nats.
        aggregation: how votes reach the server.
        noise: where noise was added.
        teachers: M, of the whole roster; 0 where records vote themselves.
        queries_asked: answers given, labels and no answers.
        labels_released: queries that have a label; of several labels, or a number, there are none.
        composition: how costs add up: ``gdp`` (half of mu squared), ``zcdp`` (rho) or ``pure``
            (epsilon).
        cap: most that all answers together may cost in it, ``p/q``: what epsilon stands for.
        realised: what this run was charged, ``p/q``. It describes the run and is not a guarantee:
            another run with the same parameters may be charged up to ``cap``.
        ledger_head: number and digest of the ledger's last entry.
        statements: one per observer.
        series: name of the series of neighbour votes that the campaign is of; None for none. The
            guarantee covers all its campaigns with the same ``composition`` whose ``cap`` is no larger;
            parties accept no other composition in a series.
        series_key: public key of the series' server, 32 bytes in hex: a name may be used by several
            servers, whose series are different ones.
        encoder: the public encoder of the inputs, its digest, and who trained it on what: the guarantee
            is not about the records that it was trained on. None if there is none.

    Raises:
        UsageError: for a value that a statement cannot have.
    """

    campaign: str
    epsilon: float
    delta: float
    unit: Unit
    mechanism: tuple[Mapping[str, str | int], ...]
    aggregation: str
    noise: str
    teachers: int
    queries_asked: int
    labels_released: int
    composition: str
    cap: str
    realised: str
    ledger_head: str
    statements: tuple[ObserverStatement, ...]
    adjacency: str
    observer: str = "public"
    protocol_version: int = PROTOCOL_VERSION
    #: Omitted from the text if there is none, as are the next two.
    series: str | None = field(default=None, metadata=in_text(omitted=True))
    series_key: str | None = field(default=None, metadata=in_text(omitted=True))
    encoder: str | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        if self.protocol_version != PROTOCOL_VERSION:
            raise UsageError(
                f"a privacy statement of version {self.protocol_version!r}, known is {PROTOCOL_VERSION}"
            )
        if not isinstance(self.campaign, str) or not re.fullmatch("([0-9a-f]{2})+", self.campaign):
            raise UsageError(f"a campaign's id is hexadecimal, got {self.campaign!r:.40}")
        if self.unit not in ADJACENCY:
            raise UsageError(f"unknown unit of privacy {self.unit!r}")
        if self.series is not None and not do_records_vote(self.mechanism):
            raise UsageError("a series is of neighbour votes")
        key = self.series_key
        if (self.series is None) != (key is None):
            raise UsageError("a series is stated with its server's key")
        if key is not None and not re.fullmatch("[0-9a-f]{64}", key):
            raise UsageError(f"the key of a series is 64 hexadecimal digits, got {key!r:.80}")
        _check_figures(self.epsilon, self.delta)
        for each in self.statements:
            if (each.epsilon is None) != (each.delta is None):
                raise UsageError(f"observer {each.observer!r} has half a guarantee")
            if each.epsilon is not None and each.delta is not None:
                _check_figures(each.epsilon, each.delta)

    def to_json(self) -> str:
        """Return the text of ``privacy.json``: sorted keys, one text per value."""
        body = {**write(self), "realised": {"cost": self.realised, "meaning": _REALISED}}
        return json.dumps(body, indent=2, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PrivacyStatement:
        """Read back what :meth:`to_json` wrote.

        Raises:
            ProtocolError: for a text that is not a statement of this version.
        """
        what = "not a privacy statement of this version"
        body = parse(text, most=_LONGEST, error=ProtocolError, what=what)
        if isinstance(body.get("privacy"), dict):
            raise ProtocolError(f"{what}: a file of labels has it in its field 'privacy'")
        told = body.get("realised")
        if not isinstance(told, dict) or told != {"cost": told.get("cost"), "meaning": _REALISED}:
            raise ProtocolError(f"{what}: realised is not a cost and what it means")
        return read(cls, body | {"realised": told["cost"]}, error=ProtocolError, what=what)


def _check_figures(epsilon: float, delta: float) -> None:
    if not isinstance(epsilon, float) or not math.isfinite(epsilon) or epsilon < 0:
        raise UsageError(f"epsilon must be a number that is not negative, got {epsilon!r}")
    if not isinstance(delta, float) or not 0 <= delta < 1:
        raise UsageError(f"delta must be 0 or more, and below 1, got {delta!r}")
