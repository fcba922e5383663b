"""The masked sum of the test vectors: five parties, two of which drop out."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from pate.masking.announced import Announced
from pate.masking.context import VERSION, Context, Member
from pate.masking.keys import KeyPair, Keys
from pate.masking.masks import own_mask_key, pair_mask_key
from pate.masking.party import PartyMasking
from pate.masking.ring import ChaChaStream, Ring
from pate.masking.server import ServerMasking
from pate.masking.shamir import UnmaskingShares
from tests.support.masking.attempts import flat_context

NAMES = ("aachen", "bergen", "cádiz", "delft", "espoo")
#: Announces keys and is never heard of again. Delft shares its secrets and never votes.
SILENT = "espoo"
SURVIVORS = NAMES[:3]


def fixed(label: str, count: int = 32) -> bytes:
    return hashlib.shake_256(f"masking vectors/{label}".encode()).digest(count)


def plain(value: object) -> Any:
    """A value as JSON: bytes in hex, messages as objects."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (Keys, UnmaskingShares, Member)):
        return {name: plain(each) for name, each in vars(value).items()}
    if isinstance(value, Context):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value


class Run:
    """A whole masked sum of five parties, of which two drop out."""

    def __init__(self) -> None:
        self.identities = {
            name: Ed25519PrivateKey.from_private_bytes(fixed(f"identity of {name}"))
            for name in NAMES
        }
        self.context = flat_context(
            version=VERSION, campaign=fixed("campaign", 16), attempt=fixed("attempt", 16),
            batch=fixed("batch"), members=tuple(
                Member(name, key.public_key().public_bytes_raw())
                for name, key in self.identities.items()
            ),
            rows=2, classes=3, bits=16, threshold=3, colluders=0, terms=fixed("terms"),
        )  # fmt: skip
        self.votes: dict[str, NDArray[np.int64]] = {
            name: np.array([[at, 7 - at, -3], [0, 70 * at, 30_000]], dtype=np.int64)
            for at, name in enumerate(NAMES)
        }
        self.drawn: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self.parties = {
            name: PartyMasking(self.context, name=name, identity=key, random=self.tape(name))
            for name, key in self.identities.items()
        }
        self.keys = {name: party.keys() for name, party in self.parties.items()}
        self.announced = Announced(self.context, self.keys)
        self.boxes = {
            name: party.shares(self.keys) for name, party in self.parties.items() if name != SILENT
        }
        self.masked = {
            name: self.parties[name].mask(self.boxes_for(name), self.votes[name])
            for name in SURVIVORS
        }
        self.signatures = {name: self.parties[name].sign_survivors(SURVIVORS) for name in SURVIVORS}
        self.openings = {name: self.parties[name].unmask(self.signatures) for name in SURVIVORS}
        server = ServerMasking(self.context)
        for name, keys in self.keys.items():
            server.take_keys(name, keys)
        server.advance()
        for name, boxes in self.boxes.items():
            server.take_boxes(name, boxes)
        server.advance()
        for name, masked in self.masked.items():
            server.take_masked(name, masked)
        server.advance()
        for name, signature in self.signatures.items():
            server.take_signature(name, signature)
        server.advance()
        for name, opening in self.openings.items():
            server.take_unmasking(name, opening)
        server.advance()
        self.sum = server.result()

    def tape(self, name: str) -> Any:
        at = itertools.count()

        def draw(count: int) -> bytes:
            self.drawn[name].append(fixed(f"{name}/{next(at)}", count))
            return self.drawn[name][-1]

        return draw

    def boxes_for(self, name: str) -> dict[str, bytes]:
        return {peer: boxes[name] for peer, boxes in self.boxes.items() if peer != name}

    def secret(self, name: str, which: int) -> bytes:
        """A party's mask key, share key or seed, in the order in which they are drawn."""
        return self.drawn[name][which]

    def as_json(self) -> dict[str, object]:
        pair = {name: KeyPair(self.secret(name, 0)) for name in NAMES}
        own = {name: own_mask_key(self.announced, name, self.secret(name, 2)) for name in SURVIVORS}
        stream = ChaChaStream(Ring(self.context.matrix.bits))
        return {
            "context": plain(self.context),
            "digest": self.context.digest.hex(),
            "announced": self.announced.digest.hex(),
            "identities": {
                name: key.private_bytes_raw().hex() for name, key in self.identities.items()
            },
            "drawn": plain(self.drawn),
            "votes": plain(self.votes),
            "keys": plain(self.keys),
            "own_mask_keys": plain(own),
            "pair_mask_keys": [
                [*both, pair_mask_key(self.announced, pair[both[0]], *both).hex()]
                for both in itertools.combinations(NAMES[:4], 2)
            ],
            "own_masks": {
                name: stream(key, self.context.values).tolist() for name, key in own.items()
            },
            "boxes": plain(self.boxes),
            "masked": plain(self.masked),
            "survivors": SURVIVORS,
            "signatures": plain(self.signatures),
            "openings": plain(self.openings),
            "sum": plain(self.sum),
        }


def iter_of(drawn: list[bytes]) -> Any:
    rest = iter(drawn)
    return lambda count: next(rest)[:count]
