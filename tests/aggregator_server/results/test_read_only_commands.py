"""Every read-only command on every mechanism in every phase ends with its code, and says what is true.

What is true is computed here from the ledger's entries, without the code that replays them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from aggregator_server.campaign.runner import release_of
from aggregator_server.cli.main import app
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.state import Phase
from aggregator_server.ledger.verify import read_campaign
from aggregator_server.monitoring.metrics import render
from aggregator_server.monitoring.status import Status
from aggregator_server.results.report import LEDGER_FILE
from pate.accounting.composition import COMPOSITIONS, Gate, composition_named
from pate.campaign.choices import AGGREGATORS, PUBLISH
from pate.campaign.spec import CampaignSpec
from pate.codes import code_of
from pate.errors import StateError
from pate.mechanisms import MECHANISMS
from pate.noise.exact import SystemNoise
from pate.runtime.screen import Screen
from pate.votes import Histogram, LooseSum, NoisySum
from tests.aggregator_server.campaign import test_gated, test_matrix_campaign
from tests.support.needs import others_slow
from tests.support.server.campaigns import (
    CLASSES,
    NAMES,
    make_parties,
    make_predictions,
    make_spec,
    make_votes,
)

SHARES: dict[str, Any] = {"aggregation": "masked", "noise": "distributed", "colluders": 1}
SEVERAL: dict[str, Any] = {
    "aggregator": "gnmax", "answer": "labels-1", "classes": CLASSES, "max_queries": 8, "epsilon": 20.0,
}  # fmt: skip
TWICE: dict[str, Any] = {"aggregator": "interactive-gnmax", "rounds": 2, "epsilon": 20.0}
PURE: dict[str, Any] = {"epsilon": 1.0, "delta": 0.0}
CAMPAIGNS: dict[str, CampaignSpec] = {
    "lnmax": make_spec(aggregator="lnmax"),
    "gnmax-shares": make_spec(aggregator="gnmax", **SHARES),
    "gnmax-gated": test_gated.spec_of(),
    "gnmax-labels": make_spec(**SEVERAL),
    "gnmax-labels-shares": make_spec(**SEVERAL, **SHARES),
    "confident": make_spec(aggregator="confident-gnmax"),
    "confident-shares": make_spec(aggregator="confident-gnmax", **SHARES),
    "interactive": make_spec(**TWICE),
    "interactive-shares": make_spec(**TWICE, **SHARES),
    "neighbour": test_matrix_campaign.matrix_spec(),
    "neighbour-pure-shares": test_matrix_campaign.matrix_spec(**PURE, **SHARES),
}
#: Read with every change: each aggregator, and each way to sum, publish and count the budget.
FIRST = (
    "lnmax", "gnmax-gated", "gnmax-labels-shares", "confident", "interactive-shares", "neighbour",
    "neighbour-pure-shares",
)  # fmt: skip
PHASES = set(get_args(Phase))


def _total(spec: CampaignSpec, rows: int, most: int) -> Histogram | LooseSum | NoisySum:
    """Votes of the campaign's kind."""
    if spec.records_vote:
        exact = test_matrix_campaign.exact_counts(rows)
        return NoisySum(exact, most) if spec.sums.distributed else LooseSum(exact, most)
    votes = make_votes(rows, most)
    if spec.sums.distributed:
        return NoisySum(votes, most)
    if spec.one_release:
        return LooseSum(votes, most, code_of(spec.code))
    return Histogram(votes, most)


def _walk(ledger: Ledger) -> Iterator[Phase]:
    """Take a campaign through its phases, and stop in each: also with an unanswered charge."""
    spec = ledger.state().spec
    yield "gathering"
    if spec.records_vote:
        parties = make_parties(test_matrix_campaign.MOST, "patient")
    else:
        parties = make_parties(250 if spec.gate else 25)
    ledger.record_roster(parties, CLASSES)
    yield "voting"
    state = ledger.state()
    rows, most = len(state.voted), sum(party.teachers for party in parties)
    if spec.sums.masked:
        ledger.record_unmasking(0, rows, NAMES)
        yield "voting"
    ledger.record_votes(0, _total(spec, rows, most), NAMES)
    yield "labelling"
    if not spec.one_release and spec.gate is None:
        ledger.charge(list(state.voted.rows)[:1])
        yield "labelling"
    for round_ in range(1, spec.rounds + 1):
        release_of(spec, Screen("test").bar).label(ledger, SystemNoise())
        yield "labelling"
        more = round_ < spec.rounds
        ledger.end_round(wants_predictions=more)
        yield "predicting" if more else "labelling"
        if more:
            ledger.record_predictions(round_ + 1, make_predictions(spec.queries))
            yield "labelling"
    ledger.finish()
    yield "finished"


