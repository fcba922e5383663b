"""The choice of how a campaign releases its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator_server.campaign.capped import CappedRelease
from aggregator_server.campaign.neighbour import NeighbourRelease

if TYPE_CHECKING:
    from aggregator_server.campaign.capped import Bar
    from aggregator_server.campaign.labelling import Release
    from pate.campaign.spec import CampaignSpec


def release_of(spec: CampaignSpec, bar: Bar) -> Release:
    """Return a campaign's way of releasing labels."""
    if spec.one_release:
        return NeighbourRelease()
    if spec.gate is None:
        return CappedRelease(bar)
    from aggregator_server.campaign.gated import GatedRelease  # its bounds are slow to import

    return GatedRelease()
