"""Which way a campaign releases its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator_server.campaign.capped import CappedRelease
from aggregator_server.campaign.gated import GatedRelease
from aggregator_server.campaign.neighbour import NeighbourRelease

if TYPE_CHECKING:
    from aggregator_server.campaign.capped import Bar
    from aggregator_server.campaign.labelling import Release
    from pate.campaign.spec import CampaignSpec


def release_of(spec: CampaignSpec, bar: Bar) -> Release:
    """Return the way in which a campaign releases labels.

    Args:
        spec: of the campaign.
        bar: shows how far a round is, where it takes long.
    """
    if spec.neighbour is not None:
        return NeighbourRelease()
    return CappedRelease(bar) if spec.gate is None else GatedRelease()
