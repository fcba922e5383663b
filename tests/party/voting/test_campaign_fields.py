"""What a server may vary from campaign to campaign does not make a record another one.

One file is read again for each value of each field of a campaign's message. In a series either its records
are those that have voted, or the campaign is refused. Their identities and shards hang on no class list.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pytest
from PIL import Image

from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.teachers.ensemble import assign_shards
from party.voting.neighbour import NeighbourVotes
from party.voting.own_file import OwnFile
from party.voting.voters import series_voters
from pate.accounting.composition import Gdp, Pure, total_cost
from pate.accounting.filters import GAUSSIAN_PART, Delta
from pate.campaign.announced import Announced
from pate.campaign.offer import Settled
from pate.campaign.roster import Member, SumTerms
from pate.codes import GRID
from pate.data.cells import Decimal, Reading, Thousands
from pate.data.schema import Schema
from pate.data.values import Dataset, Table
from pate.errors import ProtocolError
from pate.mechanisms import Neighbour
from tests.party.voting.test_own_data import Site
from tests.party.voting.test_series import OFFER
from tests.support.campaign_messages import (
    CampaignMessage,
    MemberMessage,
    TermsMessage,
    campaign_message,
    terms_message,
)

if TYPE_CHECKING:
    Change = Callable[[CampaignMessage], None]

from tests.support.party import asked

PUBLIC: Final = Table(
    ("lab", "kind"), (np.array([1.0, 9.0, 21.0, 33.0]), np.array(["x", "y", "z", "x"]))
)
MOST: Final = 500
ONE: Final = Neighbour(3, Fraction(40), 1)
#: Copies, cells that are no number and so read alike, labels of one value in two spellings.
FILE: Final = "lab,kind,y\n" + "".join(
    f"{lab},{kind},{label}\n"
    for lab, kind, label in [
        *((f"{at}.5", "xyz"[at % 3], at % 2) for at in range(30)),
        *[("7", "x", 1)] * 3, ("7.0", "x", "1.0"), ("seven", "x", 1), ("eight", "x", 1), ("", "y", "0"),
    ]
)  # fmt: skip
RECORDS: Final = FILE.count("\n") - 1
PATIENTS: Final = 6
OF_PATIENTS: Final = "who,lab,kind,y\n" + "".join(
    f"p{at % PATIENTS},{at},{'xyz'[at % 3]},{at // PATIENTS % 2}\n" for at in range(4 * PATIENTS)
)
#: Ways to write a list of two classes that have the values 0 and 1.
SPELLINGS: Final = (
    ("0.0", "1.0"), ("False", "True"), ("00", "01"), ("+0", "+1"), ("0e0", "1e0"), ("-0", "1."), ("1", "0"),
    ("0", "0.0", "1"), ("0", "1", "2"), ("TRUE", "0"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Value:
    """Another value of a field, and what a party makes of a campaign that has it.

    Attributes:
        change: made to the campaign.
        then: ``same``: it takes part, and knows its records; ``refused``; or ``adds up``: it takes part, and
            counts both campaigns.
        public: of the campaign, which may be another one.
    """

    change: Change
    then: Literal["same", "refused", "adds up"]
    public: Table = PUBLIC


def of(then: Literal["same", "refused", "adds up"] = "refused", **fields: object) -> Value:
    """Plain fields of the campaign."""

    def change(campaign: CampaignMessage) -> None:
        for name, value in fields.items():
            setattr(campaign, name, value)

    return Value(change, then)


def in_terms(then: Literal["same", "refused"], change: Callable[[TermsMessage], object]) -> Value:
    """A change of the terms."""
    return Value(lambda campaign: void(change(terms_of(campaign))), then)


def terms_of(campaign: CampaignMessage) -> TermsMessage:
    """What is settled of a campaign, which is."""
    assert campaign.terms is not None
    return campaign.terms


def void(_: object) -> None:
    """Return nothing."""


def over(public: Table, then: Literal["same", "refused"]) -> Value:
    """Another public set, described as it is."""

    def change(campaign: CampaignMessage) -> None:
        told = campaign_message(public)
        campaign.public_set, campaign.queries, campaign.schema = (
            told.public_set, told.queries, told.schema,
        )  # fmt: skip

    return Value(change, then, public)


def noise(then: Literal["same", "refused"], mechanism: Neighbour, **fields: object) -> Value:
    """Another mechanism at its own cost, and other fields."""

    def change(campaign: CampaignMessage) -> None:
        of(then, **fields).change(campaign)
        composition = Pure() if campaign.delta == 0 else Gdp()
        terms = terms_of(campaign)
        terms.mechanisms, terms.composition = [mechanism], composition.name
        terms.cap = str(total_cost(composition, mechanism.worst))

    return Value(change, then)


def member(**fields: object) -> Value:
    """Another entry of the roster."""

    def change(terms: TermsMessage) -> None:
        for name, value in fields.items():
            setattr(terms.roster[0], name, value)

    return in_terms("refused", change)


def most(campaign: CampaignMessage) -> None:
    """Another bound on a count, in both of its places."""
    campaign.most_votes = terms_of(campaign).roster[0].teachers = MOST - 1


def columns(**numbers: bool) -> Table:
    """A public set with these columns, of numbers or of texts."""
    made = [np.arange(4.0) if each else np.array(list("wxyz")) for each in numbers.values()]
    return Table(tuple(numbers), tuple(made))


NUMBER, TEXT = True, False
OTHER_ROWS: Final = Table(("kind", "lab"), (np.array(["y"] * 5 + ["w"]), np.arange(6.0)))
EMBEDDED: Final = f"embeddings 4 by {'ab' * 32} of texts"

#: For each field of a campaign's message what a server may put there.
VARIED: Final[dict[str, list[Value]]] = {
    "Announced.id": [of("same", id=b"x" * 16)],
    "Announced.classes": [
        *(of("same", classes=each) for each in SPELLINGS),
        of("same", classes=("1", "other")),  # records of another class take no part in it
        of("same", classes=("False", "other")),
    ],
    "Announced.public_set": [over(OTHER_ROWS, "same"), of(public_set=b"p" * 32)],
    "Announced.queries": [of(queries=5)],
    "Announced.schema": [
        over(columns(lab=NUMBER), "refused"),
        over(columns(lab=TEXT, kind=TEXT), "refused"),
        over(columns(lab=NUMBER, kind=NUMBER), "refused"),
        over(columns(lab=NUMBER, kind=TEXT, more=NUMBER), "same"),  # we have no such column
        of(schema=EMBEDDED),
        of(schema="images 4x4x1"),
        of(schema="images 4x4x1 window 0 4095"),
    ],
    "Announced.aggregator": [of(aggregator="gnmax"), of(aggregator="gnmax", most_votes=0)],
    "Announced.unit": [of(unit="patient"), of(unit="party")],
    "Announced.sums.aggregation": [of(aggregation="masked")],
    "Announced.epsilon": [of("same", epsilon=2.0)],
    "Announced.delta": [of("same", delta=1e-6), of(delta=0.0)],
    "Announced.rounds": [of(rounds=2)],
    "Announced.sums.noise": [of(noise="distributed")],
    "Announced.sums.min_parties": [of(min_parties=2)],
    "Announced.sums.colluders": [of("same", colluders=1)],
    "Announced.vote_proofs": [of(vote_proofs=True)],
    "Announced.most_votes": [Value(most, "same"), of(most_votes=MOST - 1)],
    "Announced.code": [
        noise("same", Neighbour(3, Fraction(88 * GRID), 1, code="dense-4"), code="dense-4"),
        of(code="dense-4"),
        of(code="nearest number"),
        of(code="nearest labels-1"),
    ],
    "Announced.wanted_teachers": [of(wanted_teachers=10)],
    "Announced.series": [of("adds up", series="weekly"), of("adds up", series="")],
    "Offer.settled": [of(terms=None)],
    "Settled.roster": [
        in_terms("same", lambda terms: terms.roster.append(MemberMessage("b", b"b" * 32, MOST))),
        in_terms("refused", lambda terms: terms.roster.clear()),
    ],
    "Settled.mechanisms": [
        noise("same", Neighbour(3, Fraction(60), 1)),
        noise("same", Neighbour(5, Fraction(30), 1)),
        noise("refused", Neighbour(3, Fraction(40), 2)),
    ],
    "Settled.composition": [
        noise("refused", Neighbour(3, None, 1, scale=Fraction(2)), delta=0.0, epsilon=9.0),
        in_terms("refused", lambda terms: setattr(terms, "composition", "zcdp")),
    ],
    "Settled.cap": [in_terms("same", lambda terms: setattr(terms, "cap", "1/50"))],
    "Settled.gate": [in_terms("refused", lambda terms: setattr(terms, "gate", {}))],
    "Member.name": [member(name="b")],
    "Member.identity": [member(identity=b"b" * 32)],
    "Member.teachers": [member(teachers=MOST - 1)],
}  # fmt: skip


def test_every_field_of_a_campaign_is_varied() -> None:
    kinds = {
        "Announced": Announced,
        "Settled": Settled,
        "Member": Member,
        "Announced.sums": SumTerms,
    }
    found = {f"{name}.{each.name}" for name, kind in kinds.items() for each in fields(kind)}
    assert set(VARIED) == found - {"Announced.sums"} | {"Offer.settled"}


def ask(
    place: Path, number: int, value: Value | None = None, *, patients: bool = False
) -> int | None:
    """Start the party anew, and ask it as the usual campaign does, or as one with that value.

    Returns the number of votes that leave; None if it refuses.
    """
    public = PUBLIC if value is None else value.public
    site = Site(
        place,
        OF_PATIENTS if patients else FILE,
        public=public,
        group="who" if patients else None,
    )
    terms = terms_message([("a", site.key, MOST)], (ONE,))
    campaign = campaign_message(
        PUBLIC, terms, id=bytes([number]) * 16, aggregator="neighbour", most_votes=MOST,
        classes=("0", "1"), series="monthly", unit="patient" if patients else "record",
    )  # fmt: skip
    if value is not None:
        value.change(campaign)
    try:
        reply = site.tell(asked.ask(public), campaign)
    except ProtocolError:  # an impossible message gets no answer
        return None
    if reply.WhichOneof("body") != "votes":
        return None
    return int(np.frombuffer(reply.votes.counts, dtype=f"<u{reply.votes.width}").sum())


def voted(place: Path) -> set[bytes]:
    """The units in the ledger of a party."""
    with closing(sqlite3.connect(place / "home" / LEDGER_FILE)) as db:
        return {unit for (unit,) in db.execute("SELECT unit FROM units")}


#: Fields that decide how a file is read, or what is charged: the first campaign is given their values, too.
_FIRST: Final = ("classes", "public_set", "schema", "unit", "code", "composition")
CASES: Final = [
    pytest.param(value, first, id=f"{name}-{at}{'-first' * first}")
    for name, values in VARIED.items()
    for at, value in enumerate(values)
    for first in (False, True)[: 1 + name.endswith(_FIRST)]
]


@pytest.mark.parametrize(("value", "first"), CASES)
def test_a_record_votes_once_in_a_series_whatever_the_server_varies(
    tmp_path: Path, value: Value, first: bool
) -> None:
    took_part, units = [], []
    for number, each in enumerate((value, None) if first else (None, value), start=1):
        took_part.append(ask(tmp_path, number, each) is not None)
        units.append(voted(tmp_path))
    if value.then == "adds up":
        found = PartyLedger(tmp_path / "home" / LEDGER_FILE).cumulative_epsilon(Delta(1e-5))
        both = Gdp().epsilon(2 * total_cost(Gdp(), ONE.worst), Delta(1e-5).of(GAUSSIAN_PART))
        assert (took_part, found.epsilon) == ([True, True], both)
        return
    # Of two ways to know records that cannot be told to be one, the second is refused.
    assert sum(took_part) == (2 if value.then == "same" else 1)
    assert len(units[1]) == RECORDS
    if not first:
        assert units[0] == units[1]


def shards_by_content(data: Dataset) -> dict[bytes, int]:
    """The shard of each record, by its identity."""
    hashes = data.row_hashes()
    shards = assign_shards(data, 5, b"k" * 32, row_hashes=hashes)
    return dict(zip(hashes, shards.tolist(), strict=True))


def a_table(place: Path) -> OwnFile:
    (place / "h.csv").write_text(FILE)
    return OwnFile(data=place / "h.csv", label="y")


def truths(place: Path) -> OwnFile:
    (place / "h.csv").write_text("lab,y\n1,True\n2,FALSE\n3,1.0\n4,0\n")
    return OwnFile(data=place / "h.csv", label="y")


def an_archive(place: Path) -> OwnFile:
    pictures = np.arange(6 * 16, dtype=np.uint8).reshape(6, 4, 4)
    np.savez(place / "h.npz", images=pictures, labels=np.arange(6) % 2)
    return OwnFile(data=place / "h.npz")


def a_folder(place: Path) -> OwnFile:
    for at in range(6):
        (place / "h" / str(at % 2)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), at, np.uint8)).save(place / "h" / str(at % 2) / f"{at}.png")
    return OwnFile(data=place / "h")


@pytest.mark.parametrize("made", [a_table, truths, an_archive, a_folder])
def test_no_class_list_makes_a_record_another_one(
    tmp_path: Path, made: Callable[[Path], OwnFile]
) -> None:
    """Of a list that lacks its class a record takes no part; the others are who they were."""
    file = made(tmp_path)
    plain, _ = file.read(None, ("0", "1"))
    usual = shards_by_content(plain)
    for classes in SPELLINGS:
        for each, _ in (
            file.read(None, classes),
            replace(file, classes=classes).read(None, classes),
        ):
            assert shards_by_content(each) == usual
            assert sorted(each.row_hashes()) == sorted(plain.row_hashes())
    for classes in (("1", "other"), ("True", "other")):
        found = shards_by_content(file.read(None, classes)[0])
        assert 0 < len(found) < len(usual)
        assert found.items() <= usual.items()


@pytest.mark.parametrize(
    ("file", "lists"),
    [
        ({"labels": ("a", "b")}, (("a", "b", "none"), ("none", "b", "a"))),
        ({"number": "y"}, (("0", "10"), ("-5", "0", "5.5"))),
    ],
)
def test_nor_does_a_list_of_labels_or_points(
    tmp_path: Path, file: dict[str, Any], lists: tuple[tuple[str, ...], ...]
) -> None:
    (tmp_path / "h.csv").write_text("lab,a,b,y\n1,1,0,3\n2,yes,no,4.5\n3,0,0,90\n")
    own = OwnFile(data=tmp_path / "h.csv", drop=("a", "b", "y"), **file)
    one, other = (shards_by_content(own.read(None, each)[0]) for each in lists)
    assert one == other


@pytest.mark.parametrize("shape", ["4x4x1", "4x4x3", "4x4x1 window 0 4095"])
@pytest.mark.parametrize("made", [an_archive, a_folder])
def test_another_reading_of_images_is_another_way_to_know_them(
    tmp_path: Path, made: Callable[[Path], OwnFile], shape: str
) -> None:
    """Where pixels depend on size, colour or window, so does what a series knows its records by."""
    file, known = made(tmp_path), {}
    for text in ("4x4x1", shape):
        data, _ = file.read(Schema.parse(f"images {text}"), ("0", "1"))
        records = NeighbourVotes(data, b"key", known_by=file.known_by)
        found = series_voters(records, OFFER, b"secret", lambda _: frozenset(), None)
        known[text] = found.known_by
        assert len(found.units) == 6
    assert len(set(known.values())) == len(known)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        of(classes=("False", "True")),
        of(classes=("1", "other")),
        over(columns(lab=NUMBER), "same"),
        over(columns(lab=TEXT, kind=TEXT), "same"),
    ],
)
def test_a_patient_has_one_vote_whatever_the_server_varies(
    tmp_path: Path, value: Value, first: bool
) -> None:
    """Columns may change: a patient is known by the identifier."""
    asked = (value, None) if first else (None, value)
    votes = [ask(tmp_path, number, each, patients=True) for number, each in enumerate(asked, 1)]
    assert votes[0]
    assert sum(each or 0 for each in votes) == PATIENTS
    assert None not in votes


def test_another_reading_of_cells_is_another_way_to_know_them(tmp_path: Path) -> None:
    """1,250 is 1250 or 1.25 by the owner's words only, and each is another record."""
    (tmp_path / "h.csv").write_text('lab,y\n"1,250",0\n"2,500",1\n')
    words: tuple[tuple[Decimal, Thousands | None], ...] = (
        ("point", None), ("point", "comma"), ("comma", None), ("comma", "none"), ("comma", "point"),
    )  # fmt: skip
    known, hashes = set(), set()
    for decimal, thousands in words:
        file = OwnFile(
            data=tmp_path / "h.csv", label="y", reading=Reading.of(decimal, None, thousands)
        )
        data, _ = file.read(Schema.parse("table lab:number"), ("0", "1"))
        records = NeighbourVotes(data, b"key", known_by=file.known_by)
        known.add(series_voters(records, OFFER, b"secret", lambda _: frozenset(), None).known_by)
        hashes.add(tuple(data.row_hashes()))
    assert len(known) == len(words)
    assert len(hashes) == 3  # missing, by thousands and by decimals
