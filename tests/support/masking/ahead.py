"""Parties with bundles, and rounds of them, in one process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pate.errors import RefusedError
from pate.masking.ahead.bundle import Bundle, BundleRoster, Round, Sealed
from pate.masking.ahead.party import PartyAhead
from pate.masking.ahead.server import ServerAhead
from pate.masking.ahead.store import Asker, Kind, Place
from pate.masking.context import VERSION, Context, Member
from pate.masking.keys import KeyPair
from pate.masking.ring import VoteStream
from pate.masking.shamir import UnmaskingShares
from tests.support.masking.attempts import bytes_from, flat_context, identity_of, name_of

Votes = NDArray[np.int64]


class KilledError(Exception):
    """The process died."""


@dataclass
class MemoryStore:
    """Entries in memory; ``lives`` is the number of changes before the process dies, if it does."""

    entries: dict[Place, bytes] = field(default_factory=dict)
    lives: int | None = None

    def get(self, kind: Kind, key: bytes) -> bytes | None:
        return self.entries.get((kind, key))

    def find(self, kind: Kind, prefix: bytes = b"") -> dict[bytes, bytes]:
        return {
            key: value
            for (of, key), value in self.entries.items()
            if of is kind and key.startswith(prefix)
        }

    def change(self, add: Mapping[Place, bytes], remove: Collection[Place] = ()) -> None:
        if any(self.entries.get(place, value) != value for place, value in add.items()):
            raise RefusedError("an entry is there, with other content")
        if self.lives is not None and not add.items() <= self.entries.items():
            self.lives -= 1
            if self.lives < 0:
                raise KilledError
        self.entries.update(add)
        for place in remove:
            self.entries.pop(place, None)


ASKER = Asker(bytes(32), bytes(16), 1_800_000_000)


@dataclass
class Field:
    """Parties of one roster, each with a store.

    Attributes:
        parties: n.
        threshold: t.
        colluders: c.
        consent: of its rounds.
        stream: of a party's masks, by its name.
    """

    parties: int
    threshold: int
    colluders: int
    consent: bool = False
    bits: int = 16
    rows: int = 2
    classes: int = 3
    stream: Callable[[str], VoteStream] | None = None

    def __post_init__(self) -> None:
        self.names = [name_of(number) for number in range(self.parties)]
        self.stores = {name: MemoryStore() for name in self.names}
        self.sealing = {name: KeyPair(bytes_from(("sealing", name))(32)) for name in self.names}
        self.random = {name: bytes_from(name) for name in self.names}
        self.members = tuple(
            Member(name, identity_of(name).public_key().public_bytes_raw()) for name in self.names
        )
        self.roster = BundleRoster(
            tuple(Sealed(member, *self.party(member.name).sealing()) for member in self.members),
            self.threshold,
            self.colluders,
        )
        rng = np.random.default_rng(self.parties)
        self.values: dict[str, Votes] = {
            name: rng.integers(-9, 10, (self.rows, self.classes)) for name in self.names
        }

    def party(self, name: str, store: MemoryStore | None = None) -> PartyAhead:
        """A party as it starts, with all that its store has."""
        return PartyAhead(
            name=name,
            identity=identity_of(name),
            pair=self.sealing[name],
            store=store or self.stores[name],
            random=self.random[name],
            stream=None if self.stream is None else self.stream(name),
        )

    def bundle(self, name: str, number: int) -> tuple[Bundle, dict[str, bytes]]:
        """A party's bundle of a number, and its boxes."""
        ((bundle, boxes),) = self.party(name).bundles(self.roster, number, 1, ASKER)
        return bundle, boxes

    def context(self, attempt: int = 0, batch: bytes = bytes(32), **changes: object) -> Context:
        fields = {
            "version": VERSION, "campaign": bytes(16), "attempt": attempt.to_bytes(16, "little"),
            "batch": batch, "members": self.members, "rows": self.rows, "classes": self.classes,
            "bits": self.bits, "threshold": self.threshold, "colluders": self.colluders,
            "terms": bytes(32),
        }  # fmt: skip
        return flat_context(**{**fields, **changes})  # type: ignore[arg-type]  # of these types

    def round(
        self, numbers: int | Mapping[str, int] = 0, attempt: int = 0, **changes: object
    ) -> Round:
        """A round of the bundles of these numbers; of all parties, or of those named."""
        chosen = dict.fromkeys(self.names, numbers) if isinstance(numbers, int) else numbers
        bundles = {name: self.bundle(name, number)[0] for name, number in chosen.items()}
        return Round(self.context(attempt, **changes), self.roster, bundles, self.consent)  # type: ignore[arg-type]

    def boxes(self, name: str, round_: Round) -> dict[str, bytes]:
        """The boxes for a party of a round."""
        return {
            peer: self.bundle(peer, bundle.number)[1][name]
            for peer, bundle in round_.bundles.items()
            if peer != name
        }

    def mask(self, name: str, round_: Round, values: Votes | None = None) -> tuple[bytes, bytes]:
        """A party's answer to the first step."""
        party = self.party(name)
        party.begin(round_, self.boxes(name, round_))
        return party.mask(round_, lambda: self.values[name] if values is None else values)

    def signed(self, round_: Round, names: Collection[str]) -> dict[str, bytes]:
        """That these have masked, as they sign it."""
        return {name: round_.sign_masked(name, identity_of(name)) for name in names}

    def open(
        self, name: str, round_: Round, survivors: Collection[str],
        consents: Mapping[str, bytes] | None = None,
    ) -> UnmaskingShares:  # fmt: skip
        """A party's answer to the last step."""
        party = self.party(name)
        party.choose(round_, self.signed(round_, survivors), consents or {})
        return party.unmask(round_)

    def consents(self, round_: Round, survivors: Collection[str]) -> dict[str, bytes]:
        """Signatures of all survivors over their list."""
        masked = self.signed(round_, survivors)
        return {name: self.party(name).sign(round_, masked) for name in sorted(survivors)}

    def run(self, round_: Round, answering: Collection[str], opening: Collection[str]) -> Votes:
        """A whole round with an honest server; every party and the server start anew each step."""
        server = ServerAhead(round_)
        for name in answering:
            server.take_masked(name, *self.mask(name, round_))
        server.advance()
        server = ServerAhead.restore(round_, server.to_bytes())
        if round_.consent:
            for name in opening:
                server.take_signature(name, self.party(name).sign(round_, server.masked))
            server.advance()
            server = ServerAhead.restore(round_, server.to_bytes())
        for name in opening:
            party = self.party(name)
            party.choose(round_, server.masked, server.consents)
            server.take_unmasking(name, party.unmask(round_))
        server.advance()
        return ServerAhead.restore(round_, server.to_bytes()).result()

    def saved(self) -> dict[str, MemoryStore]:
        """A copy of all stores."""
        return copy.deepcopy(self.stores)
