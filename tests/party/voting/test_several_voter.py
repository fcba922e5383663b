"""Votes for several labels, and with geometric noise, over the protocol: bytes to bytes."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from party.policy.policy import Policy
from party.voting.own_data import OwnVoters, Training
from party.voting.own_file import OwnFile
from party.voting.voters import ReadyVoters
from pate.accounting.filters import Delta
from pate.codes import Code, code_of
from pate.data.values import Inputs, Table
from pate.errors import ProtocolError
from pate.mechanisms import DistributedNeighbour, GNMax, Neighbour, TeacherLabels
from pate.votes import Counts, LooseSum, check_cast
from protos import wire
from protos.terms import bits_of
from tests.party.voting.test_neighbour_voter import (
    HELD,
    MOST,
    NAMES,
    SIZE,
    Hospitals,
    Site,
    batch_of,
    nearest_votes,
)
from tests.party.voting.test_neighbour_voter import (
    ROWS as VOTED_ROWS,
)
from tests.support.campaign_messages import CampaignMessage, campaign_message, terms_message

PUBLIC = Table(("x",), (np.arange(14, dtype=np.float64),))
LABELS = ("a", "b", "c")
ROWS = (0, 3, 4, 9)
TEXT = "each-4 labels-2-of-3"
MECHANISM = TeacherLabels(0, Fraction(60), 1, code=TEXT)
TEACHERS = 3


@dataclass(frozen=True)
class Counted:
    """Three teachers; ``extra`` of them cast a label more than count."""

    extra: int = 0
    classes: tuple[str, ...] = LABELS
    answer: str = "labels"
    teachers: int = TEACHERS
    unit: str = "record"
    schema: str = PUBLIC.schema()
    fingerprint: bytes = b"f" * 32

    def conform(self, inputs: Inputs) -> Inputs:
        return inputs

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        votes = np.zeros((len(rows), len(classes)), dtype=np.int64)
        votes[:, : code.answer.most] = self.teachers
        votes[:, code.answer.most :] = self.extra
        return votes


class LabelSite(Site):
    """A party with teachers of several labels."""

    def __init__(self, home: Path, own: Counted | None = None, **more: Any) -> None:
        super().__init__(home, None, public=PUBLIC, teachers=True, **more)
        self.voter._voters = self.voter._joining._voters = ReadyVoters(own or Counted())

    def campaign(self, mechanisms: Any = (MECHANISM,), **changes: Any) -> CampaignMessage:
        fields: dict[str, Any] = {
            "most": TEACHERS,
            "aggregator": "gnmax",
            "code": TEXT,
            "classes": LABELS,
        }
        return super().campaign(mechanisms, **(fields | {"most_votes": 0} | changes))


def cast_by(site: LabelSite) -> Counts:
    return wire.read_votes(
        site.ask().votes,
        teachers=TEACHERS,
        classes=3,
        queries=4,
        batch=batch_of(ROWS, PUBLIC).digest,
        code=code_of(TEXT),
    )


def test_teachers_cast_labels_once_in_a_campaign(tmp_path: Path) -> None:
    a = LabelSite(tmp_path / "a")
    votes = cast_by(a)
    assert votes.tolist() == [[3, 3, 0]] * 4
    # The same again, and nothing else: one release was charged.
    assert a.ask().WhichOneof("body") == "votes"
    a.refuses(a.ask(rows=(0, 1, 2, 3)), "RefusedError", "released once")


@pytest.mark.parametrize("rows", [(0,), (0, 1, 2), (0, 1, 2, 3, 4)])
def test_no_other_number_of_queries_than_is_charged(tmp_path: Path, rows: tuple[int, ...]) -> None:
    a = LabelSite(tmp_path / "a")
    with pytest.raises(ProtocolError, match="but 4 are charged for"):
        a.ask(rows=rows)
    assert a.answered == 0


def test_who_votes_for_a_class_refuses_labels_and_the_other_way_round(tmp_path: Path) -> None:
    a = LabelSite(tmp_path / "a", Counted(answer="class"))
    a.refuses(a.ask(), "SchemaError", "asks teachers for several labels, ours have a class")
    b = LabelSite(tmp_path / "b")
    plain = b.campaign((GNMax(Fraction(60), 1),), code="")
    b.refuses(b.ask(plain), "SchemaError", "asks teachers for a class, ours have several labels")


def test_a_policy_without_labels_refuses(tmp_path: Path) -> None:
    policy = replace(Policy.default(loopback=True), answers=("class",))
    a = LabelSite(tmp_path / "a", policy=policy)
    a.refuses(a.ask(), "RefusedError", "answers")
    nearest = replace(Policy.default(loopback=True), codes=("nearest",))
    assert LabelSite(tmp_path / "b", policy=nearest).ask().WhichOneof("body") == "votes"


def test_more_labels_than_count_never_leave_nor_do_damaged_votes(tmp_path: Path) -> None:
    a = LabelSite(tmp_path / "a", Counted(extra=1))
    a.refuses(a.ask(), "ProtocolError", "3 teachers cast at most 2 votes each a query")
    assert a.answered == 0
    b = LabelSite(tmp_path / "b")
    b.ask()
    with contextlib.closing(sqlite3.connect(tmp_path / "b" / "votes.db")) as db, db:
        db.execute("UPDATE votes SET counts = ?", (np.full(3, 3, "<i8").tobytes(),))
    b.refuses(b.ask(), "ProtocolError", "3 teachers cast at most 2 votes")


def test_a_file_of_several_labels_has_teachers_once_a_campaign_asks(tmp_path: Path) -> None:
    """A label of the file is found by its name, and there is no column for records without one."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=60)
    lines = [f"{x:.3f},{int(x > 0)},{int(x < 1)},{int(x > -1)}" for x in values.tolist()]
    (tmp_path / "h.csv").write_text("\n".join(("x,c,a,b", *lines)) + "\n")
    trainings = []

    @contextlib.contextmanager
    def training() -> Iterator[Callable[[int, int], None]]:
        trainings.append(1)
        yield lambda *_: None

    a = LabelSite(tmp_path / "a")
    own = OwnVoters(
        OwnFile(data=tmp_path / "h.csv", labels=("c", "a", "b")),
        training=Training(
            teachers=TEACHERS, later=True, model="linear", device="cpu", home=tmp_path / "a",
            shown=training,
        ),
        records=True, key=b"k" * 32, say=print, warn=print,
    )  # fmt: skip
    a.voter._voters = a.voter._joining._voters = own
    assert own.ahead(None, None) is not None
    assert not trainings
    assert a.describe(a.campaign(joined=False)).description.teachers == TEACHERS
    assert trainings == [1]
    votes = cast_by(a)
    # The query 0 lies at all borders, the others far beyond them.
    assert votes[1:].tolist() == [[0, 3, 3]] * 3
    poll = a.campaign((GNMax(Fraction(60), 1),), code="", id=b"t" * 16)
    a.refuses(a.describe(poll), "RefusedError", "asks teachers for a class")


