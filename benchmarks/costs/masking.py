"""``python -m benchmarks.costs.masking [--out DIR] [--quick]``: the cost of masked sums.

Compares a masked sum with a plain one, for 5 to 250 simulated parties and 1,000 and 9,000 queries of 10
classes, and with Flower's secure aggregation primitives for 25 parties and 9,000 queries: one party's work in
the four stages of SecAgg+, in the order of Flower's client and with the functions of the installed package.
The parties run one after another in one process, which separates their CPU seconds; there is no network.
Every party masks and every mask is reconstructed. Ratios are of figures of the same run.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from statistics import median
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.costs import main_of
from pate.masking.context import VERSION, Context, Matrix, Member, Roster, threshold_for
from pate.masking.party import PartyMasking
from pate.masking.server import ServerMasking
from pate.runtime.environment import QUIET_FLOWER
from pate.votes import Counts
from protos.pate.v1 import vote_pb2
from protos.terms import exact_bits
from protos.wire import pack_votes, read_votes

PARTIES: Final = (5, 25, 100, 250)
QUERIES: Final = (1_000, 9_000)
CLASSES: Final = 10
#: Of each party. 25 parties have the 250 teachers of the published MNIST runs.
TEACHERS: Final = 10
BATCH: Final = hashlib.sha256(b"benchmark").digest()
#: Repetitions of measurements that take milliseconds.
_REPEATS: Final = 5
#: The promised bounds, at 25 parties and 9,000 queries.
_BYTES_RATIO, _PARTY_SECONDS, _TIMES_LESS = 1.15, 1.0, 10.0


@dataclass(frozen=True)
class Size:
    """The size of a sum.

    Attributes:
        parties: n; each has ``teachers``.
        queries: rows of the vote matrix.
        teachers: k, of each party.
        classes: columns of the vote matrix.
    """

    parties: int
    queries: int
    teachers: int = TEACHERS
    classes: int = CLASSES

    @property
    def bits(self) -> int:
        """Width of the ring that has room for every sum of these votes."""
        return exact_bits(self.parties * self.teachers)

    def names(self) -> list[str]:
        """Return the parties' names."""
        return [f"party_{number:03d}" for number in range(self.parties)]

    def votes(self, number: int) -> Counts:
        """(queries, classes) int64, generated on each call: 250 of them would fill the memory."""
        rng = np.random.default_rng([self.parties, self.queries, number])
        return rng.multinomial(self.teachers, [1 / self.classes] * self.classes, self.queries)


_MEASURED: Final = Size(25, 9_000)


def _table() -> dict[str, dict[object, float]]:
    return defaultdict(lambda: defaultdict(float))


@dataclass
class Meter:
    """CPU seconds of all threads, and bytes of message fields, by phase and party."""

    seconds: dict[str, dict[object, float]] = field(default_factory=_table)
    up: dict[str, dict[object, float]] = field(default_factory=_table)
    down: dict[str, dict[object, float]] = field(default_factory=_table)
    server: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def party(self, phase: str, who: object) -> Iterator[None]:
        """Count the CPU time of the body as that party's."""
        began = time.process_time()
        yield
        self.seconds[phase][who] += time.process_time() - began

    @contextmanager
    def at_server(self, phase: str) -> Iterator[None]:
        """Count the CPU time of the body as the server's."""
        began = time.process_time()
        yield
        self.server[phase] += time.process_time() - began

    def costs(self) -> dict[str, dict[str, float]]:
        """Return medians over the parties by phase, and the server's own, each with its total."""
        of_parties = {"party_seconds": self.seconds, "bytes_up": self.up, "bytes_down": self.down}
        found = {name: _medians(table) for name, table in of_parties.items()}
        return {**found, "server_seconds": {**self.server, "total": sum(self.server.values())}}


def _medians(table: Mapping[str, Mapping[object, float]]) -> dict[str, float]:
    totals: dict[object, float] = defaultdict(float)
    for each in table.values():
        for who, value in each.items():
            totals[who] += value
    found = {phase: median(each.values()) for phase, each in table.items()}
    return {**found, "total": median(totals.values())} if totals else found


