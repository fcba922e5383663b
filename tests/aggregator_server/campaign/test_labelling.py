"""Labelling: charged before it is released, continued after a kill, by the text form of its campaign."""

from __future__ import annotations

import json
from contextlib import nullcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from aggregator_server.campaign.labelling import CHUNK, CappedRelease
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.state import ReleasedLabel
from aggregator_server.ledger.verify import read_campaign, verify
from aggregator_server.results.statement import privacy_statement
from pate.accounting.composition import total_cost
from pate.campaign.offer import Offer
from pate.campaign.order import public_order
from pate.campaign.spec import CampaignSpec
from pate.errors import LedgerError, StateError, UsageError
from pate.mechanisms import ConfidentGNMax
from pate.noise.exact import SystemNoise
from pate.storage.hash_chain import canonical
from pate.votes import Histogram
from tests.support.server.campaigns import (
    CLASSES,
    NAMES,
    answer,
    label,
    label_to_the_end,
    make_parties,
    make_predictions,
    make_spec,
    make_votes,
    start,
)
from tests.support.simulated_noise import SimulatedNoise
from tests.support.world.in_process import killed_at


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_the_order_is_a_permutation_that_only_the_campaign_decides() -> None:
    order = public_order("0f" * 16, 500)
    assert sorted(order) == list(range(500))
    assert order == public_order("0f" * 16, 500) != public_order("1f" * 16, 500)
    assert order[:4] == public_order("0f" * 16, 500)[:4] == GOLDEN


GOLDEN = (330, 194, 158, 312)


def test_a_round_asks_in_order_and_stops_at_the_budget(path: Path) -> None:
    with start(path, make_spec(epsilon=3.5, sigma1=Fraction(50))) as ledger:
        done: list[tuple[int, int]] = []
        shown = CappedRelease(lambda _: nullcontext(lambda *told: done.append(told)))
        summary = shown.label(ledger, SystemNoise())
        state = ledger.state()
        order = public_order(state.spec.id, 200)
        assert summary.exhausted
        assert set(state.answered[1]) == set(order[: summary.asked])
        assert summary.labels == len(state.labels) > 0
        assert 0 <= state.left < total_cost(state.currency, state.mechanism(1).worst)
        assert done[-2:] == [(summary.asked, 200), (summary.asked, summary.asked)]
        assert [a for a, _ in done] == sorted(a for a, _ in done)
        # Again: nothing fits, so nothing happens.
        head = state.head
        assert label(ledger) == summary
        assert ledger.state().head == head
    verify(path)


def test_labels_are_those_of_the_teachers_where_they_agree(path: Path) -> None:
    """With 80 of 100 votes and sigma 1 a wrong label has probability below 1e-100."""
    spec = make_spec(aggregator="gnmax", sigma2=Fraction(1), epsilon=1e6, queries=CHUNK * 2 + 1)
    with start(path, spec) as ledger:
        summary = label(ledger)
        votes = ledger.counts()
        assert (summary.asked, summary.exhausted) == (spec.queries, False)
        found = {query: each.label for query, each in ledger.state().labels.items()}
    assert found == dict(enumerate(np.argmax(votes, axis=1).tolist()))


def test_max_queries_bounds_a_round_however_often_it_is_begun(path: Path) -> None:
    with start(path, make_spec(max_queries=100, aggregator="gnmax", epsilon=50.0)) as ledger:
        answer(ledger, 70)
        state = ledger.state()
        worst = total_cost(state.currency, state.mechanism(1).worst)
        last = label(ledger)
        assert (last.asked, last.exhausted, ledger.state().spent) == (100, True, 100 * worst)
        assert label(ledger) == last


def test_the_first_of_two_rounds_leaves_the_second_its_share(path: Path) -> None:
    share = Fraction(1, 3)
    spec = make_spec(aggregator="gnmax", rounds=2, first_round_share=share, epsilon=4.0)
    with start(path, spec) as ledger:
        first = label(ledger)
        state = ledger.state()
        worst = total_cost(state.currency, state.mechanism(1).worst)
        assert first.exhausted
        assert state.cap * share - worst < state.spent <= state.cap * share


def test_a_round_that_was_interrupted_goes_on_with_the_rest(path: Path) -> None:
    def fall(done: int, _: int) -> None:
        if done >= 2 * CHUNK:
            raise KeyboardInterrupt

    with start(path, make_spec(aggregator="gnmax", epsilon=100.0)) as ledger:
        with pytest.raises(KeyboardInterrupt):
            CappedRelease(lambda _: nullcontext(fall)).label(ledger, SystemNoise())
        assert ledger.state().queries_asked == 2 * CHUNK
        labels = dict(ledger.state().labels)
    with Ledger.open(path) as ledger:
        assert label(ledger).asked == 200
        state = ledger.state()
        assert labels.items() <= state.labels.items()
        assert state.spent == 200 * total_cost(state.currency, state.mechanism(1).worst)