def test_the_server_checks_what_teachers_can_cast() -> None:
    code: Code = code_of(TEXT)
    good = np.array([[3, 3, 0], [2, 2, 2]])
    check_cast(good, code, 3)
    LooseSum(good, 3, code)
    for bad in ([3, 3, 1], [4, 0, 0], [-1, 0, 0]):
        with pytest.raises(ProtocolError):
            check_cast(np.array([bad]), code, 3)
        with pytest.raises(ProtocolError):
            LooseSum(np.array([bad]), 3, code)
        check_cast(np.array([bad]), code, 3, reach=1)
    with pytest.raises(ProtocolError):
        check_cast(np.array([[4, 4, 2]]), code, 3, reach=1)


SCALE = Fraction(20)
CENTRAL = Neighbour(3, votes_per_unit=1, scale=SCALE)
SHARES = DistributedNeighbour(3, honest=2, votes_per_unit=1, scale=SCALE)
PURE: dict[str, Any] = {"composition": "pure", "cap": "1/10", "epsilon": 0.1, "delta": 0.0}
LOOSE = Policy.default(loopback=True)


@pytest.fixture
def a(tmp_path: Path) -> Site:
    return Site(tmp_path / "a")


class PureHospitals(Hospitals):
    """The four parties, in campaigns of pure epsilon 0.1."""

    def pure(self, id_: bytes = b"c" * 16) -> CampaignMessage:
        members = [(p.name, bytes.fromhex(p.identity), MOST) for p in self.roster]
        return campaign_message(
            self.sites["a"].public,
            terms_message(members, [SHARES], "pure", "1/10"),
            id=id_, aggregator="neighbour", most_votes=MOST, classes=HELD.classes,
            aggregation="masked", min_parties=3, colluders=1, noise="distributed",
            epsilon=0.1, delta=0.0,
        )  # fmt: skip


