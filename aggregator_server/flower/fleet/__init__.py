"""What parties' nodes may send through the gateway: signed, in answer to us, and only so much."""
