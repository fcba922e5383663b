"""Neighbour votes over the protocol, against a server that lies: bytes to bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator_server.exchange.aggregation import ANSWERS, Batch, MaskedAggregation
from party.policy.operator import rules_in_words
from party.policy.policy import Policy
from party.voting.neighbour import NeighbourVotes
from party.voting.voters import ReadyVoters
from pate.accounting.composition import Gdp, total_cost
from pate.accounting.filters import GAUSSIAN_PART, Delta
from pate.campaign.roster import RosterParty
from pate.codes import GRID, Code, code_of
from pate.data.values import Dataset, Images, Inputs, Table, batch_hash
from pate.errors import ProtocolError, UsageError
from pate.features.dense import Directions, dense_votes, looked_at
from pate.features.space import directions_over, space_over
from pate.mechanisms import DistributedNeighbour, Mechanism, Neighbour
from pate.votes import Counts
from protos import wire
from protos.pate.v1 import vote_pb2
from tests.party.voting.test_voter import Parity
from tests.support.campaign_messages import CampaignMessage, campaign_message, terms_message
from tests.support.party.asked import Asked, ask, describe

RNG = np.random.default_rng(8)
PUBLIC = Images(RNG.integers(0, 256, (14, 4, 4, 1), dtype=np.uint8))
HASHES = PUBLIC.row_hashes()
ROWS = (0, 3, 4, 9)
CLASSES = ("a", "b")
SIZE = 60
#: Three patients with 20 images each.
HELD = Dataset(
    Images(RNG.integers(0, 256, (SIZE, 4, 4, 1), dtype=np.uint8)),
    RNG.integers(0, 2, SIZE),
    CLASSES,
    np.array([f"p{at % 3}" for at in range(SIZE)]),
)
MOST = 500
ONE = Neighbour(3, Fraction(40), 1)
DENSE = Neighbour(3, Fraction(88 * GRID), 1, code="dense-4")


def of_patients(votes: int) -> Neighbour:
    return Neighbour(3, Fraction(40), votes)


def batch_of(rows: Sequence[int], public: Inputs = PUBLIC) -> Batch:
    hashes = public.row_hashes()
    return Batch(tuple(rows), batch_hash([hashes[row] for row in rows]))


class Site(Asked):
    """One party of records, of teachers or of both, and a server that may send it any request."""

    def __init__(
        self,
        home: Path,
        held: Dataset | None = HELD,
        *,
        public: Inputs = PUBLIC,
        teachers: bool = False,
        **more: Any,
    ) -> None:
        self.public = public
        voters = ReadyVoters(
            Parity(classes=CLASSES) if teachers else None,
            None if held is None else NeighbourVotes(held, b"secret"),
        )
        super().__init__(home, voters, public=public, **more)

    def campaign(
        self,
        mechanisms: Sequence[Mechanism] = (ONE,),
        *,
        most: int = MOST,
        composition: str = "gdp",
        cap: str = "1/100",
        joined: bool = True,
        **changes: Any,
    ) -> CampaignMessage:
        """A plain campaign of neighbour votes that has this party on its roster."""
        member = (self.name, self.key, most)
        terms = terms_message([member], mechanisms, composition, cap) if joined else None
        fields = {"aggregator": "neighbour", "most_votes": most, "classes": CLASSES} | changes
        return campaign_message(self.public, terms, **fields)

    def describe(self, campaign: CampaignMessage | None = None) -> vote_pb2.Reply:
        return self.tell(describe(), campaign or self.campaign(joined=False))

    def ask(
        self, campaign: CampaignMessage | None = None, rows: Sequence[int] = ROWS
    ) -> vote_pb2.Reply:
        return self.tell(ask(self.public, rows), campaign or self.campaign())

    def votes(self, campaign: CampaignMessage | None = None, rows: Sequence[int] = ROWS) -> Counts:
        about = campaign or self.campaign()
        reply = self.ask(about, rows)
        assert reply.WhichOneof("body") == "votes", self.said[-1]
        return wire.read_votes(
            reply.votes,
            teachers=about.most_votes,
            classes=len(about.classes),
            queries=len(rows),
            batch=batch_of(rows, self.public).digest,
            code=code_of(about.code or "nearest"),
        )


@pytest.fixture
def a(tmp_path: Path) -> Site:
    return Site(tmp_path / "a")


def nearest_votes(held: Dataset, rows: Sequence[int]) -> Counts:
    """Plainly: each record by itself, in doubles."""
    space = space_over(PUBLIC)
    queries = space.embed(PUBLIC.take(list(rows))).astype(float)
    votes = np.zeros((len(rows), len(CLASSES)), dtype=np.int64)
    for at in range(len(held)):
        record = space.embed(held.inputs.take([at])).astype(float)
        votes[np.square(queries - record).sum(axis=1).argmin(), held.labels[at]] += 1
    return votes


def exact_delta(epsilon: float, mu: float) -> float:
    """Of the Gaussian mechanism, as Balle and Wang 2018 have it (Theorem 8)."""
    from scipy.stats import norm

    upper = norm.cdf(mu / 2 - epsilon / mu)
    return float(upper - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


# --- what leaves ------------------------------------------------------------------------------


def test_it_says_what_the_campaign_said_and_not_how_many_records_it_has(a: Site) -> None:
    said = a.describe().description
    assert (said.teachers, list(said.classes), said.unit) == (MOST, list(CLASSES), "patient")
    assert str(SIZE) not in str(said)


def test_each_record_votes_once_at_its_nearest_query(a: Site) -> None:
    votes = a.votes()
    np.testing.assert_array_equal(votes, nearest_votes(HELD, ROWS))
    assert votes.sum() == SIZE


def test_a_dense_vote_is_the_records_array_at_all_queries(a: Site) -> None:
    campaign = a.campaign([DENSE], code="dense-4")
    votes = a.votes(campaign)
    space = directions_over(PUBLIC)
    directions = Directions.fit(
        space.embed(PUBLIC.take(list(ROWS))), space.embed(PUBLIC.take(looked_at(len(PUBLIC))))
    )
    arrays = directions.codes(space.embed(HELD.inputs))
    for label in range(len(CLASSES)):
        np.testing.assert_array_equal(votes[:, label], arrays[HELD.labels == label].sum(axis=0))
    assert (arrays < 0).any()
    np.testing.assert_array_equal(a.votes(campaign), votes)
    few = a.votes(a.campaign([DENSE], code="dense-4", most=1, id=b"3" * 16))
    np.testing.assert_array_equal(few, np.clip(votes, -GRID, GRID))
    other = a.campaign(
        [Neighbour(3, Fraction(90_000), 1, code="dense-3")], code="dense-3", id=b"4" * 16
    )
    a.refuses(a.ask(other), "ProtocolError", "code = dense-3 needs that many")


#: The same images with three labels each, or a number, in place of a class.
FLAGS = RNG.random((SIZE, 3)) < 0.5
LABELLED = replace(HELD, labels=np.zeros(SIZE, np.int64), classes=("u", "v", "w"), answers=FLAGS)
NUMBERED = replace(
    HELD, labels=np.zeros(SIZE, np.int64), classes=(), answers=RNG.uniform(-1, 11, SIZE)
)
COLUMNS = ("w", "none", "u", "v")


def test_records_with_several_labels_vote_for_those_that_count(tmp_path: Path) -> None:
    for number, code in enumerate(("nearest labels-2", "dense-4 labels-2")):
        one = Site(tmp_path / str(number), LABELLED)
        charged = Neighbour(3, Fraction(200 * GRID), 1, code=code)
        campaign = one.campaign([charged], code=code, classes=COLUMNS)
        found = one.votes(campaign)
        grid = code_of(code).grid
        if code_of(code).name == "dense":
            assert found.any()
            continue
        counted = np.minimum(FLAGS.sum(axis=1), 2).sum()
        assert found[:, [0, 2, 3]].sum() == grid * counted
        # None and half of each label are the records.
        assert found[:, 1].sum() + found[:, [0, 2, 3]].sum() // 2 == grid * SIZE
        few = one.votes(one.campaign([charged], code=code, classes=COLUMNS, most=1, id=b"3" * 16))
        assert few.max() == grid


def test_records_with_a_number_vote_for_the_ends_of_its_range(tmp_path: Path) -> None:
    one = Site(tmp_path, NUMBERED)
    code = "nearest number"
    charged = Neighbour(3, Fraction(5000), 1, code=code)
    found = one.votes(one.campaign([charged], code=code, classes=("0", "10")))
    assert found.sum() == 64 * SIZE
    assert NUMBERED.answers is not None
    clipped = np.clip(NUMBERED.answers.astype(np.float64), 0, 10)
    assert abs(found[:, 1].sum() / 64 - clipped.sum() / 10) < SIZE / 128


@pytest.mark.parametrize(
    ("held", "code", "why"),
    [
        (HELD, "nearest labels-2", "asks records for several labels, ours have a class"),
        (LABELLED, "", "asks records for a class, ours have several labels"),
        (NUMBERED, "nearest labels-2", "several labels, ours have a number"),
        (LABELLED, "nearest number", "asks records for a number, ours have several labels"),
    ],
)
def test_a_campaign_that_asks_records_for_something_else_is_refused(
    tmp_path: Path, held: Dataset, code: str, why: str
) -> None:
    one = Site(tmp_path, held)
    charged = Neighbour(3, Fraction(5000), 1, code=code or "nearest")
    columns = {"": CLASSES, "nearest number": ("0", "10")}.get(code, COLUMNS)
    campaign = one.campaign([charged], code=code, classes=columns)
    one.refuses(one.ask(campaign), "SchemaError", why)


def test_a_range_as_wide_as_numbers_are_counts_each_record_once(tmp_path: Path) -> None:
    for at, ends in enumerate((("0", "1e308"), ("0", "5e-324"), ("1e16", "1.0000000000000002e16"))):
        one = Site(tmp_path / str(at), NUMBERED)
        code = "nearest number"
        charged = Neighbour(3, Fraction(5000), 1, code=code)
        assert one.votes(one.campaign([charged], code=code, classes=ends)).sum() == 64 * SIZE


def test_a_policy_can_refuse_an_answer(tmp_path: Path) -> None:
    strict = replace(Policy.default(loopback=True), answers=("class",))
    assert (
        "accepts neighbour votes only with the answer class, and no teachers' votes for several labels"
        in rules_in_words(strict)
    )
    one = Site(tmp_path, LABELLED, policy=strict)
    code = "nearest labels-2"
    charged = Neighbour(3, Fraction(200), 1, code=code)
    campaign = one.campaign([charged], code=code, classes=COLUMNS)
    one.refuses(one.ask(campaign), "RefusedError", "answers")


def test_what_is_charged_is_the_code_that_records_vote_by(a: Site) -> None:
    """Terms that do not fit are no request; :mod:`tests.party.voting.test_hostile_histories` has all."""
    with pytest.raises(ProtocolError, match="records vote by the code"):
        a.ask(a.campaign([ONE], code="dense-4"))
    wide = Neighbour(3, Fraction(88 * GRID), 1, code="dense-5")
    a.refuses(a.ask(a.campaign([wide], code="dense-5")), "ProtocolError", "dense-5 needs that many")
    assert a.answered == 0


def test_a_campaign_does_not_change_its_code(tmp_path: Path) -> None:
    for name, first, then in (("a", "", "dense-4"), ("b", "dense-4", "")):
        a = Site(tmp_path / name, name=name)
        a.describe(a.campaign(joined=False, code=first))
        a.refuses(a.describe(a.campaign(joined=False, code=then)), "RefusedError", "its code")


def test_columns_are_in_the_campaigns_order(a: Site) -> None:
    about = a.campaign(classes=("b", "z", "a"))
    np.testing.assert_array_equal(a.votes(about)[:, [2, 0]], nearest_votes(HELD, ROWS))


def test_counts_are_cut_to_what_the_campaign_says(a: Site) -> None:
    votes = a.votes(a.campaign(most=4))
    np.testing.assert_array_equal(votes, np.minimum(nearest_votes(HELD, ROWS), 4))
    assert votes.max() == 4


@pytest.mark.parametrize("cap", [1, 3])
def test_a_patient_casts_no_more_votes_than_the_terms_charge_for(a: Site, cap: int) -> None:
    a.describe(a.campaign(unit="patient", joined=False))
    votes = a.votes(a.campaign([of_patients(cap)], unit="patient"))
    assert votes.sum() == 3 * cap


def test_a_campaign_per_record_does_not_look_at_patients(a: Site) -> None:
    assert a.votes(a.campaign([of_patients(2)])).sum() == SIZE


def test_votes_of_a_campaign_per_record_are_not_those_of_one_per_patient(a: Site) -> None:
    """Nor with another cap, nor another most: the same queries, and what is kept is kept apart."""
    sums = []
    for number, (mechanism, unit, most) in enumerate((
        (ONE, "record", MOST),
        (of_patients(1), "patient", MOST),
        (of_patients(3), "patient", MOST),
        (of_patients(1), "patient", MOST - 1),
        (ONE, "record", 3),
    )):  # fmt: skip
        about = a.campaign([mechanism], unit=unit, most=most, id=bytes([number]) * 16)
        sums.append(a.votes(about))
    assert [each.sum() for each in sums[:4]] == [SIZE, 3, 9, 3]
    np.testing.assert_array_equal(sums[4], np.minimum(sums[0], 3))


def test_two_terms_of_mechanisms_hold_patients_to_the_lesser(a: Site) -> None:
    about = a.campaign([of_patients(3), of_patients(2)], unit="patient")
    assert a.votes(about).sum() == 6


# --- one batch a campaign -----------------------------------------------------------------------


def test_the_same_batch_again_gets_the_same_votes_also_after_a_restart(
    a: Site, tmp_path: Path
) -> None:
    first = a.votes()
    again = Site(tmp_path / "a")
    np.testing.assert_array_equal(again.votes(), first)
    (tmp_path / "a" / "votes.db").unlink()
    np.testing.assert_array_equal(Site(tmp_path / "a").votes(), first)
    assert again.answered == 1


@pytest.mark.parametrize("rows", [(1, 2), (0, 3, 4), (0, 3, 4, 9, 10), (9, 4, 3, 0)])
def test_other_queries_in_the_same_campaign_are_refused(
    a: Site, tmp_path: Path, rows: tuple[int, ...]
) -> None:
    a.votes()
    for one in (a, Site(tmp_path / "a")):
        one.refuses(one.ask(rows=rows), "RefusedError", "each record votes once")
    assert a.site.ledger.campaigns()[0].asked == len(ROWS)


def test_other_rows_under_the_same_digest_are_refused_and_equal_rows_are_the_same(
    tmp_path: Path,
) -> None:
    pixels = np.concatenate([PUBLIC.pixels, PUBLIC.pixels[:1]])  # row 14 is row 0 again
    a = Site(tmp_path / "a", public=Images(pixels))
    first = a.votes()
    request, batch = ask(PUBLIC, ROWS), batch_of(ROWS)
    request.ask.batch.rows[0] = 1
    a.refuses(a.tell(request, a.campaign()), "ProtocolError", "another hash")
    request.ask.batch.rows[0] = 14
    np.testing.assert_array_equal(
        wire.read_votes(
            a.tell(request, a.campaign()).votes,
            teachers=MOST, classes=2, queries=4, batch=batch.digest, code=Code("nearest"),
        ),
        first,
    )  # fmt: skip


def test_new_data_are_refused_in_the_same_campaign(a: Site, tmp_path: Path) -> None:
    a.votes()
    changed = Site(tmp_path / "a", HELD.take(range(SIZE - 1)))
    changed.refuses(changed.ask(), "RefusedError", "data or settings have changed")
    # Other patients are other data: they decide who votes.
    groups = Dataset(HELD.inputs, HELD.labels, CLASSES, np.array(["q"] * SIZE))
    changed = Site(tmp_path / "a", groups)
    changed.refuses(changed.ask(), "RefusedError", "data or settings have changed")


# --- terms that change, or never were any ---------------------------------------------------------


def test_terms_do_not_change_once_they_were_heard(a: Site) -> None:
    a.describe()
    for field, change in (
        ("unit", {"unit": "patient"}),
        ("epsilon", {"epsilon": 2.0}),
        ("queries", {"queries": 15}),
    ):
        if field == "queries":
            reply = a.describe(a.campaign(joined=False, **change))
        else:
            reply = a.ask(a.campaign(**change))
        a.refuses(reply, "RefusedError", f"changed its {field}")
    a.votes()
    for field, about in (
        ("most_votes", a.campaign(most=MOST - 1)),
        ("mechanisms", a.campaign([of_patients(2)])),
        ("mechanisms", a.campaign([Neighbour(4, Fraction(40), 1)])),
        ("cap", a.campaign(cap="1/101")),
        ("classes", a.campaign(classes=("b", "a"))),
        ("mechanisms", a.campaign([ONE, ONE])),
    ):
        a.refuses(a.ask(about), "RefusedError", f"changed its {field}")
    assert a.answered == 1


def test_who_has_no_patients_cannot_protect_them(tmp_path: Path) -> None:
    plain = Dataset(HELD.inputs, HELD.labels, CLASSES)
    a = Site(tmp_path / "a", plain)
    a.refuses(a.describe(a.campaign(unit="patient", joined=False)), "RefusedError", "--group")
    a.refuses(a.ask(a.campaign(unit="patient")), "SchemaError", "--group")
    assert a.describe().description.unit == "record"


def test_who_has_only_teachers_or_only_records_says_so(tmp_path: Path) -> None:
    taught = Site(tmp_path / "a", None, teachers=True)
    taught.refuses(taught.describe(), "RefusedError", "--votes neighbour")
    assert taught.voter.refusal is not None
    records = Site(tmp_path / "b")
    poll = campaign_message(PUBLIC, classes=CLASSES)
    records.refuses(records.describe(poll), "RefusedError", "--votes teachers")
    both = Site(tmp_path / "c", teachers=True)
    assert both.describe().description.teachers == MOST
    assert both.describe(campaign_message(PUBLIC, id=b"t" * 16)).description.teachers == 3
    with pytest.raises(UsageError, match="teachers or with its records"):
        Site(tmp_path / "d", None)


def test_queries_that_are_alike_to_the_records_are_refused_and_nothing_is_counted(
    tmp_path: Path,
) -> None:
    public = Table(("x", "nr"), (np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])))
    held = Dataset(Table(("x",), (np.array([0.0, 3.0]),)), np.array([0, 1]), CLASSES)
    a = Site(tmp_path / "a", held, public=public)
    a.refuses(a.ask(rows=(0, 1)), "SchemaError", "equal in the columns")
    assert a.answered == 0
    assert a.votes(rows=(0, 2)).sum() == 2


def test_a_matrix_too_large_for_anybody_is_refused_before_it_is_made(tmp_path: Path) -> None:
    """Thousands of classes at as many queries would fill the memory of a party."""
    public = Table(("x",), (np.arange(2_000, dtype=np.float64),))
    held = Dataset(Table(("x",), (np.array([0.0, 3.0]),)), np.array([0, 1]), CLASSES)
    a = Site(tmp_path / "a", held, public=public)
    classes = (*CLASSES, *(f"c{at}" for at in range(2_000)))
    with pytest.raises(ProtocolError, match="matrix"):
        a.ask(a.campaign(classes=classes), rows=range(2_000))
    assert a.answered == 0


# --- the site's own say ------------------------------------------------------------------------


LOOSE = Policy.default(loopback=True)
COST = total_cost(Gdp(), ONE.worst)
#: Gaussian noise is converted at its own part of delta, always.
PART = Delta(1e-5).of(GAUSSIAN_PART)


def test_the_own_figure_is_one_gaussian_mechanism_of_sensitivity_root_two(a: Site) -> None:
    assert a.epsilon() == 0
    a.votes()
    a.votes()
    assert a.epsilon() == Gdp().epsilon(COST, PART)
    # And by a formula that is not ours: the discrete noise costs next to nothing more.
    epsilon = a.epsilon()
    assert exact_delta(epsilon, math.sqrt(2) / 40) == pytest.approx(PART, rel=2e-3)
    # A second campaign over nearly the same queries is a second matrix.
    a.votes(a.campaign(id=b"2" * 16), rows=(0, 3, 4, 10))
    assert a.epsilon() == Gdp().epsilon(2 * COST, PART)


@pytest.mark.parametrize("cap", [1, 3])
def test_a_patient_with_more_votes_costs_more(a: Site, cap: int) -> None:
    a.votes(a.campaign([of_patients(cap)], unit="patient"))
    assert exact_delta(a.epsilon(), cap * math.sqrt(2) / 40) == pytest.approx(PART, rel=2e-3)


def test_the_own_figure_stops_a_second_matrix(tmp_path: Path) -> None:
    worth = Gdp().epsilon(COST, PART)
    a = Site(tmp_path / "a", policy=replace(LOOSE, largest_epsilon=worth * 1.2))
    a.votes()
    a.refuses(a.ask(a.campaign(id=b"2" * 16)), "RefusedError", "largest_epsilon")
    assert a.epsilon() == worth


def test_the_promise_is_held_against_the_terms(a: Site) -> None:
    a.refuses(a.ask(a.campaign(cap="1")), "RefusedError", "its terms convert to")


# --- masked sums ---------------------------------------------------------------------------------


NAMES = ("a", "b", "c", "d")
SHARES = DistributedNeighbour(3, Fraction(20), 2, 1)


class Hospitals:
    """Four parties with 15 records each, and a server that may send them any request."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sites: dict[str, Site] = {}
        for name in NAMES:
            self.start(name)
        self.roster = [
            RosterParty(name, one.key.hex(), MOST, "patient") for name, one in self.sites.items()
        ]

    def start(self, name: str) -> Site:
        at = NAMES.index(name)
        self.sites[name] = Site(self.root / name, HELD.take(range(at, SIZE, 4)), name=name)
        return self.sites[name]

    def campaign(
        self,
        mechanism: Mechanism = ONE,
        *,
        names: Sequence[str] = NAMES,
        threshold: int = 3,
        most: int = MOST,
        **changes: object,
    ) -> CampaignMessage:
        members = [
            (p.name, bytes.fromhex(p.identity), most) for p in self.roster if p.name in names
        ]
        distributed = isinstance(mechanism, DistributedNeighbour)
        fields = {
            "aggregator": "neighbour", "most_votes": most, "classes": CLASSES,
            "aggregation": "masked", "min_parties": threshold, "colluders": 1,
            "noise": "distributed" if distributed else "central", **changes,
        }  # fmt: skip
        return campaign_message(PUBLIC, terms_message(members, [mechanism]), **fields)

    def aggregation(
        self, campaign: CampaignMessage, rows: Sequence[int] = ROWS
    ) -> tuple[MaskedAggregation, CampaignMessage]:
        offer = campaign.offer()
        roster = [each for each in self.roster if each.name in offer.require_settled().names]
        return MaskedAggregation(offer, roster, batch_of(rows)), campaign

    def run(
        self, about: tuple[MaskedAggregation, CampaignMessage], steps: Sequence[Sequence[str]]
    ) -> Counts:
        aggregation, campaign = about
        for names in steps:
            for name in names:
                reply = self.sites[name].tell(aggregation.request(name), campaign)
                assert reply.WhichOneof("body") == ANSWERS[aggregation.step], self.sites[name].said[
                    -1
                ]
                aggregation.take(next(p for p in self.roster if p.name == name), reply)
            aggregation.advance()
        return np.array([]) if aggregation.step else aggregation.result().total.counts


