"""Masks: their keys, votes under them, and a sum from which they are removed.

Votes that are proved are in no sum before their proof. Unmasking reconstructs secrets from shares
that may be wrong.
"""

from __future__ import annotations

import hashlib
import hmac
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import ProtocolError
from pate.masking.encoding import HASH_BYTES, check_bytes, encode
from pate.masking.keys import KeyPair, derive
from pate.masking.proofs.argument import check_link, verify
from pate.masking.proofs.transcript import Statement
from pate.masking.shamir import (
    UnmaskingShares,
    combine,
    from_bytes,
    secret_of,
    to_bytes,
    weights,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pate.masking.announced import KnownKeys
    from pate.masking.context import Context
    from pate.masking.proofs.code import Elements
    from pate.masking.ring import LinkedRing, MaskStream, Residues

#: Most subsets of shares tried for one secret. With spare shares, one wrong share is excluded at
#: any threshold below this, and two at thresholds up to 40.
MOST_TRIES: Final = 1_000
#: Largest cost of all tries beyond the first for one sum, in squares of the threshold: some twenty
#: seconds. Many bad dealers must not cost the server an hour.
MOST_WORK: Final = 45_000_000


def own_mask_key(known: KnownKeys, name: str, seed: bytes) -> bytes:
    """Return the key of a party's own mask."""
    return derive(seed, encode("own mask", known.context.digest, known.digest, name.encode()))


def pair_mask_key(known: KnownKeys, own: KeyPair, name: str, peer: str) -> bytes:
    """Return the key of the mask of ``name``, whose pair is ``own``, and ``peer``: the same on both sides."""
    secret = own.agree(known.keys[peer].mask_key, peer)
    both = [
        part for each in sorted((name, peer)) for part in (each.encode(), known.keys[each].mask_key)
    ]
    return derive(secret, encode("pair mask", known.context.digest, known.digest, *both))


def hide(
    known: KnownKeys,
    name: str,
    secrets: tuple[KeyPair, bytes],
    values: NDArray[np.integer],
    peers: Iterable[str],
    stream: MaskStream,
) -> bytes:
    """Return a party's values under its own mask and those that it shares with others."""
    ring, (mask, seed) = stream.ring, secrets
    total = ring.reduce(values).ravel()
    ring.add(total, stream(own_mask_key(known, name, seed), total.size))
    for peer in peers:
        shared = stream(pair_mask_key(known, mask, name, peer), total.size)
        # The same mask is added by one of the two and subtracted by the other.
        (ring.add if name < peer else ring.subtract)(total, shared)
    return ring.pack(total)


def revealed(
    received: Mapping[str, tuple[int, int]], survivors: Collection[str]
) -> UnmaskingShares:
    """Return what a party reveals: shares of the seeds of survivors, and of the mask keys of others."""
    return UnmaskingShares(
        {name: to_bytes(seed) for name, (seed, _) in received.items() if name in survivors},
        {name: to_bytes(key) for name, (_, key) in received.items() if name not in survivors},
    )


class Collected:
    """Commitments, masked votes and links of one attempt; the context has the hash of the proofs' seed."""

    def __init__(self, context: Context, seed: bytes, ring: LinkedRing) -> None:
        self._context = context
        self._seed = seed
        self._ring = ring
        self._packed: dict[str, bytes] = {}
        self._links: dict[str, Elements] = {}
        self.proved: dict[str, bytes] = {}

    def masked(self, name: str, packed: bytes) -> Residues:
        """Return the masked values of a party's message, which follow its commitment."""
        check_bytes(packed, self._context.masked_bytes, f"what {name} masked")
        return self._ring.unpack(packed[HASH_BYTES:], self._context.values)

    def keep(self, name: str, packed: bytes) -> None:
        """Store a party's message: it is not in the sum before its votes are proved."""
        self._packed[name] = packed

    def take_proof(self, name: str, proof: bytes) -> None:
        """Check a proof."""
        statement = Statement(self._context.shape_of(name), self._context.digest, name)
        commitment = self._packed[name][:HASH_BYTES]
        self._links[name] = verify(statement, commitment, self._seed, proof)
        self.proved[name] = hashlib.sha256(proof).digest()

    def total(self, survivors: Sequence[str]) -> Residues:
        """Return the masked sum over these parties, and drop their masked values."""
        total = self._ring.reduce(np.zeros(self._context.values, dtype=np.int64))
        for name in survivors:
            self._ring.add(total, self.masked(name, self._packed[name]))
        self._packed.clear()
        return total

    def opened(self, total: Residues, survivors: Sequence[str]) -> NDArray[np.int64]:
        """Return the sum of votes, (count,), from an unmasked total."""
        context = self._context
        votes, masks = self._ring.split(total)
        counts = votes.astype(np.int64)
        shapes = [context.shape_of(name) for name in survivors]
        check_link(
            shapes[0],
            context.digest,
            self._seed,
            links=[self._links[name] for name in survivors],
            votes=counts.reshape(context.matrix.shape),
            masks=masks.reshape(shapes[0].linked),
            teachers=sum(shape.teachers for shape in shapes),
        )
        return counts


class Unmasking:
    """Removes masks from a sum of masked votes.

    ``faults`` has pairs (owner of the secret, sender of the share) of inconsistent shares. Either the first
    dealt a wrong share to the second, or the second revealed another one.
    """

    def __init__(self, known: KnownKeys, stream: MaskStream) -> None:
        self._known = known
        self._stream = stream
        self._work = 0
        self._weights: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.faults: set[tuple[str, str]] = set()

    def remove(
        self,
        total: Residues,
        survivors: Sequence[str],
        dropouts: Mapping[str, Sequence[str]],
        openings: Mapping[str, UnmaskingShares],
    ) -> None:
        """Remove all masks from a sum, in place; ``dropouts`` has the survivors that mask with each."""
        seeds: dict[str, dict[str, int]] = {}
        keys: dict[str, dict[str, int]] = {}
        for holder, opening in openings.items():
            for shares, of in ((opening.seed_shares, seeds), (opening.key_shares, keys)):
                for name, share in shares.items():
                    of.setdefault(name, {})[holder] = from_bytes(share, f"a share from {holder}")
        for name in survivors:
            self.own_mask(total, name, seeds[name])
        for name in sorted(dropouts):
            self.pair_masks(total, name, dropouts[name], keys[name])

    def own_mask(self, total: Residues, name: str, shares: Mapping[str, int]) -> None:
        """Remove a survivor's own mask, in place, by shares of its seed."""
        committed = self._known.keys[name].seed_commitment
        seed = self._recover(
            name,
            "seed",
            shares,
            lambda seed: hmac.compare_digest(self._known.committed(name, seed), committed),
        )
        key = own_mask_key(self._known, name, seed)
        self._stream.ring.subtract(total, self._stream(key, total.size))

    def pair_masks(
        self, total: Residues, name: str, survivors: Sequence[str], shares: Mapping[str, int]
    ) -> None:
        """Remove the masks that survivors share with a dropout, in place, by shares of its mask key."""
        public = self._known.keys[name].mask_key
        private = self._recover(
            name,
            "mask key",
            shares,
            lambda secret: hmac.compare_digest(KeyPair(secret).public, public),
        )
        pair, ring = KeyPair(private), self._stream.ring
        for peer in survivors:
            mask = self._stream(pair_mask_key(self._known, pair, name, peer), total.size)
            (ring.subtract if peer < name else ring.add)(total, mask)

    def _recover(
        self, name: str, kind: str, shares: Mapping[str, int], right: Callable[[bytes], bool]
    ) -> bytes:
        threshold = self._known.graph.threshold
        points = self._known.context.roster.points
        liars = {holder for _, holder in self.faults}
        # Senders of earlier wrong shares come last.
        holders = sorted(shares, key=lambda holder: (holder in liars, points[holder]))
        for tried, chosen in enumerate(_choices(holders, threshold)):
            self._work += threshold**2 if tried else 0
            if self._work > MOST_WORK:
                break
            at = tuple(points[holder] for holder in chosen)
            value = combine((shares[holder] for holder in chosen), self._weights_of(at))
            secret = secret_of(value)
            if secret is not None and right(secret):
                if chosen != tuple(holders[:threshold]):
                    self._blame(name, shares, chosen)
                return secret
        raise ProtocolError(
            f"the {len(shares)} shares of the {kind} of {name} do not give it back: {name} dealt "
            f"wrong shares, or some of {', '.join(sorted(shares)[:8])} revealed wrong ones"
        )

    def _blame(self, name: str, shares: Mapping[str, int], good: Sequence[str]) -> None:
        """Record the senders of shares that are not on the polynomial of ``good``."""
        points = self._known.context.roster.points
        at = [points[holder] for holder in good]
        for holder in sorted(shares.keys() - set(good)):
            by = weights(at, points[holder])
            if combine((shares[each] for each in good), by) != shares[holder]:
                self.faults.add((name, holder))

    def _weights_of(self, at: tuple[int, ...]) -> tuple[int, ...]:
        # On a complete graph all secrets have the same holders.
        if at not in self._weights:
            self._weights[at] = weights(at)
        return self._weights[at]


def _choices(holders: Sequence[str], threshold: int) -> Iterator[tuple[str, ...]]:
    """Yield different sets of ``threshold`` holders: without any one, any two, ... of them."""
    tried: set[tuple[str, ...]] = set()
    for without in range(len(holders) - threshold + 1):
        for left_out in combinations(range(len(holders)), without):
            kept = [each for place, each in enumerate(holders) if place not in left_out]
            chosen = tuple(kept[:threshold])
            if chosen in tried:
                continue
            if len(tried) >= MOST_TRIES:
                return
            tried.add(chosen)
            yield chosen
