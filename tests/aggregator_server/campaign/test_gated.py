"""Labels behind a gate, all or none, and thresholds that no votes reach."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.campaign.labelling import GatedRelease, RoundSummary, outcomes_of
from aggregator_server.campaign.runner import Campaign, exchange_of, require_reachable
from aggregator_server.campaign.sums import Sums
from aggregator_server.exchange import exchange as exchange_module
from aggregator_server.exchange.attendance import Keyring
from aggregator_server.exchange.carrier import Arrival, Carrier
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.release_entries import CHAIN, replay
from aggregator_server.ledger.state import CampaignState
from aggregator_server.ledger.verify import verify
from aggregator_server.results.report import describe_state
from aggregator_server.results.statement import privacy_statement
from pate.accounting.composition import Gate
from pate.accounting.nearby import Batch
from pate.campaign.settings import make_gate
from pate.campaign.spec import CampaignSpec
from pate.campaign.terms import budget, composition_of, resolve
from pate.data.values import Images, content_hash
from pate.errors import BudgetError, LedgerError, StateError, UsageError
from pate.formats.privacy_statement import PrivacyStatement
from pate.noise.exact import SystemNoise
from pate.runtime import failpoints
from pate.runtime.screen import Screen
from pate.votes import Counts, Histogram
from tests.support.server.campaigns import CLASSES, NAMES, label, make_parties, make_spec
from tests.support.server.campaigns import start as start_capped
from tests.support.server.campaigns import start as started

TEACHERS = 1000
QUERIES = 600
EPSILON, DELTA = 2.0, 1e-5


def spec_of(**changes: Any) -> CampaignSpec:
    gate = make_gate("gated", EPSILON, DELTA, 10.0, 0.15)
    assert gate is not None
    fields: dict[str, Any] = {
        "aggregator": "gnmax", "queries": QUERIES, "epsilon": EPSILON, "delta": DELTA,
        "sigma2": Fraction(40), "publish": "gated", "gate_order": gate.order,
        "gate_target": gate.target, "gate_test": gate.test, "gate_failure": gate.failure,
    }  # fmt: skip
    return make_spec(**(fields | changes))


def votes_of(agreement: int) -> Counts:
    """``agreement`` of 1000 teachers vote for class ``query % 3``, the others for the next one."""
    votes = np.zeros((QUERIES, 3), np.int64)
    rows = np.arange(QUERIES)
    votes[rows, rows % 3] = agreement
    votes[rows, (rows + 1) % 3] = TEACHERS - agreement
    return votes


def start(path: Path, agreement: int, **changes: Any) -> Ledger:
    ledger = Ledger.create(path, spec_of(**changes))
    ledger.record_roster(make_parties(TEACHERS // 4), CLASSES)
    ledger.record_votes(0, Histogram(votes_of(agreement), TEACHERS), NAMES)
    return ledger


def answer(ledger: Ledger) -> RoundSummary:
    return GatedRelease().label(ledger, SystemNoise())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_teachers_that_agree_get_all_labels_out_for_less_than_a_cap_would_take(path: Path) -> None:
    with start(path, 950) as ledger:
        summary = answer(ledger)
        state = ledger.state()
        assert (state.gate, summary.labels, state.queries_asked) == ("open", QUERIES, QUERIES)
        assert state.epsilon <= EPSILON
        statement = privacy_statement(state)
        assert (statement.composition, statement.epsilon) == ("gate", state.epsilon)
        assert [step["mechanism"] for step in statement.mechanism] == ["gnmax", "gate"]
        assert statement.mechanism[1]["order"] == "10"
        assert PrivacyStatement.from_json(statement.to_json()) == statement
        assert describe_state(state)["gate"] == "open"
        capped = make_spec(
            aggregator="gnmax", queries=QUERIES, epsilon=EPSILON, sigma2=Fraction(40)
        )
        mechanisms = resolve(capped, TEACHERS, 1)
        way = composition_of(capped, mechanisms)
        # A data-independent cap for the same answers would convert to a larger epsilon.
        assert way.epsilon(QUERIES * way.cost(mechanisms[0].worst[0]), DELTA) > 1.5 * EPSILON
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    assert verify(path).epsilon == statement.epsilon


def test_teachers_that_do_not_agree_keep_it_closed_and_no_label_leaves(path: Path) -> None:
    with start(path, 510) as ledger:
        summary = answer(ledger)
        state = ledger.state()
        assert (state.gate, summary.labels, len(state.labels)) == ("closed", 0, 0)
        assert state.left == 0
        assert privacy_statement(state).epsilon <= EPSILON
    assert len(verify(path).labels) == 0


def test_there_is_one_attempt(path: Path) -> None:
    with start(path, 950) as ledger:
        answer(ledger)
        assert answer(ledger).exhausted
        with pytest.raises(LedgerError):
            ledger.charge([0])
        assert len(ledger.state().labels) == QUERIES


@pytest.mark.parametrize("point", ["charge-recorded", "noise-drawn"])
def test_a_crash_behind_the_charge_wastes_the_attempt(
    path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def fall(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    with start(path, 950) as ledger, monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", fall)
        with pytest.raises(KeyboardInterrupt):
            answer(ledger)
    with Ledger.open(path) as ledger:
        assert ledger.state().left == 0
        assert ledger.state().gate is None
        summary = answer(ledger)
        assert (summary.labels, summary.exhausted) == (0, True)
        with pytest.raises(BudgetError):
            ledger.charge([0])
        ledger.end_round(wants_predictions=False)
    assert verify(path).wasted == 1


def test_a_closed_gate_has_no_labels_in_the_ledger(path: Path) -> None:
    with start(path, 950) as ledger:
        charge = ledger.charge(list(range(QUERIES)))
        with pytest.raises(LedgerError, match="1 answers to 600"):
            ledger.release(charge, outcomes_of([0], "teachers", charge.events), gate="open")
        with pytest.raises(LedgerError, match="not open in this process"):
            ledger.release(charge, [], gate="closed")


def test_parties_are_told_the_gate_and_find_their_promise_in_it(path: Path) -> None:
    with start(path, 990) as ledger:
        state = ledger.state()
        terms = state.settled
        assert terms.gate == state.spec.gate
        gate = terms.gate
        assert gate is not None
        worth = Gate(gate).epsilon(terms.cap, DELTA)
        assert worth * (1 + 1e-9) >= state.epsilon >= worth
        assert state.epsilon <= EPSILON
    with start_capped(path.parent / "capped.db") as ledger:
        state = ledger.state()
        assert state.settled.gate is None


def test_confident_is_gated_with_its_check(path: Path) -> None:
    changes = {
        "aggregator": "confident-gnmax",
        "sigma1": Fraction(100),
        "threshold": Fraction(600),
        "max_queries": 50,
    }
    with start(path, 950, **changes) as ledger:
        summary = answer(ledger)
        assert ledger.state().gate == "open"
        assert 40 <= summary.labels <= 50 == summary.asked


def test_the_capped_way_refuses_a_gated_campaign_and_the_other_way_round(tmp_path: Path) -> None:
    with start(tmp_path / "gated.db", 950) as ledger, pytest.raises(StateError, match="gated"):
        label(ledger)
    with start_capped(tmp_path / "capped.db") as ledger, pytest.raises(StateError, match="gated"):
        answer(ledger)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gate_order": None}, "all or none are null"),
        ({"aggregator": "lnmax", "sigma2": None}, "can be gated"),
        ({"rounds": 2}, "one round"),
        ({"publish": "capped"}, "gate_order"),
    ],
)
def test_senseless_gates_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spec_of(**changes)


def test_a_gate_that_is_worth_more_than_epsilon_is_refused() -> None:
    spec = spec_of(gate_target=Fraction(3))
    mechanisms = resolve(spec, TEACHERS, 1)
    with pytest.raises(BudgetError, match="the gated batch costs more than epsilon 2"):
        budget(spec, mechanisms, composition_of(spec, mechanisms))
    narrow = spec_of(sigma2=Fraction(3, 2))
    with pytest.raises(UsageError, match="at least sigma 2"):
        composition_of(narrow, resolve(narrow, TEACHERS, 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gate": "closed"}, "although the gate was closed"),
        ({"gate": "ajar"}, "possible are open, closed"),
        ({"cost": "0"}, "the accountant says 1"),
    ],
)
def test_a_forged_release_does_not_hold(path: Path, change: dict[str, Any], message: str) -> None:
    with start(path, 950) as ledger:
        answer(ledger)
        entries = ledger.entries()
    (*before, release) = entries
    forged = CHAIN.after(
        before[-1].head, "release", json.loads(release.body) | change, release.written_at
    )
    assert replay(entries).gate == "open"
    with pytest.raises(LedgerError, match=message):
        replay([*before, forged])


def test_votes_are_not_looked_at_before_the_charge(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an attempt interrupted while reading them would cost nothing."""

    def fall(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with start(path, 950) as ledger:
        monkeypatch.setattr(Batch, "of", fall)
        with pytest.raises(KeyboardInterrupt):
            answer(ledger)
        assert ledger.state().left == 0


#: Number of teachers of the roster of these campaigns.
SEVERAL = 100
SMALL = {"sigma1": Fraction(5), "sigma2": Fraction(5)}


def state_of(place: Path, **changes: Any) -> CampaignState:
    with started(place / "ledger.db", make_spec(**changes), voted=False) as ledger:
        return ledger.state()


@pytest.mark.parametrize("threshold", [1, 75, SEVERAL])
def test_a_threshold_that_votes_can_reach_is_nobodys_business(
    tmp_path: Path, threshold: int
) -> None:
    state = state_of(tmp_path, threshold=Fraction(threshold), **SMALL)
    assert require_reachable(state) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": Fraction(5000), **SMALL},
        # 40 above all votes, at sigma 5: not once in a billion queries.
        {"threshold": Fraction(SEVERAL + 40), **SMALL},
        {"aggregator": "interactive-gnmax", "rounds": 2, "threshold": Fraction(5000), **SMALL},
        {
            "threshold": Fraction(5000), "aggregation": "masked", "noise": "distributed",
            "colluders": 1, "sigma2": Fraction(20),
        },
        {
            "aggregator": "neighbour", "threshold": Fraction(10**6), "most_votes": 25,
            "votes_per_patient": 1, "representatives": (0, 1, 2), "epsilon": 1.0,
        },
    ],
)  # fmt: skip
def test_one_that_no_votes_reach_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"never reach the threshold of .* at most 100$"):
        require_reachable(state_of(tmp_path, **changes))