@pytest.fixture
def hospitals(tmp_path: Path) -> Hospitals:
    return Hospitals(tmp_path)


def test_the_server_learns_the_sum_of_all_records(hospitals: Hospitals) -> None:
    found = hospitals.run(hospitals.aggregation(hospitals.campaign()), [NAMES] * 5)
    np.testing.assert_array_equal(found, nearest_votes(HELD, ROWS))


def test_the_server_learns_the_sum_of_all_dense_votes(hospitals: Hospitals) -> None:
    campaign = hospitals.campaign(DENSE, code="dense-4")
    found = hospitals.run(hospitals.aggregation(campaign), [NAMES] * 5)
    space = directions_over(PUBLIC)
    directions = Directions.fit(
        space.embed(PUBLIC.take(list(ROWS))), space.embed(PUBLIC.take(looked_at(len(PUBLIC))))
    )
    wanted = dense_votes(directions, space.embed(HELD.inputs), HELD.labels, len(CLASSES))
    np.testing.assert_array_equal(found, wanted)


def test_with_shares_it_learns_a_noisy_sum_once_and_the_same_again(hospitals: Hospitals) -> None:
    campaign = hospitals.campaign(SHARES)
    first = hospitals.run(hospitals.aggregation(campaign), [NAMES] * 5)
    truth = nearest_votes(HELD, ROWS)
    # Eight counts with sigma 40 are all as they were with a chance below 1e-15.
    assert not np.array_equal(first, truth)
    assert np.abs(first - truth).max() < 40 * 9  # beyond 9 sigma: 1e-18
    for name in NAMES:
        hospitals.start(name)
    again = hospitals.run(hospitals.aggregation(campaign), [NAMES] * 5)
    np.testing.assert_array_equal(again, first)
    # The server's own view is one matrix, of two honest shares of sigma 20.
    epsilon = hospitals.sites["a"].epsilon()
    assert exact_delta(epsilon, math.sqrt(2) / (20 * math.sqrt(2))) == pytest.approx(PART, rel=1e-2)
    assert hospitals.sites["a"].site.ledger.cumulative_epsilon(Delta(1e-5)).observer == "server"