@pytest.fixture
def hospitals(tmp_path: Path) -> PureHospitals:
    return PureHospitals(tmp_path)


# --- shares in masked sums ----------------------------------------------------------------------


#: Who answers each of the five steps: all, or all but one that stays away before its votes leave.
ATTENDANCE = [[NAMES] * 5, [NAMES] * 2 + [NAMES[:3]] * 3]


@pytest.mark.parametrize("steps", ATTENDANCE, ids=["all", "one stays away"])
def test_a_noisy_sum_of_those_who_stay(
    hospitals: PureHospitals, steps: Sequence[Sequence[str]]
) -> None:
    campaign = hospitals.pure()
    found = hospitals.run(hospitals.aggregation(campaign), steps)
    there = [at for at in range(SIZE) if NAMES[at % 4] in steps[-1]]
    apart = found - nearest_votes(HELD.take(there), VOTED_ROWS)
    # Eight counts of scale 20 are all as they were with a chance below 1e-12.
    assert np.abs(apart).max() > 0
    # Beyond this with probability 2^-60.
    assert np.abs(apart).max() <= SHARES.shares.reach(len(steps[-1]), apart.size)
    for name in steps[-1]:
        figure = hospitals.sites[name].site.ledger.cumulative_epsilon(Delta(1e-5))
        assert (figure.epsilon, figure.observer) == (0.1, "server")


def test_after_a_restart_a_party_sends_the_same_noise(hospitals: PureHospitals) -> None:
    campaign = hospitals.pure()
    first = hospitals.run(hospitals.aggregation(campaign), [NAMES] * 5)
    for name in NAMES:
        hospitals.start(name)
    again = hospitals.run(hospitals.aggregation(campaign), [NAMES] * 5)
    np.testing.assert_array_equal(again, first)
    assert hospitals.sites["a"].epsilon() == 0.1


def test_the_integers_of_a_sum_have_room_for_the_noise(hospitals: PureHospitals) -> None:
    campaign = hospitals.pure()
    assert bits_of(campaign.offer(), len(VOTED_ROWS)) == 16
    reach = SHARES.shares.reach(len(NAMES), len(VOTED_ROWS) * 2)
    assert MOST * len(NAMES) + reach < 2**15
    wide = DistributedNeighbour(3, honest=2, votes_per_unit=1, scale=Fraction(600))
    assert campaign.terms is not None
    campaign.terms.mechanisms = [wide]
    assert bits_of(campaign.offer(), len(VOTED_ROWS)) == 32


# --- the party's own figure ----------------------------------------------------------------------


def test_the_own_figure_is_the_pure_epsilon_and_adds_up(a: Site) -> None:
    a.votes(a.campaign([CENTRAL], **PURE))
    a.votes(a.campaign([CENTRAL], **PURE))
    assert a.epsilon() == 0.1
    a.votes(a.campaign([CENTRAL], id=b"2" * 16, **PURE), rows=(0, 3, 4, 10))
    assert a.epsilon() == 0.2
    # Gaussian noise has no pure epsilon: rho adds up, 1/200 each, and that of the other.
    before = a.epsilon()
    a.votes(a.campaign(id=b"3" * 16), rows=(0, 3, 4, 11))
    assert before < a.epsilon() < 1
    # What was answered is in the ledger, and read back.
    again = Site(a.home)
    assert again.epsilon() == a.epsilon()


def test_a_cap_above_what_is_announced_gets_no_votes(a: Site) -> None:
    a.refuses(a.ask(a.campaign([CENTRAL], **PURE | {"cap": "1/9"})), "RefusedError", "")
    assert a.answered == 0