def size_of(message: object) -> int:
    """Return the bytes of all fields of a message, including names, without framing."""
    if isinstance(message, bytes | str):
        return len(message if isinstance(message, bytes) else message.encode())
    if isinstance(message, Mapping):
        return sum(size_of(key) + size_of(value) for key, value in message.items())
    if isinstance(message, tuple | list):
        return sum(map(size_of, message))
    assert is_dataclass(message), f"a message has a field of type {type(message).__name__}"
    return sum(size_of(getattr(message, each.name)) for each in fields(message))


def plain_sum(size: Size) -> Meter:
    """Pack, send, read and add every party's vote matrix.

    Raises:
        AssertionError: if the sum is not exact.
    """
    meter = Meter()
    total = np.zeros((size.queries, size.classes), dtype=np.int64)
    expected = total.copy()
    for number, name in enumerate(size.names()):
        votes = size.votes(number)
        expected += votes
        with meter.party("votes", name):
            body = pack_votes(votes, teachers=size.teachers, batch=BATCH).SerializeToString()
        meter.up["votes"][name] += len(body)
        with meter.at_server("votes"):
            total += read_votes(
                vote_pb2.VoteMatrix.FromString(body), teachers=size.teachers,
                classes=size.classes, queries=size.queries, batch=BATCH,
            )  # fmt: skip
    np.testing.assert_array_equal(total, expected)
    return meter


