"""What a campaign may be expected to give and to cost, before anyone trains."""
