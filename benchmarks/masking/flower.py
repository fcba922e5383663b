"""The same masked sum from Flower's own secure aggregation primitives: the baseline.

One party's work in the four stages of SecAgg+, in the order of Flower's client and with the functions of the
installed package: two key pairs, Shamir shares of a seed and of a private key, one box per peer, one mask per
peer and one of its own, the shares revealed at the end. The votes are integers, so nothing is quantised, and
the sum is exact.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.masking.meter import Meter
from pate.runtime.environment import QUIET_FLOWER

os.environ.update(QUIET_FLOWER)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.votes import Counts


@dataclass
class FlowerParty:
    """One party's state between the stages, as in Flower's client."""

    number: int
    threshold: int
    modulus: int
    private: tuple[bytes, bytes] = (b"", b"")
    public: tuple[bytes, bytes] = (b"", b"")
    peers: Mapping[int, tuple[bytes, bytes]] = field(default_factory=dict)
    seed: bytes = b""
    box_keys: dict[int, bytes] = field(default_factory=dict)
    seed_shares: dict[int, bytes] = field(default_factory=dict)
    key_shares: dict[int, bytes] = field(default_factory=dict)

    def keys(self) -> tuple[bytes, bytes]:
        """Two key pairs: one for masks, one for boxes."""
        from flwr.supercore.primitives.asymmetric import (
            generate_key_pairs,
            private_key_to_bytes,
            public_key_to_bytes,
        )

        (mask_key, mask_public), (box_key, box_public) = generate_key_pairs(), generate_key_pairs()
        self.private = private_key_to_bytes(mask_key), private_key_to_bytes(box_key)
        self.public = public_key_to_bytes(mask_public), public_key_to_bytes(box_public)
        return self.public

    def shares(self, peers: Mapping[int, tuple[bytes, bytes]]) -> dict[int, bytes]:
        """One box for each peer, with a share of the seed and one of the private key."""
        from flwr.common.secure_aggregation.crypto.shamir import create_shares
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt
        from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat

        self.peers = peers
        self.seed = os.urandom(32)
        seed_shares = create_shares(self.seed, self.threshold, len(peers))
        key_shares = create_shares(self.private[0], self.threshold, len(peers))
        boxes = {}
        for at, (number, (_, box_public)) in enumerate(peers.items()):
            if number == self.number:
                self.seed_shares[number], self.key_shares[number] = seed_shares[at], key_shares[at]
                continue
            self.box_keys[number] = self._agree(1, box_public)
            text = share_keys_plaintext_concat(self.number, number, seed_shares[at], key_shares[at])
            boxes[number] = encrypt(self.box_keys[number], text)
        return boxes

    def votes(self, boxes: Mapping[int, bytes], votes: Counts) -> Counts:
        """Open the boxes, then mask the votes with every sender's mask and the party's own."""
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt
        from flwr.common.secure_aggregation.ndarrays_arithmetic import (
            parameters_addition,
            parameters_mod,
            parameters_subtraction,
        )
        from flwr.common.secure_aggregation.secaggplus_utils import (
            pseudo_rand_gen,
            share_keys_plaintext_separate,
        )

        for number, box in boxes.items():
            source, _, seed_share, key_share = share_keys_plaintext_separate(
                decrypt(self.box_keys[number], box)
            )
            assert source == number
            self.seed_shares[number], self.key_shares[number] = seed_share, key_share
        shapes = [votes.shape]
        masked = parameters_addition([votes], pseudo_rand_gen(self.seed, self.modulus, shapes))
        for number in boxes:
            mask = pseudo_rand_gen(self._agree(0, self.peers[number][0]), self.modulus, shapes)
            combine = parameters_addition if self.number > number else parameters_subtraction
            masked = combine(masked, mask)
        found: Counts = parameters_mod(masked, self.modulus)[0]
        return found

    def unmask(self, survivors: Mapping[int, object]) -> dict[int, bytes]:
        """The shares of the survivors' seeds."""
        return {number: self.seed_shares[number] for number in survivors}

    def _agree(self, which: int, public: bytes) -> bytes:
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
        from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

        return generate_shared_key(
            bytes_to_private_key(self.private[which]), bytes_to_public_key(public)
        )


def flower_sum(votes: Mapping[int, Counts], *, threshold: int, modulus: int) -> Meter:
    """Sum the parties' votes on the complete graph, without dropouts; return its costs.

    Raises:
        AssertionError: if the sum is not exact: the work would not be comparable.
    """
    from flwr.common import ndarray_to_bytes
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    meter = Meter()
    parties = {number: FlowerParty(number, threshold, modulus) for number in votes}
    # Warm up: first calls pay for imports and tables, which are not measured.
    FlowerParty(0, 1, modulus).shares({0: FlowerParty(0, 1, modulus).keys()})
    keys = {}
    for number, party in parties.items():
        with meter.party("keys", number):
            keys[number] = party.keys()
        meter.sent("keys", number, sum(map(len, keys[number])))
    boxes: dict[int, dict[int, bytes]] = {number: {} for number in parties}
    for number, party in parties.items():
        with meter.party("shares", number):
            sealed = party.shares(keys)
        meter.sent("shares", number, sum(map(len, sealed.values())))
        for to, box in sealed.items():
            boxes[to][number] = box
    total = np.zeros_like(next(iter(votes.values())))
    for number, party in parties.items():
        with meter.party("votes", number):
            body = ndarray_to_bytes(masked := party.votes(boxes[number], votes[number]))
        meter.sent("votes", number, len(body))
        total += masked
    opened = {}
    for number, party in parties.items():
        with meter.party("unmask", number):
            opened[number] = party.unmask(votes)
        meter.sent("unmask", number, sum(map(len, opened[number].values())))
    for number in parties:
        shares = [opened[holder][number] for holder in list(parties)[:threshold]]
        total -= pseudo_rand_gen(combine_shares(shares), modulus, [total.shape])[0]
    np.testing.assert_array_equal(total % modulus, sum(votes.values()) % modulus)
    return meter
