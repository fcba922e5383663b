"""Whole attempts at masked sums in one process, for the tests of this folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from pate.masking.context import VERSION, Context, Matrix, Member, Roster
from pate.masking.keys import Keys
from pate.masking.party import PartyMasking
from pate.masking.server import ServerMasking
from pate.masking.shamir import UnmaskingShares


def bytes_from(seed: object) -> Callable[[int], bytes]:
    """A random source that gives the same bytes in every run."""
    key = repr(seed).encode()
    calls = 0

    def random(count: int) -> bytes:
        nonlocal calls
        calls += 1
        return hashlib.shake_256(key + calls.to_bytes(4, "little")).digest(count)

    return random


def name_of(number: int) -> str:
    return f"party_{number:03d}"


@cache
def identity_of(name: str, world: int = 0) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"{world}/{name}".encode()).digest())


def flat_context(
    *, members: tuple[Member, ...], threshold: int, colluders: int,
    batch: bytes, rows: int, classes: int, bits: int, version: int = VERSION, **rest: Any,
) -> Context:  # fmt: skip
    """A context from the fields of all its parts."""
    roster = Roster(members, threshold, colluders)
    return Context(version, roster=roster, matrix=Matrix(batch, rows, classes, bits), **rest)


def changed(context: Context, **changes: Any) -> Context:
    """A context with other fields, of whichever part."""
    for part in ("roster", "matrix"):
        whole = getattr(context, part)
        inside = {name: changes.pop(name) for name in [*changes] if name in vars(whole)}
        changes[part] = replace(whole, **inside)
    return replace(context, **changes)


def context_for(
    parties: int,
    threshold: int,
    colluders: int,
    *,
    rows: int = 2,
    classes: int = 3,
    bits: int = 16,
    attempt: int = 0,
) -> Context:
    names = [name_of(number) for number in range(parties)]
    return flat_context(
        campaign=bytes(16),
        attempt=attempt.to_bytes(16, "little"),
        batch=bytes(32),
        members=tuple(
            Member(name, identity_of(name).public_key().public_bytes_raw()) for name in names
        ),
        rows=rows,
        classes=classes,
        bits=bits,
        threshold=threshold,
        colluders=colluders,
        terms=bytes(32),
    )


def party_of(context: Context, name: str, instance: object = 0) -> PartyMasking:
    return PartyMasking(
        context,
        name=name,
        identity=identity_of(name),
        random=bytes_from((name, context.attempt, instance)),
    )


@dataclass
class Attempt:
    """An honest server and honest parties, phase by phase."""

    context: Context
    parties: dict[str, PartyMasking] = field(init=False)
    server: ServerMasking = field(init=False)
    values: dict[str, NDArray[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        self.parties = {name: party_of(self.context, name) for name in self.context.names}
        self.server = ServerMasking(self.context)
        rng = np.random.default_rng(len(self.context.names))
        shape = self.context.matrix.shape
        self.values = {name: rng.integers(-9, 10, shape) for name in self.context.names}

    def announce(self, who: Collection[str]) -> Mapping[str, Keys]:
        keys = {name: self.parties[name].keys() for name in who}
        for name, each in keys.items():
            self.server.take_keys(name, each)
        self.server.advance()
        return keys

    def share(self, who: Collection[str]) -> Mapping[str, Mapping[str, bytes]]:
        server = self.server
        boxes = {
            name: self.parties[name].shares(server.keys_for(name), server.outline_for(name))
            for name in who
        }
        for name, each in boxes.items():
            self.server.take_boxes(name, each)
        self.server.advance()
        return boxes

    def vote(self, who: Collection[str]) -> None:
        for name in who:
            packed = self.parties[name].mask(self.server.boxes_for(name), self.values[name])
            self.server.take_masked(name, packed)
        self.server.advance()

    def agree(self, who: Collection[str]) -> None:
        for name in who:
            signature = self.parties[name].sign_survivors(self.server.survivors)
            self.server.take_signature(name, signature)
        self.server.advance()

    def open(self, who: Collection[str]) -> Mapping[str, UnmaskingShares]:
        openings = {name: self.parties[name].unmask(self.server.signatures) for name in who}
        for name, each in openings.items():
            self.server.take_unmasking(name, each)
        self.server.advance()
        return openings

    @property
    def steps(self) -> tuple[Callable[[Collection[str]], object], ...]:
        """The phases, in order."""
        return (self.announce, self.share, self.vote, self.agree, self.open)

    def run(self, *phases: Collection[str]) -> NDArray[np.int64]:
        """Go through all phases, each with those named for it (as before, if none are)."""
        present: Collection[str] = self.context.names
        for number, step in enumerate(self.steps):
            present = phases[number] if number < len(phases) else present
            step(present)
        return self.server.result()

    def expected(self, who: Collection[str]) -> NDArray[np.int64]:
        """The sum of the votes of some, as residues."""
        total = np.sum([self.values[name] for name in who], axis=0)
        return np.asarray(total % 2**self.context.matrix.bits, dtype=np.int64)
