"""The party's file, read by a campaign's signed schema: which records vote, and the report on it."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from party.flower.supernode import Server
from party.options import StartOptions
from party.policy.operator import question
from party.policy.policy import Policy
from party.session import _read_ahead
from party.teachers.ensemble import Averaged, Ensemble
from party.voting import joining
from party.voting.own_data import GaveUpError, OwnVoters, Training
from party.voting.own_file import OwnFile
from pate.campaign.announced import Announced
from pate.campaign.offer import Offer
from pate.codes import code_of
from pate.data.schema import Schema
from pate.data.values import Images, Inputs, Table, batch_hash
from pate.errors import DataError, ProtocolError, SchemaError, UsageError
from pate.runtime.screen import Screen
from protos import wire
from protos.pate.v1 import vote_pb2
from tests.support.campaign_messages import (
    SERVER_KEY,
    CampaignMessage,
    campaign_message,
    terms_message,
)
from tests.support.party.asked import Asked, ask, describe
from tests.support.processes.programs import until

PUBLIC = Table(("lab", "kind"), (np.array([1.0, 20.0, 60.0, 99.0]), np.array(["x", "y", "x", "z"])))
CLASSES = ("a", "b", "c")
BATCH = batch_hash(PUBLIC.row_hashes())


class Site(Asked):
    """One party over a file, and a server that asks it."""

    def __init__(
        self,
        place: Path,
        rows: str,
        *,
        teachers: int | None = 3,
        records: bool = True,
        classes: tuple[str, ...] | None = None,
        strict: bool = False,
        policy: Policy | None = None,
        public: Inputs = PUBLIC,
        group: str | None = None,
        takes_wanted: bool = False,
    ) -> None:
        (place / "h.csv").write_text(rows)
        said: list[str] = []
        self.warned: list[str] = []
        self.trainings = 0
        training = Training(
            teachers=teachers or 0, takes_wanted=takes_wanted, model="logistic", device="cpu",
            home=place / "home", shown=self.shown,
        )  # fmt: skip
        self.own = OwnVoters(
            OwnFile(data=place / "h.csv", label="y", group=group, classes=classes, strict=strict),
            training=None if teachers is None else training, records=records, key=b"k" * 32,
            say=said.append, warn=self.warned.append,
        )  # fmt: skip
        super().__init__(place / "home", self.own, policy=policy, public=public, said=said)

    @contextlib.contextmanager
    def shown(self) -> Iterator[Callable[[int, int], None]]:
        self.trainings += 1
        yield lambda *_: None

    def describe(
        self, *, at_once: bool = False, agreed: tuple[str, ...] = (), **changes: object
    ) -> vote_pb2.Reply:
        fields = {"classes": CLASSES} | changes
        request = describe(at_once=at_once, agreed=agreed)
        return self.tell(request, campaign_message(PUBLIC, None, **fields))

    def ask(self, **changes: object) -> vote_pb2.Reply:
        terms = terms_message([("a", self.key, 3)])
        fields = {"classes": CLASSES} | changes
        return self.tell(ask(PUBLIC), campaign_message(PUBLIC, terms, **fields))

    def votes(self) -> list[list[int]]:
        reply = self.ask()
        made = wire.read_votes(reply.votes, teachers=3, classes=3, queries=4, batch=BATCH)
        rows: list[list[int]] = made.tolist()
        return rows


def rows(*more: str, n: int = 90) -> str:
    made = [f"{at // 2},{'xyz'[at % 3]},{'ab'[at >= n // 2]}" for at in range(n)]
    return "lab,kind,y\n" + "\n".join([*made, *more]) + "\n"


class Held(Site):
    """A party whose training waits until the test lets it go on."""

    begun: threading.Event
    goes_on: threading.Event

    @contextlib.contextmanager
    def shown(self) -> Iterator[Callable[[int, int], None]]:
        self.trainings += 1
        self.begun.set()
        assert self.goes_on.wait(60)
        yield lambda *_: None


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    monkeypatch.setattr(joining, "_HOLD_S", 0.01)
    party = Held(tmp_path, rows())
    party.begun, party.goes_on = threading.Event(), threading.Event()
    yield party
    party.goes_on.set()


def test_a_party_says_that_it_prepares_before_it_reads_and_nothing_of_how_far_it_is(
    held: Held,
) -> None:
    begin = held.voter._joining.begin
    held.voter._joining.begin = lambda: None  # type: ignore[method-assign]
    first = held.describe(at_once=True)
    assert held.own._held is None
    begin()
    assert held.begun.wait(60)
    again = held.describe(at_once=True)
    for reply in (first, again):
        assert reply.WhichOneof("body") == "preparing"
        reply.nonce = b""
    assert first == again
    assert not held.voter._site.ledger.campaigns()[0].batches  # joined, and asked for nothing
    held.goes_on.set()
    assert held.describe().description.teachers == 3
    assert held.describe(at_once=True).description.teachers == 3
    assert held.trainings == 1


def test_a_party_says_so_once_a_campaign_whatever_it_has_read(tmp_path: Path) -> None:
    """What is read already could depend on a record: an odd cell makes a column another one."""
    for at, file in enumerate((rows(), rows(">150,x,c"))):
        (tmp_path / str(at)).mkdir()
        party = Site(tmp_path / str(at), file)
        party.own.ahead(None, None)
        assert party.describe(at_once=True).WhichOneof("body") == "preparing"


def test_another_campaign_does_not_wait_for_the_training_of_the_last(held: Held) -> None:
    held.describe(at_once=True)
    assert held.begun.wait(60)
    asked: list[vote_pb2.Reply] = []
    other = threading.Thread(target=lambda: asked.append(held.describe(at_once=True, id=b"o" * 16)))
    other.start()
    now = held.voter._joining._preparation
    assert now is not None
    until(lambda: now.abandoned, "the first training is given up")
    held.goes_on.set()
    other.join(60)
    assert isinstance(now.error, GaveUpError)
    assert [reply.WhichOneof("body") for reply in asked] == ["preparing"]
    assert held.describe(id=b"o" * 16).WhichOneof("body") == "description"
    # The first one, asked again, is prepared anew.
    assert held.describe(at_once=True).WhichOneof("body") == "preparing"


@pytest.mark.parametrize("why", ["schema", "no label"])
def test_what_fails_while_it_prepares_is_one_kind_of_refusal_and_ends_the_party(
    tmp_path: Path, why: str
) -> None:
    """A party that stayed would not be asked again."""
    party = Site(tmp_path, rows())
    changes: dict[str, Any] = {"schema": "table other:number"} if why == "schema" else {}
    if why == "no label":
        party.own._file = dataclasses.replace(party.own._file, label=None)
    assert party.describe(at_once=True, **changes).WhichOneof("body") == "preparing"
    assert party.describe(at_once=True, **changes).refusal.kind == "RefusedError"
    assert isinstance(party.voter.refusal, SchemaError if why == "schema" else UsageError)
    assert party.trainings == 0


def test_a_party_whose_data_changed_ends_and_says_what_to_start_again_with(tmp_path: Path) -> None:
    assert Site(tmp_path, rows()).votes()
    party = Site(tmp_path, rows("7,x,a"))
    assert party.ask().refusal.kind == "RefusedError"
    assert "Start again with the file and the options of the first time" in str(party.voter.refusal)
    assert Site(tmp_path, rows()).votes()


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"classes": ("a", "b", "other")}, {}),
        ({"teachers": None}, {}),
        ({"records": False}, {"aggregator": "neighbour", "most_votes": 9}),
        ({}, {"code": "each-9 labels-2-of-3"}),
        ({}, {"unit": "patient"}),
    ],
    ids=["classes", "no teachers", "no records", "several labels", "no patients"],
)
def test_terms_that_our_options_do_not_fit_are_refused_before_a_record_is_read(
    tmp_path: Path, options: dict[str, Any], changes: dict[str, Any]
) -> None:
    party = Site(tmp_path, rows(), **options)
    (tmp_path / "h.csv").unlink()
    assert party.describe(at_once=True, **changes).refusal.kind == "RefusedError"
    assert isinstance(party.voter.refusal, SchemaError)


def test_no_terms_but_signed_ones_make_a_party_read(tmp_path: Path) -> None:
    enrolled = dataclasses.replace(Policy.default(loopback=True), campaigns="enrolled")
    party = Site(tmp_path, rows(), policy=enrolled)
    request = vote_pb2.PartyRequest(describe=vote_pb2.Describe(at_once=True))
    request.version, request.nonce = wire.VERSION, wire.new_id()
    about = campaign_message(PUBLIC, None, classes=CLASSES)
    request.campaign = about.packed()
    signed = vote_pb2.SignedRequest.FromString(wire.sign_request(request, SERVER_KEY))
    request.campaign = about.copy(epsilon=0.5).packed()
    forged = vote_pb2.SignedRequest(
        body=request.SerializeToString(), key=signed.key, signature=signed.signature
    )
    unsigned = vote_pb2.SignedRequest(body=signed.body, key=signed.key)
    for each in (forged, unsigned):
        with pytest.raises(ProtocolError, match=r"signature|not signed"):
            party.voter.handle(each.SerializeToString())
    assert party.voter._joining._preparation is None
    # Signed by another key than that of the enrolment, they are those of another coordinator.
    party.voter._site._pinned = b"p" * 32
    assert party.describe(at_once=True).refusal.kind == "RefusedError"
    assert (party.voter._joining._preparation, party.own._held) == (None, None)


def test_the_campaigns_number_of_teachers_counts_where_the_owner_states_none(
    tmp_path: Path,
) -> None:
    """And nothing else: no record of the party has a say in what the server learns."""
    for at, (file, takes, wanted, expected) in enumerate([
        (rows(), True, 7, 7), (rows(n=8), True, 7, 7), (rows(n=4), True, 7, 7),
        (rows(), True, 0, 3), (rows(), False, 7, 3),
    ]):  # fmt: skip
        (tmp_path / str(at)).mkdir()
        party = Site(tmp_path / str(at), file, takes_wanted=takes)
        assert party.describe(wanted_teachers=wanted).description.teachers == expected
        assert any(line == f"{expected} teachers are ready" for line in party.said)
    # A guess is of the last campaign's number, and is trained again for another.
    party = Site(tmp_path / "0", rows(), takes_wanted=True)
    party.own.ahead(Schema.of(PUBLIC), CLASSES, wanted=7)
    assert party.describe(wanted_teachers=7).description.teachers == 7
    assert party.trainings == 1
    assert party.describe(wanted_teachers=8, id=b"o" * 16).description.teachers == 8
    # And it does not change within a campaign.
    assert party.describe(wanted_teachers=9, id=b"o" * 16).refusal.kind == "RefusedError"
    assert "has changed its wanted_teachers: it was 8, now it is 9" in str(party.voter.error)
    assert party.describe(id=b"o" * 16).refusal.kind == "RefusedError"
    assert "has changed its wanted_teachers: it was 8, now it is none" in str(party.voter.error)
    assert party.describe(id=b"n" * 16).description.teachers == 3
    assert party.describe(wanted_teachers=9, id=b"n" * 16).refusal.kind == "RefusedError"


@pytest.mark.parametrize("records_vote", [True, False])
def test_without_a_server_no_teacher_is_trained_where_records_voted_last(
    tmp_path: Path, records_vote: bool
) -> None:
    party = Site(tmp_path, rows())
    announced = CampaignMessage(
        aggregator="neighbour" if records_vote else "gnmax", schema=PUBLIC.schema(), classes=CLASSES,
        most_votes=9 if records_vote else 0,
    ).announced  # fmt: skip
    last = SimpleNamespace(last=1, offer=SimpleNamespace(announced=announced))
    here: Any = SimpleNamespace(
        ledger=SimpleNamespace(campaigns=lambda: [last]), public=None, own=party.own
    )
    _read_ahead(here, Server("127.0.0.1:1"), Screen("pate-party"))
    assert party.trainings == (not records_vote)


def test_a_party_with_other_classes_than_most_refuses_by_its_own_comparison(tmp_path: Path) -> None:
    party = Site(tmp_path, rows())
    same = party.describe(classes=(), agreed=("a", "b"))
    assert list(same.description.classes) == ["a", "b"]
    assert party.describe(classes=(), agreed=("a", "c")).refusal.kind == "RefusedError"
    said = str(party.voter.refusal)
    assert "only ours have b; ours lack c" in said
    assert "--classes a,c" in said
    with pytest.raises(ProtocolError, match="agreed class list"):
        party.describe(agreed=("a", "b"))


def test_a_class_list_that_is_left_out_later_does_not_make_a_party_name_its_own(
    tmp_path: Path,
) -> None:
    for at, file in enumerate((rows(), rows("7,x,huntington"))):
        (tmp_path / str(at)).mkdir()
        party = Site(tmp_path / str(at), file)
        for agreed, classes in (((), CLASSES), ((), ()), (CLASSES, ())):
            said = party.describe(classes=classes, agreed=agreed).description
            assert tuple(said.classes) == CLASSES
        assert party.describe(classes=(), agreed=("a", "b")).refusal.kind == "RefusedError"
        assert party.trainings == 1


def test_the_answer_has_the_campaigns_classes_and_not_those_that_occur(tmp_path: Path) -> None:
    answers = []
    for at, file in enumerate((rows(), rows("7,x,c"), rows("7,x,huntington"))):
        (tmp_path / str(at)).mkdir()
        party = Site(tmp_path / str(at), file)
        party.own.ahead(None, None)
        answers.append(list(party.describe().description.classes))
    assert answers == [list(CLASSES)] * 3


def test_without_a_list_the_party_says_which_classes_it_has(tmp_path: Path) -> None:
    party = Site(tmp_path, rows())
    party.own.ahead(None, None)
    assert list(party.describe(classes=()).description.classes) == ["a", "b"]


def test_a_right_guess_trains_once_and_a_wrong_one_again(tmp_path: Path) -> None:
    party = Site(tmp_path, rows("7,x,c"))
    party.own.ahead(None, None)
    party.describe()
    assert (party.trainings, party.warned) == (1, [])
    party.votes()
    party.describe(classes=CLASSES[::-1], id=b"o" * 16)  # the same list in another order
    assert party.trainings == 1
    (tmp_path / "odd").mkdir()
    other = Site(tmp_path / "odd", rows(">150,x,c"))
    other.own.ahead(None, None)
    assert "column 'lab' of numbers, but for cells that are none" in other.warned[0]
    other.describe()
    assert other.trainings == 2
    assert other.warned[1] == ("column 'lab': 1 cell (line 92) counts as missing: it is no number")
    votes = other.votes()
    # A start that knows the last campaign guesses right.
    again = Site(tmp_path / "odd", rows(">150,x,c"))
    again.own.ahead(Schema.of(PUBLIC), CLASSES)
    again.describe()
    assert again.trainings == 1
    assert again.votes() == votes


def test_an_altered_cell_moves_one_teachers_vote(tmp_path: Path) -> None:
    """Of three teachers: the shards of the other two, and so their votes, are as they were."""
    found = []
    for at, cell in enumerate(("50", ">150", "12,5", "inf")):
        place = tmp_path / str(at)
        place.mkdir()
        party = Site(place, rows(f'"{cell}",x,c'))
        party.own.ahead(None, None)
        party.describe()
        found.append(np.array(party.votes()))
    for votes in found[1:]:
        # The record leaves one shard and may come into another.
        assert (abs(votes - found[0]).sum(axis=1) <= 4).all()


def test_a_column_of_the_campaign_that_we_lack_is_told_though_the_guess_was_right(
    tmp_path: Path,
) -> None:
    party = Site(tmp_path, rows(), teachers=None)
    party.own.ahead(None, None)
    assert party.warned == []
    line = "table lab:number, kind:category, age:number"
    about = CampaignMessage(aggregator="neighbour", schema=line, classes=CLASSES, most_votes=9)
    party.own.read(about.announced)
    assert party.warned == [
        "column 'age' of the campaign, absent from our table and so from our votes"
    ]


def test_each_column_is_described_as_the_campaign_reads_it(tmp_path: Path) -> None:
    party = Site(tmp_path, rows("NA,x,c", "<5,x,c"), teachers=None)
    party.own.ahead(None, None)
    assert party.said[0] == "our table, as it is read:"
    assert [line.split()[:2] for line in party.said[1:]] == [
        ["lab", "category"],
        ["kind", "category"],
    ]
    party.own.read(
        campaign_message(PUBLIC, classes=CLASSES, aggregator="neighbour", most_votes=9).announced
    )
    assert party.said[4].split(maxsplit=2) == [
        "lab",
        "number",
        "whole numbers of 1 to 2 digits; missing: 1 'na'",
    ]
    assert not any("45" in line or "<5" in line for line in party.said)


def test_a_guess_about_another_campaign_is_given_up(tmp_path: Path) -> None:
    party = Site(tmp_path, rows())
    held = party.own.ahead(Schema.parse("images 9x9x1"), ("cat", "dog"))
    assert held is not None
    assert held.classes == ("a", "b")


def test_what_cannot_serve_a_campaign_is_refused_before_training(tmp_path: Path) -> None:
    party = Site(tmp_path, rows(), classes=("a", "b", "other"))
    party.own.ahead(None, None)
    assert party.describe().refusal.kind == "RefusedError"
    assert isinstance(party.voter.refusal, SchemaError)
    party = Site(tmp_path, rows(), records=False)
    party.own.ahead(None, None)
    refused = party.describe(aggregator="neighbour", most_votes=9).refusal
    assert refused.kind == "RefusedError"
    assert "start without --votes" in str(party.voter.refusal)
    for line in ("images 9x9x1", "table other:number", "nonsense"):
        party = Site(tmp_path, rows())
        party.own.ahead(None, None)
        assert party.describe(schema=line).refusal.kind == "RefusedError"
        assert party.trainings == 1


def test_a_line_that_is_not_the_public_sets_is_refused(tmp_path: Path) -> None:
    """Records are read by the line and vote on the set."""
    party = Site(tmp_path, rows())
    party.own.ahead(None, None)
    reply = party.describe(schema="table lab:category, kind:category")
    assert reply.refusal.kind == "RefusedError"
    assert "its public set is table lab:number" in str(party.voter.refusal)


def test_nothing_is_read_or_trained_for_a_campaign_that_the_policy_refuses(tmp_path: Path) -> None:
    """Otherwise any server could learn by class lists which classes occur, or cause long trainings."""
    policy = dataclasses.replace(Policy.default(loopback=True), campaigns="enrolled")
    for at, classes in enumerate((CLASSES, ("a", "b"), ("u", "v"))):
        for asks in (Site.describe, partial(Site.describe, at_once=True), Site.ask):
            party = Site(tmp_path, rows(), policy=policy)
            assert asks(party, classes=classes).refusal.kind == "RefusedError", at
            assert (party.trainings, party.said[1:], party.warned) == (0, [], [])
            assert "campaigns is enrolled" in party.said[0]


def test_who_sits_at_the_screen_is_asked_once_a_campaign(tmp_path: Path) -> None:
    policy = dataclasses.replace(Policy.default(loopback=True), campaigns="ask")
    party = Site(tmp_path, rows(), policy=policy)
    questions: list[str] = []

    def agrees(offer: Offer) -> bool:
        questions.append(question(offer))
        return True

    party.voter._site._ask = agrees
    # A yes is for what was shown, whether or not our data fit it.
    assert party.describe(schema="table other:number").refusal.kind == "RefusedError"
    assert party.describe(epsilon=3.0).WhichOneof("body") == "description"
    assert party.describe(epsilon=3.0).WhichOneof("body") == "description"
    assert ["epsilon 3 " in each for each in questions] == [False, True]


def test_another_reading_of_our_file_within_a_campaign_is_refused_before_training(
    tmp_path: Path,
) -> None:
    party = Site(tmp_path, rows("7,x,c"))
    party.describe()
    assert party.ask(classes=("a", "b")).refusal.kind == "RefusedError"
    assert party.trainings == 1
    assert party.votes()


def test_where_no_record_is_left_the_party_says_so_and_takes_part(tmp_path: Path) -> None:
    """A server could find out by such lists whether a class occurs."""
    party = Site(tmp_path, rows())
    party.own.ahead(None, None)
    assert party.describe(classes=("u", "v")).description.classes == ["u", "v"]
    assert party.voter.refusal is None
    assert "none of our records can take part in this campaign" in party.warned


@pytest.mark.parametrize("more", [">150,x,c", "7,x,", "7,x,huntington", "7,x"])
def test_strict_refuses_what_would_be_left_out(more: str, tmp_path: Path) -> None:
    party = Site(tmp_path, rows(more), strict=True)
    with pytest.raises((DataError, SchemaError)):
        party.own.ahead(Schema.of(PUBLIC), CLASSES, is_guess=False)
    lenient = Site(tmp_path, rows(more))
    held = lenient.own.ahead(Schema.of(PUBLIC), CLASSES, is_guess=False)
    assert held is not None
    assert len(held) >= 90
    _, last = lenient.warned
    assert last == f"{len(held)} of 91 records take part"


def test_strict_or_not_a_campaign_that_one_record_does_not_fit_is_answered(tmp_path: Path) -> None:
    """The server chooses it, and could find out whether there is such a record."""
    party = Site(tmp_path, rows("7,x,c"), strict=True)
    party.own.ahead(Schema.of(PUBLIC), CLASSES, is_guess=False)
    assert party.describe(classes=("a", "b")).WhichOneof("body") == "description"
    assert any("1 record" in line and "takes no part" in line for line in party.warned)


def test_teachers_of_whole_parties_have_a_weaker_penalty_and_votes_of_their_own(
    tmp_path: Path,
) -> None:
    unsure = [f"{at // 2},{'xyz'[at % 3]},{'ab'[at * at % 7 > 2]}" for at in range(60)]
    (tmp_path / "h.csv").write_text("\n".join(["lab,kind,y", *unsure]) + "\n")
    training = Training(
        teachers=1, takes_wanted=True, model="auto", device="cpu", home=tmp_path,
        shown=lambda: contextlib.nullcontext(lambda *_: None),
    )  # fmt: skip
    own = OwnVoters(
        OwnFile(data=tmp_path / "h.csv", label="y"), training=training, records=False,
        key=b"k" * 32, say=print, warn=print,
    )  # fmt: skip

    def voters(unit: str) -> Averaged:
        asked = {"classes": CLASSES, "code": "axes-3", "wanted_teachers": 1, "unit": unit}
        found = own.voters(campaign_message(PUBLIC, None, **asked).announced)
        assert isinstance(found, Averaged)
        return found

    of_record, of_party = voters("record"), voters("party")
    assert voters("party") is of_party
    assert of_record.penalty > of_party.penalty
    # Votes are stored by what decides them.
    assert of_record.fingerprint != of_party.fingerprint
    rest = PUBLIC, range(3), CLASSES, code_of("axes-3")
    assert (of_record.vote(*rest) != of_party.vote(*rest)).any()


def test_no_ensemble_is_made_for_records_that_vote(tmp_path: Path) -> None:
    party = Site(tmp_path, rows())
    party.own.ahead(None, None)
    found = party.own.voters(
        campaign_message(
            PUBLIC, None, classes=CLASSES, aggregator="neighbour", most_votes=9
        ).announced
    )
    assert not isinstance(found, Ensemble)
    assert party.trainings == 1


@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_deep_images_wait_for_the_campaigns_window(kind: str, tmp_path: Path) -> None:
    """They cannot be read before it is known, and a party that has them can take part all the same."""
    deep = np.random.default_rng(2).integers(0, 4096, (12, 5, 5)).astype(np.uint16)
    path = tmp_path / "data.npz" if kind == "npz" else tmp_path / "data"
    if kind == "npz":
        np.savez(path, images=deep + 256, labels=["a", "b"] * 6)
    else:
        for at, pixels in enumerate(deep):
            (path / "ab"[at % 2]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path / "ab"[at % 2] / f"{at}.png")
    warned: list[str] = []
    own = OwnVoters(
        OwnFile(data=path), training=None, records=True, key=b"k" * 32, say=warned.append,
        warn=warned.append,
    )  # fmt: skip
    assert own.ahead(None, None) is None
    assert "--window LOW HIGH" in warned[0]
    public = Images(np.zeros((4, 5, 5, 1), np.uint8), (0, 4351))
    found = own.read(
        campaign_message(
            public, None, classes=("a", "b"), aggregator="neighbour", most_votes=9
        ).announced
    )
    assert found is not None
    assert len(found.records) == 12
    assert found.schema == public.schema()
    found = own.read(
        campaign_message(
            Images(public.pixels), None, classes=("a", "b"), aggregator="neighbour", most_votes=9
        ).announced
    )
    assert found is not None
    assert not len(found.records)
    assert "--window LOW HIGH" in warned[-1]


def test_columns_of_labels_and_a_number_are_read_by_the_campaigns_terms(tmp_path: Path) -> None:
    file = tmp_path / "h.csv"
    file.write_text("lab,kind,y,v,days\n1,x,1,no,3\n60,y,0,yes,40\n7,z,,yes,5\n")

    def own(**more: object) -> OwnVoters:
        return OwnVoters(
            OwnFile(data=file, **more),  # type: ignore[arg-type]
            training=None, records=True, key=b"k" * 32, say=print, warn=print,
        )  # fmt: skip

    def campaign(code: str, classes: tuple[str, ...]) -> Announced:
        fields = {"aggregator": "neighbour", "most_votes": 9, "code": code, "classes": classes}
        return campaign_message(PUBLIC, None, **fields).announced

    several = own(labels=("y", "v"), drop=("days",))
    dataset = several.ahead(None, None)
    assert dataset is not None
    assert (dataset.classes, len(dataset)) == (("v", "y"), 2)
    for code, classes in (("nearest labels-1", ()), ("nearest labels-2", ("y", "none", "v"))):
        found = several.read(campaign(code, classes))
        assert found is not None
        assert found.classes == ("v", "y", "none")
        assert found.records.answers is not None
        assert found.records.answers.tolist() == [[False, True], [True, False]]
        # Of the same file and terms it is read once.
        assert several.read(campaign(code, classes)) is found
    with pytest.raises(SchemaError, match="these are only in one: w"):
        several.read(campaign("nearest labels-2", ("y", "none", "v", "w")))
    with pytest.raises(SchemaError, match="start again with --label"):
        several.read(campaign("", CLASSES))
    number = own(number="days", drop=("y", "v"))
    found = number.read(campaign("nearest number", ("1", "14")))
    assert found is not None
    assert found.classes == ("1", "14")
    assert found.records.answers is not None
    assert found.records.answers.tolist() == [3, 40, 5]
    with pytest.raises(SchemaError, match="ours have a number: start again with --labels"):
        number.read(campaign("nearest labels-2", ("y", "none", "v")))
    with pytest.raises(UsageError, match="--classes is for --label"):
        own(labels=("y", "v"), classes=("y", "v")).ahead(None, None)


def test_teachers_are_not_asked_of_records_with_several_labels(tmp_path: Path) -> None:
    file = tmp_path / "h.csv"
    assert StartOptions(data=file, labels="a, b").label_list == ("a", "b")
    several = StartOptions(data=file, labels="a,b")
    assert (several.only_records, several.trained_later) == (False, True)
    at_once = StartOptions(data=file, labels="a,b", votes="teachers")
    assert (at_once.only_records, at_once.trained_later) == (False, False)
    assert StartOptions(data=file, labels="a,b", votes="neighbour").only_records
    assert StartOptions(data=file, number="a").only_records
    assert not StartOptions(data=file, label="a").only_records
    with pytest.raises(UsageError, match="teachers learn a class or several labels, no number"):
        assert StartOptions(data=file, number="a", votes="teachers").only_records