def _true(place: Path) -> dict[str, Any]:
    """Return the figures of a campaign, added up from its entries."""
    _, held = read_campaign(place / LEDGER_FILE)
    bodies = [(entry.seq, entry.kind, json.loads(entry.body)) for entry in held]
    spec = bodies[0][2]["spec"]
    roster = next((body for _, kind, body in bodies if kind == "roster"), None)
    costs = {seq: Fraction(body["cost"]) for seq, kind, body in bodies if kind == "charge"}
    vain = dict(costs)
    answers = []
    for _, kind, body in bodies:
        if kind == "release":
            costs[body["charge"]] = Fraction(body["cost"])
            del vain[body["charge"]]
            answers += body["answers"]
    last = bodies[-1]
    if last[1] == "charge":
        vain.pop(last[0])  # its release is still possible
    found: dict[str, Any] = {
        "entries": len(bodies),
        "asked": len(answers),
        "labels": sum(label is not None for _, label, *_ in answers),
        "spent": sum(costs.values(), Fraction(0)),
        "wasted": sum(vain.values(), Fraction(0)),
        "composition": None, "cap": Fraction(0), "epsilon": 0.0, "teachers": 0,
    }  # fmt: skip
    if roster is not None:
        found |= {"composition": roster["composition"], "cap": Fraction(roster["cap"])}
        if roster["composition"] == Gate.name:
            found["epsilon"] = test_gated.EPSILON
        else:
            way = composition_named(roster["composition"])
            found["epsilon"] = way.epsilon(found["cap"], spec["delta"])
        if spec["representatives"] is None:
            found["teachers"] = sum(party["teachers"] for party in roster["parties"])
    return found


