"""The text form of a campaign never changes: recorded texts of each kind are read and rewritten.

The texts were recorded before a campaign's parameters were nested values. Ledgers, parties of other
releases and students depend on every byte of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.results.statement import privacy_statement
from pate.campaign.offer import Offer
from pate.campaign.spec import CampaignSpec
from pate.storage.hash_chain import canonical
from tests.support.server.campaigns import CLASSES, make_parties

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