def test_one_that_only_noise_reaches_is_said(tmp_path: Path) -> None:
    state = state_of(tmp_path, threshold=Fraction(SEVERAL + 1), **SMALL)
    assert "only where noise happens to lift the votes" in str(require_reachable(state))


def test_mechanisms_without_a_threshold_answer_all(tmp_path: Path) -> None:
    assert require_reachable(state_of(tmp_path, aggregator="gnmax", sigma2=Fraction(5))) is None


class _Nobody:
    """A carrier without parties, on which nothing may be sent."""

    store = None

    def returning(self) -> tuple[str, ...]:
        return ()

    def nodes(self) -> frozenset[int]:
        return frozenset()

    def receive(self) -> list[Arrival]:
        return []

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name}: something was asked of the parties")


@pytest.mark.parametrize("threshold", [5000, SEVERAL + 40])
def test_a_campaign_ends_before_it_asks_or_spends(
    tmp_path: Path, threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_module, "_RETURN_S", 0.0)  # no party comes back to be notified
    public = Images(np.arange(30 * 4, dtype=np.uint8).reshape(30, 2, 2, 1).copy())
    spec = make_spec(
        threshold=Fraction(threshold),
        queries=30,
        public_set=content_hash(public).hex(),
        schema=public.schema(),
        **SMALL,
    )
    with started(tmp_path / "ledger.db", spec, voted=False) as ledger:
        screen, keys = Screen("pate-server"), Keyring(Ed25519PrivateKey.generate())
        exchange = exchange_of(spec, public, cast("Carrier", _Nobody()), keys, screen)
        campaign = Campaign(
            ledger,
            public,
            Sums(ledger, public, exchange, screen, patience=0.0),
            noise=SystemNoise(),
            screen=screen,
            await_predictions=lambda _: None,
        )
        head = ledger.state().head
        for _ in range(2):  # and again when it is resumed
            with pytest.raises(UsageError, match="Nothing was asked or spent"):
                campaign.run()
        state = ledger.state()
        assert (state.head, state.queries_asked, state.phase) == (head, 0, "voting")


def test_one_that_has_votes_goes_on(tmp_path: Path) -> None:
    """Charges cannot be refunded: an older campaign runs to its end."""
    with started(tmp_path / "ledger.db", make_spec(threshold=Fraction(5000), **SMALL)) as ledger:
        assert label(ledger).labels == 0
