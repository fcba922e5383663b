"""Two neighbouring worlds: given the same answers, no observer can distinguish them.

The noise of both worlds is the same sequence of draws, all multiples of ten, and counts and thresholds are
such that one vote more or less changes no comparison then. So the answers are the same, and any other
dependence on votes, in an order, a stop, a charge, a line on the screen or the size of a file, would be a
difference. The answers themselves are tested by the audits.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Never, cast

import numpy as np
import pytest

from aggregator_server.campaign.runner import Campaign, exchange_of
from aggregator_server.campaign.sums import Sums
from aggregator_server.exchange.attendance import Keyring
from aggregator_server.exchange.carrier import Carrier
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import read_campaign, verify
from aggregator_server.results.report import LEDGER_FILE, describe, describe_state, label_set
from aggregator_server.results.statement import privacy_statement
from pate.campaign.spec import CampaignSpec
from pate.data.values import Images, content_hash
from pate.noise.lanes import Integers
from pate.runtime import failpoints
from pate.runtime.screen import Screen
from pate.votes import Counts, Histogram
from tests.support.campaign_messages import SERVER_KEY
from tests.support.server.campaigns import CLASSES, NAMES, make_parties, make_predictions, make_spec
from tests.support.simulated_noise import SimulatedNoise

QUERIES = 200


class Scripted:
    """The same draws in both worlds, in tens. It claims to be fit for releases."""

    production: ClassVar[bool] = True

    def __init__(self) -> None:
        self._source = SimulatedNoise(11)
        self.asked: list[tuple[str, Fraction, int]] = []

    def gaussian(self, sigma: Fraction, count: int) -> Integers:
        self.asked.append(("gaussian", sigma, count))
        return 10 * (self._source.gaussian(sigma, count) // 10)

    def laplace(self, scale: Fraction, count: int) -> Integers:
        self.asked.append(("laplace", scale, count))
        return 10 * (self._source.laplace(scale, count) // 10)


class NoCarrier:
    """The roster and the votes are in the ledger: nothing is sent."""

    store = None

    def __getattr__(self, name: str) -> Never:
        raise AssertionError(f"the campaign went to its carrier: {name}")


def inputs() -> Images:
    rows = np.arange(QUERIES * 64, dtype=np.int64).reshape(QUERIES, 8, 8, 1) % 251
    return Images(rows.astype(np.uint8))


def worlds() -> tuple[Counts, Counts]:
    """Votes of 100 teachers, and the same with one teacher voting differently on every query.

    Counts end in 0, 3 and 7: they are at least 3 apart for any added tens, at least 2 from a
    threshold of 75, and at least 2 from exceeding (98, 1, 1) expected votes by 50.
    """
    votes = np.empty((QUERIES, 3), np.int64)
    for query in range(QUERIES):
        most = (80, 60, 40)[query % 5 % 3]
        second = (100 - most) // 20 * 10 + 3
        votes[query] = np.roll((most, second, 100 - most - second), query % 3)
    rows = np.arange(QUERIES)
    other = votes.copy()
    other[rows, votes.argmax(axis=1)] -= 1
    other[rows, votes.argmin(axis=1)] += 1
    return votes, other


def seen(
    folder: Path,
    spec: CampaignSpec,
    votes: Counts,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """Everything but the votes, the salt and the clock that a campaign leaves behind."""
    points: list[str] = []
    monkeypatch.setattr(failpoints, "reach", points.append)
    noise = Scripted()
    with Ledger.create(folder / LEDGER_FILE, spec) as ledger:
        ledger.record_roster(make_parties(), CLASSES)
        ledger.record_votes(0, Histogram(votes, 100), NAMES)
        screen, carrier = Screen("pate-server"), cast("Carrier", NoCarrier())
        exchange = exchange_of(spec, inputs(), carrier, Keyring(SERVER_KEY), screen)
        Campaign(
            ledger,
            inputs(),
            Sums(ledger, inputs(), exchange, screen, patience=0.0),
            noise=noise,
            screen=screen,
            await_predictions=lambda round_: ledger.record_predictions(
                round_, make_predictions(QUERIES)
            ),
        ).run()
        state = ledger.state()
    _, entries = read_campaign(folder / LEDGER_FILE)
    found = verify(folder / LEDGER_FILE)
    chain = [(e.seq, e.kind, len(e.body), open_body(e.kind, e.body)) for e in entries]
    told = capsys.readouterr()
    lines = re.sub(r"\d\d:\d\d:\d\d", "", told.out + told.err)
    return {
        "lines": lines,
        "described": describe_state(state) | {"ledger_head": ""},
        "statement": privacy_statement(state).to_json().replace(str(state.head), ""),
        "labels": label_set(folder).to_json().replace(str(state.head), ""),
        "verification": repr(
            (
                found.phase,
                found.head.seq,
                len(found.labels),
                found.queries_asked,
                found.spent,
                found.wasted,
            )
        ),
        "chain": chain,
        "status": describe(folder) | {"ledger_head": ""},
        "sizes": {path.name: path.stat().st_size for path in folder.iterdir()},
        "steps": points,
        "draws": noise.asked,
    }


def open_body(kind: str, body: str) -> dict[str, Any]:
    """The body of an entry without the salted commitment to the votes."""
    fields: dict[str, Any] = json.loads(body)
    if kind == "votes":
        del fields["digest"]
    return fields


#: Converts to epsilon 8 at order 3.5; 15 queries fit for any votes, 200 do not.
GATE = {
    "publish": "gated", "gate_order": Fraction(7, 2), "gate_target": Fraction(3),
    "gate_test": Fraction(3, 5), "gate_failure": Fraction(1, 10**5),
}  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"aggregator": "gnmax", "max_queries": 15, **GATE},
        {
            "aggregator": "confident-gnmax",
            "threshold": Fraction(35),
            "sigma1": Fraction(20),
            "sigma2": Fraction(3),
            **GATE,
        },
        {"aggregator": "lnmax", "epsilon": 40.0},
        {"aggregator": "gnmax"},
        {"aggregator": "confident-gnmax"},
        {"aggregator": "confident-gnmax", "max_queries": 40},
        {"aggregator": "confident-gnmax", "rounds": 2},
        {"aggregator": "interactive-gnmax", "rounds": 3},
    ],
)
def test_neighbours_look_alike(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
) -> None:
    spec = make_spec(queries=QUERIES, public_set=content_hash(inputs()).hex(), **fields)
    found = []
    for name, counts in zip(("one", "other"), worlds(), strict=True):
        (tmp_path / name).mkdir()
        found.append(seen(tmp_path / name, spec, counts, capsys, monkeypatch))
    one, other = found
    if "publish" in fields:
        assert one["described"]["gate"] == ("open" if "max_queries" in fields else "closed")
    if one["described"].get("gate") != "closed":
        assert one["labels"].count('"teachers"') > 3
    for what in one:
        assert one[what] == other[what], what