class Reader:
    """Runs the commands on one home, and compares what they say.

    ``home``: of the server; the campaign has the default name.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._copies = 0

    def all(self, ledger: Ledger, phase: str, *, again: bool = False) -> None:
        """Run every read-only command beside the server; ``again``: only those that show figures."""
        true = _true(self.home / "campaign")
        if phase == "finished":
            assert true["wasted"] == ledger.state().wasted
        status = self._figures(true, phase)
        if not again:
            self._others(true, status, is_over=phase == "finished" and true["cap"] > 0)
        self._page(ledger, true, phase)

    def says(self, *arguments: object, code: int = 0) -> str:
        """Run a command of ``pate-server``; return its standard output."""
        done = CliRunner().invoke(app, [*map(str, arguments), "--home", str(self.home)])
        error = done.exception
        found = getattr(error, "exit_code", 0 if error is None else done.exit_code)
        assert found == code, f"{arguments}: {error!r}"
        return done.stdout

    def _figures(self, true: dict[str, Any], phase: str) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.says("status", "--json"))
        verified = json.loads(self.says("ledger", "verify", "--json"))
        for found in (status, verified):
            assert (found["phase"], found["queries_asked"]) == (phase, true["asked"])
            assert found["labels_released"] == true["labels"]
        assert verified["entries"] == true["entries"]
        assert verified["composition"] == true["composition"]
        for name in ("cap", "spent", "wasted"):
            assert Fraction(verified[name]) == true[name], name
        assert verified["epsilon"] == pytest.approx(true["epsilon"], rel=1e-9)
        assert status.get("teachers", 0) == true["teachers"]
        if true["cap"]:
            assert status["epsilon"] == verified["epsilon"]
            assert status["budget_spent"] == round(float(true["spent"] / true["cap"]), 4)
        else:  # nothing is promised before the roster
            assert not {"epsilon", "delta", "budget_spent"} & status.keys()
        return status

    def _others(self, true: dict[str, Any], status: dict[str, Any], *, is_over: bool) -> None:
        self.says("status")
        self.says("ledger", "show")
        assert len(json.loads(self.says("ledger", "show", "--json"))) == true["entries"]
        self.says("ledger", "verify", "--head", status["ledger_head"])
        self._copies += 1
        copy = self.home.parent / f"copy-{self._copies}"
        made = json.loads(self.says("ledger", "backup", "--out", copy, "--json"))
        assert (made["phase"], made["head"]) == (status["phase"], status["ledger_head"])
        out = self.home.parent / "labels.json"
        self.says("export", "--out", out, code=0 if is_over else StateError.exit_code)
        if is_over:
            written = json.loads(out.read_text())
            assert len(written["labels"]) == true["labels"]
            assert json.loads(written["privacy"])["realised"]["cost"] == str(true["spent"])
            assert json.loads(written["privacy"])["epsilon"] == status["epsilon"]

    def _page(self, ledger: Ledger, true: dict[str, Any], phase: str) -> None:
        overview = Status(ledger).overview()
        page = json.loads(json.dumps(overview.to_json(), allow_nan=False))
        assert (page["phase"], page["ledger_entries"]) == (phase, true["entries"])
        assert (page["queries"]["asked"], page["queries"]["labels"]) == (
            true["asked"],
            true["labels"],
        )
        values = {
            sample.name: sample.value
            for family in text_string_to_metric_families(render(overview).decode())
            for sample in family.samples
        }
        assert values["pate_ledger_entries_total"] == true["entries"]
        if not true["cap"]:
            assert page["budget"] is None
            assert "pate_epsilon" not in values
            return
        spent = round(float(true["spent"] / true["cap"]), 4)
        assert page["budget"]["spent"] == values["pate_budget_charged_ratio"] == spent
        assert page["budget"]["composition"] == true["composition"]
        for said in (page["budget"]["epsilon"], values["pate_epsilon"]):
            assert said == pytest.approx(true["epsilon"], rel=1e-9)
        assert page["budget"]["epsilon_charged"] <= page["budget"]["epsilon"] * (1 + 1e-9)


@pytest.mark.parametrize("name", others_slow(CAMPAIGNS, FIRST.__contains__))
def test_every_phase_is_read_without_an_error(tmp_path: Path, name: str) -> None:
    reader, phases = Reader(tmp_path / "server"), list[str]()
    place = tmp_path / "server" / "campaign"
    place.mkdir(parents=True, mode=0o700)
    place.parent.chmod(0o700)
    with Ledger.create(place / LEDGER_FILE, CAMPAIGNS[name]) as ledger:
        for phase in _walk(ledger):
            assert ledger.state().phase == phase
            reader.all(ledger, phase, again=phase in phases)
            phases.append(phase)
    assert set(phases) == PHASES - (set() if CAMPAIGNS[name].interactive else {"predicting"})
    with Ledger.open(place / LEDGER_FILE) as ledger:
        reader.all(ledger, "finished")


@pytest.mark.parametrize("name", ["lnmax", "neighbour-pure-shares"])
def test_a_campaign_that_ended_before_its_roster_is_read(tmp_path: Path, name: str) -> None:
    place = tmp_path / "server" / "campaign"
    place.mkdir(parents=True, mode=0o700)
    with Ledger.create(place / LEDGER_FILE, CAMPAIGNS[name]) as ledger:
        ledger.finish()
        Reader(tmp_path / "server").all(ledger, "finished")


def test_every_mechanism_has_its_campaign(tmp_path: Path) -> None:
    """A new mechanism, aggregator, way to publish or composition without a row above fails here."""
    mechanisms, compositions = set(), set()
    for name, spec in CAMPAIGNS.items():
        with Ledger.create(tmp_path / name / LEDGER_FILE, spec) as ledger:
            steps = _walk(ledger)
            assert [next(steps), next(steps)] == ["gathering", "voting"]
            state = ledger.state()
            mechanisms |= {each.name for each in state.mechanisms}
            compositions.add(state.currency.name)
    specs = CAMPAIGNS.values()
    assert {spec.aggregator for spec in specs} == set(AGGREGATORS)
    assert {spec.publish for spec in specs} == set(PUBLISH)
    assert mechanisms == set(MECHANISMS)
    assert compositions == {*(each.name for each in COMPOSITIONS), Gate.name}