@pytest.mark.parametrize("mechanism", [ONE, SHARES])
@pytest.mark.parametrize("opened", [True, False])
def test_other_queries_in_another_attempt_are_refused(
    hospitals: Hospitals, mechanism: Mechanism, opened: bool
) -> None:
    campaign = hospitals.campaign(mechanism)
    # Opened or not: once masked votes have left, it is these queries.
    hospitals.run(hospitals.aggregation(campaign), [NAMES] * (5 if opened else 3))
    aggregation, _ = hospitals.aggregation(campaign, (0, 3, 4, 10))
    for one in hospitals.sites.values():
        one.refuses(
            one.tell(aggregation.request("a"), campaign), "RefusedError", "each record votes once"
        )


def test_the_same_exact_sum_may_come_again_in_another_campaign(hospitals: Hospitals) -> None:
    first = hospitals.run(hospitals.aggregation(hospitals.campaign()), [NAMES] * 5)
    again = hospitals.run(hospitals.aggregation(hospitals.campaign(id=b"2" * 16)), [NAMES] * 5)
    np.testing.assert_array_equal(first, again)


def test_noisy_sums_with_other_parties_cost_again_and_are_allowed(hospitals: Hospitals) -> None:
    hospitals.run(hospitals.aggregation(hospitals.campaign(SHARES)), [NAMES] * 5)
    before = hospitals.sites["a"].epsilon()
    rest = NAMES[:3]
    other = hospitals.campaign(SHARES, names=rest, id=b"2" * 16, colluders=1)
    hospitals.run(hospitals.aggregation(other, (1, 2, 5)), [rest] * 5)
    assert hospitals.sites["a"].epsilon() > 1.3 * before
    assert hospitals.sites["d"].epsilon() == before
