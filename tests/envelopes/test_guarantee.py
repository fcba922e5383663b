"""What an operator reads of a campaign's guarantee before its envelope is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pate.campaign.announced import Announced
from pate.campaign.offer import Offer
from pate.campaign.roster import SumTerms
from protos.envelopes import _campaign_in_words

if TYPE_CHECKING:
    from typing import Literal


@pytest.mark.parametrize(
    ("unit", "code", "among"),
    [
        ("party", "axes-9", "all data of one party added or removed"),
        ("party", "nearest", "all data of one party altered"),
        ("record", "axes-9", "one record added or removed"),
    ],
)
def test_its_neighbours_are_those_that_are_charged(
    unit: Literal["party", "record"], code: str, among: str
) -> None:
    campaign = Announced(
        id="00" * 16,
        aggregator="gnmax",
        sums=SumTerms(aggregation="masked", noise="distributed", min_parties=3),
        public_set="11" * 32,
        queries=100,
        schema="table age:number",
        epsilon=1.0,
        delta=1e-5,
        unit=unit,
        classes=("no", "yes"),
        code=code,
    )
    costs = [
        line
        for line in _campaign_in_words(Offer(key=b"k" * 32, announced=campaign))
        if "costs" in line
    ]
    assert len(costs) == 1
    assert among in costs[0]
    assert campaign.neighbours == among