def masked_sum(size: Size, *, lost_after_shares: int = 0) -> Meter:
    """Run the whole masked sum; some parties may drop out between their shares and their votes.

    Raises:
        AssertionError: if the sum over the survivors is not exact.
    """
    meter = Meter()
    names = size.names()
    identities = {name: Ed25519PrivateKey.generate() for name in names}
    threshold, colluders = threshold_for(size.parties)
    members = tuple(
        Member(name, key.public_key().public_bytes_raw()) for name, key in identities.items()
    )
    context = Context(
        VERSION, os.urandom(16), os.urandom(16), Roster(members, threshold, colluders),
        Matrix(BATCH, size.queries, size.classes, size.bits), hashlib.sha256(b"terms").digest(),
    )  # fmt: skip
    server = ServerMasking(context)
    parties = {
        name: PartyMasking(context, name=name, identity=key, random=os.urandom)
        for name, key in identities.items()
    }
    # Who announced keys, and who survived, is a bit set on the wire.
    bits = -(-size.parties // 8)

    for name, party in parties.items():
        with meter.party("keys", name):
            keys = party.keys()
        meter.up["keys"][name] += size_of(keys)
        with meter.at_server("keys"):
            server.take_keys(name, keys)
    with meter.at_server("keys"):
        server.advance()

    for name, party in parties.items():
        with meter.at_server("shares"):
            peers, outline = server.keys_for(name), server.outline_for(name)
        meter.down["shares"][name] += size_of(peers) + bits + size_of(outline.hashes)
        with meter.party("shares", name):
            boxes = party.shares(peers, outline)
        meter.up["shares"][name] += size_of(boxes)
        with meter.at_server("shares"):
            server.take_boxes(name, boxes)
    with meter.at_server("shares"):
        server.advance()

    expected = np.zeros((size.queries, size.classes), dtype=np.int64)
    for number, name in enumerate(names[: size.parties - lost_after_shares]):
        votes = size.votes(number)
        expected += votes
        with meter.at_server("votes"):
            boxes = server.boxes_for(name)
        meter.down["votes"][name] += size_of(boxes)
        with meter.party("votes", name):
            masked = parties[name].mask(boxes, votes)
        meter.up["votes"][name] += size_of(masked)
        with meter.at_server("votes"):
            server.take_masked(name, masked)
    with meter.at_server("votes"):
        server.advance()

    for name in server.survivors:
        meter.down["consistency"][name] += bits
        with meter.party("consistency", name):
            signature = parties[name].sign_survivors(server.survivors)
        meter.up["consistency"][name] += size_of(signature)
        with meter.at_server("consistency"):
            server.take_signature(name, signature)
    with meter.at_server("consistency"):
        server.advance()

    for name in server.survivors:
        signatures = server.signatures
        meter.down["unmask"][name] += size_of(signatures)
        with meter.party("unmask", name):
            opening = parties[name].unmask(signatures)
        meter.up["unmask"][name] += size_of(opening)
        with meter.at_server("unmask"):
            server.take_unmasking(name, opening)
    with meter.at_server("unmask"):
        server.advance()
        found = server.result()
    # Residues: votes may have signs.
    np.testing.assert_array_equal(found, expected % (1 << size.bits))
    return meter


@dataclass
class FlowerParty:
    """One party between the stages, as in Flower's client; votes are integers, nothing is quantised."""

    number: int
    threshold: int
    modulus: int
    private: tuple[bytes, bytes] = (b"", b"")
    public: tuple[bytes, bytes] = (b"", b"")
    peers: Mapping[int, tuple[bytes, bytes]] = field(default_factory=dict)
    seed: bytes = b""
    box_keys: dict[int, bytes] = field(default_factory=dict)
    seed_shares: dict[int, bytes] = field(default_factory=dict)

    def keys(self) -> tuple[bytes, bytes]:
        """Return two public keys: one for masks, one for boxes."""
        from flwr.supercore.primitives import asymmetric as flower

        pairs = [flower.generate_key_pairs() for _ in range(2)]
        mask, box = (flower.private_key_to_bytes(private) for private, _ in pairs)
        self.private = mask, box
        mask, box = (flower.public_key_to_bytes(public) for _, public in pairs)
        self.public = mask, box
        return self.public

    def shares(self, peers: Mapping[int, tuple[bytes, bytes]]) -> dict[int, bytes]:
        """Return one box for each peer, with a share of the seed and one of the private key."""
        from flwr.common.secure_aggregation.crypto.shamir import create_shares
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt
        from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat

        self.peers, self.seed = peers, os.urandom(32)
        seeds = create_shares(self.seed, self.threshold, len(peers))
        keys = create_shares(self.private[0], self.threshold, len(peers))
        boxes = {}
        for (number, (_, box_public)), seed, key in zip(peers.items(), seeds, keys, strict=True):
            if number == self.number:
                self.seed_shares[number] = seed
                continue
            self.box_keys[number] = self._agree(1, box_public)
            text = share_keys_plaintext_concat(self.number, number, seed, key)
            boxes[number] = encrypt(self.box_keys[number], text)
        return boxes

    def votes(self, boxes: Mapping[int, bytes], votes: Counts) -> Counts:
        """Open the boxes, then mask the votes with every sender's mask and the party's own."""
        from flwr.common.secure_aggregation import ndarrays_arithmetic as flower
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt
        from flwr.common.secure_aggregation.secaggplus_utils import (
            pseudo_rand_gen,
            share_keys_plaintext_separate,
        )  # fmt: skip

        for number, box in boxes.items():
            text = decrypt(self.box_keys[number], box)
            source, _, self.seed_shares[number], _ = share_keys_plaintext_separate(text)
            assert source == number
        shapes = [votes.shape]
        masked = flower.parameters_addition(
            [votes], pseudo_rand_gen(self.seed, self.modulus, shapes)
        )
        for number in boxes:
            mask = pseudo_rand_gen(self._agree(0, self.peers[number][0]), self.modulus, shapes)
            added = self.number > number
            combine = flower.parameters_addition if added else flower.parameters_subtraction
            masked = combine(masked, mask)
        found: Counts = flower.parameters_mod(masked, self.modulus)[0]
        return found

    def _agree(self, which: int, public: bytes) -> bytes:
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
        from flwr.supercore.primitives import asymmetric as flower

        return generate_shared_key(
            flower.bytes_to_private_key(self.private[which]), flower.bytes_to_public_key(public)
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
        meter.up["keys"][number] += size_of(keys[number])
    boxes: dict[int, dict[int, bytes]] = {number: {} for number in parties}
    for number, party in parties.items():
        with meter.party("shares", number):
            sealed = party.shares(keys)
        meter.up["shares"][number] += sum(map(len, sealed.values()))
        for to, box in sealed.items():
            boxes[to][number] = box
    total = np.zeros_like(next(iter(votes.values())))
    for number, party in parties.items():
        with meter.party("votes", number):
            body = ndarray_to_bytes(masked := party.votes(boxes[number], votes[number]))
        meter.up["votes"][number] += len(body)
        total += masked
    for number, party in parties.items():
        meter.up["unmask"][number] += sum(map(len, party.seed_shares.values()))
        shares = [each.seed_shares[number] for each in list(parties.values())[:threshold]]
        total -= pseudo_rand_gen(combine_shares(shares), modulus, [total.shape])[0]
    np.testing.assert_array_equal(total % modulus, sum(votes.values()) % modulus)
    return meter


def case(size: Size) -> dict[str, Any]:
    """Measure a size masked and plain; the best of several runs if they take milliseconds."""
    times = _REPEATS if size.parties <= _MEASURED.parties else 1
    return {
        "parties": size.parties,
        "queries": size.queries,
        "bits": size.bits,
        "plain": _best([plain_sum(size) for _ in range(times)]),
        "masked": _best([masked_sum(size) for _ in range(times)]),
    }


def _best(meters: list[Meter]) -> dict[str, dict[str, float]]:
    """Return the costs with the least party time: other load can only add."""
    return min((one.costs() for one in meters), key=lambda one: one["party_seconds"]["total"])


def run(*, quick: bool = False) -> dict[str, Any]:
    """Measure all sizes, or with ``quick`` those of up to 25 parties."""
    os.environ.update(QUIET_FLOWER)
    case(Size(5, 10))  # the warm up
    threshold, _ = threshold_for(_MEASURED.parties)
    votes = {number + 1: _MEASURED.votes(number) for number in range(_MEASURED.parties)}
    modulus = 2**_MEASURED.bits
    theirs = _best(
        [flower_sum(votes, threshold=threshold, modulus=modulus) for _ in range(_REPEATS)]
    )
    most = _MEASURED.parties if quick else max(PARTIES)
    growth = [case(Size(n, queries)) for n in PARTIES for queries in QUERIES if n <= most]
    here = next(
        each for each in growth
        if (each["parties"], each["queries"]) == (_MEASURED.parties, _MEASURED.queries)
    )  # fmt: skip
    lost = masked_sum(_MEASURED, lost_after_shares=_MEASURED.parties - threshold)
    return {
        "cores": os.cpu_count(),
        "classes": CLASSES,
        "growth": growth,
        "flower": {name: theirs[name] for name in ("party_seconds", "bytes_up")},
        "third_lost": lost.costs(),
        "checks": _checks(here, theirs),
    }


def _checks(here: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    up, down = here["masked"]["bytes_up"], here["masked"]["bytes_down"]
    least = (
        here["queries"] * CLASSES * here["bits"] // 8
        + up["keys"] + up["shares"] + down["shares"] + down["votes"]
    )  # fmt: skip
    moved = up["total"] + down["total"]
    ours = here["masked"]["party_seconds"]["total"]
    times = theirs["party_seconds"]["total"] / ours
    return {
        "bytes over packed matrix, keys and shares": {
            "found": round(moved / least, 4), "holds": moved <= _BYTES_RATIO * least,
        },
        "processor seconds of a party": {"found": ours, "holds": ours < _PARTY_SECONDS},
        "times less than Flower's primitives": {
            "found": round(times, 2), "holds": times >= _TIMES_LESS,
        },
    }  # fmt: skip


if __name__ == "__main__":
    main_of(__doc__, "masking", run)