def test_interactive_rounds_reinforce_and_ask_only_what_has_no_label(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sigmas so small, and votes so clear, that a wrong branch has probability below 1e-100."""
    spec = make_spec(
        aggregator="interactive-gnmax",
        rounds=2,
        epsilon=1e6,
        queries=90,
        max_queries=120,
        first_round_share=Fraction(1),
        threshold=Fraction(60),
        interactive_threshold=Fraction(50),
        sigma1=Fraction(1, 2),
        sigma2=Fraction(1, 2),
        confidence=Fraction(9, 10),
    )
    votes = np.full((90, 3), 5)
    votes[np.arange(90), np.arange(90) % 3] = 90
    votes[60:] = (34, 33, 33)  # no agreement: Confident does not answer
    guess = make_predictions(90)
    guess[60:75] = (1.0, 0.0, 0.0)  # sure, and the teachers do not contradict by 50 votes
    guess[75:] = (0.4, 0.3, 0.3)  # not sure
    with Ledger.create(path, spec) as ledger:
        ledger.record_roster(make_parties(), CLASSES)
        ledger.record_votes(0, Histogram(votes, 100), NAMES)
        first = label(ledger)
        assert (first.asked, first.labels, first.reinforced) == (90, 60, 0)
        ledger.end_round(wants_predictions=True)
        with pytest.raises(StateError, match="predicting"):
            label(ledger)
        ledger.record_predictions(2, guess)
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "predictions", lambda *_: None)
            with pytest.raises(UsageError, match="predictions"):
                label(ledger)
            patch.setattr(Ledger, "predictions", lambda *_: make_predictions(3))
            with pytest.raises(LedgerError, match="shape"):
                label(ledger)
        second = label(ledger)
        assert (second.asked, second.labels, second.reinforced) == (30, 15, 15)
        state = ledger.state()
        assert {q for q, each in state.labels.items() if each.source == "reinforced"} == set(
            range(60, 75)
        )
    verify(path)


def test_batches_with_fewer_teachers_are_compared_with_their_own_number(path: Path) -> None:
    spec = make_spec(aggregator="interactive-gnmax", rounds=2, epsilon=100.0, queries=20)
    with Ledger.create(path, spec) as ledger:
        ledger.record_roster(make_parties(), CLASSES)
        ledger.record_votes(0, Histogram(make_votes(10, 100), 100), NAMES)
        ledger.record_votes(10, Histogram(make_votes(10, 75), 75), NAMES[1:])
        ledger.end_round(wants_predictions=True)
        ledger.record_predictions(2, make_predictions(20))
        assert label(ledger).asked == 20


def test_seeded_noise_is_refused(path: Path) -> None:
    with start(path) as ledger:
        head = ledger.state().head
        with pytest.raises(UsageError, match="seeded"):
            label(ledger, noise=SimulatedNoise(1))
        assert ledger.state().head == head


def test_a_round_is_labelled_only_in_its_turn(path: Path) -> None:
    with start(path) as ledger:
        ledger.finish()
        with pytest.raises(StateError, match="finished"):
            label(ledger)


def test_a_mechanism_over_noisy_sums_is_never_asked_about_exact_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(path) as ledger:
        head = ledger.state().head
        monkeypatch.setattr(ConfidentGNMax, "noise_inside", True)
        with pytest.raises(LedgerError, match="no release without noise"):
            label(ledger)
        assert ledger.state().head == head


@pytest.mark.parametrize("failpoint", ["charge-recorded", "noise-drawn", "release-recorded"])
def test_a_killed_campaign_goes_on_where_its_ledger_stands(tmp_path: Path, failpoint: str) -> None:
    path = tmp_path / "ledger.sqlite"
    before: dict[int, ReleasedLabel] = {}
    spent, deaths = Fraction(0), 0
    # Twice in the second chunk of a process, then without a failpoint to the end.
    for place in (f"{failpoint}:2", f"{failpoint}:2", None):
        assert killed_at(place, partial(label_to_the_end, path)) == (place is not None)
        deaths += place is not None
        told = verify(path)
        state, _ = read_campaign(path)
        assert told.head.seq > 0
        assert before.items() <= state.labels.items(), "a label changed or went away"
        assert len(state.labels) > len(before)
        assert spent < state.spent <= state.cap
        before, spent = dict(state.labels), state.spent
        # A death after the charge was durable and before the release was costs that charge.
        open_ = state.open_charge.cost if state.open_charge else 0
        wasted = 0 if failpoint == "release-recorded" else deaths
        worst = total_cost(state.currency, state.mechanism(1).worst)
        assert state.wasted + open_ == wasted * CHUNK * worst
    assert (told.phase, len(told.labels)) == ("finished", len(before))


def test_a_campaign_that_is_not_killed_wastes_nothing(tmp_path: Path) -> None:
    """The control: the same process without a failpoint."""
    path = tmp_path / "ledger.sqlite"
    label_to_the_end(path)
    assert verify(path, read_campaign(path)[0].head).wasted == 0


RECORDED: Final = json.loads(Path(__file__).with_name("text_forms.json").read_text("ascii"))


@pytest.mark.parametrize("kind", RECORDED)
def test_each_kind_of_campaign_is_written_as_it_was(kind: str, tmp_path: Path) -> None:
    wanted = RECORDED[kind]
    spec = CampaignSpec.from_dict(json.loads(wanted["spec"]))
    assert canonical(spec.to_dict()) == wanted["spec"]

    unit = "patient" if spec.unit == "patient" else "record"
    with Ledger.create(tmp_path / "ledger.sqlite", spec) as ledger:
        state = ledger.record_roster(make_parties(wanted["teachers"], unit), CLASSES)
    offer = Offer(key=bytes(32), announced=spec.announced)
    assert offer.settle(CLASSES, state.settled).text == wanted["offer"]

    said = json.loads(privacy_statement(state).to_json())
    assert said.pop("ledger_head").startswith("2:")  # its digest is new each time
    assert rounded(said) == wanted["statement"]


def rounded(value: Any) -> Any:
    """The same without the last digits of each epsilon, which another processor may round otherwise."""
    if isinstance(value, list):
        return [rounded(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: round(each, 6) if key == "epsilon" and each is not None else rounded(each)
        for key, each in value.items()
    }
