"""What a party's ledger holds of a campaign: recorded texts are read, and written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from pate.campaign.offer import Offer
from pate.errors import ProtocolError
from pate.exact import read
from pate.storage.hash_chain import canonical

RECORDED: Final = json.loads(Path(__file__).with_name("offer_texts.json").read_text("ascii"))


@pytest.mark.parametrize("kind", RECORDED)
def test_each_kind_of_offer_is_written_as_it_was(kind: str) -> None:
    offer = read(Offer, json.loads(RECORDED[kind]), error=ProtocolError, what="an offer")
    assert canonical(offer.to_dict()) == RECORDED[kind]
