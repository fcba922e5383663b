"""``python -m benchmarks cost NAME``: what the parts of a campaign cost; one JSON object is printed.

* ``accounting``: the accountant's speed, compared with one query at a time in numpy as the 2018 paper has it.
* ``masking``: masked and plain sums of 5 to 250 parties: processor seconds, and bytes that a party sends.
* ``campaign``: a whole campaign, this process being only its server: processor, memory and bytes.

Compare figures of one run only.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pate.masking.context import VERSION, Context, Matrix, Member, Roster, threshold_for
from pate.masking.party import PartyMasking
from pate.masking.server import ServerMasking
from pate.votes import Counts
from protos.pate.v1 import vote_pb2
from protos.terms import exact_bits
from protos.wire import pack_votes, read_votes

BATCH: Final = hashlib.sha256(b"benchmark").digest()
#: Repetitions of what takes milliseconds.
_REPEATS: Final = 5


def timed(what: Callable[[], object], times: int = 1) -> float:
    """Return the least processor seconds of several calls: other load can only add."""
    spent = []
    for _ in range(times):
        began = time.process_time()
        what()
        spent.append(time.process_time() - began)
    return min(spent)


# The accountant

#: Teachers, classes, queries, sigma.
_ACCOUNTS: Final = ((250, 10, 100_000, 40.0), (5_000, 150, 20_000, 100.0))
_ORDERS: Final = np.concatenate((np.arange(1.5, 26.5, 0.5), np.arange(27.0, 77.0)))
#: Queries of the slow implementation.
_SLOW_QUERIES: Final = 2_000


def one_query(votes: Counts, sigma: float) -> Any:
    """Proposition 7, then Theorem 6 with the orders of Proposition 10, as written in the 2018 paper."""
    from scipy.special import log_ndtr

    winner = int(votes.argmax())
    logs = log_ndtr((votes - votes[winner]) / (math.sqrt(2) * sigma))
    logs[winner] = -math.inf
    largest = logs.max()
    log_q = min(largest + math.log(np.exp(logs - largest).sum()), math.log1p(-1 / len(votes)))
    rate = 1 / sigma**2
    independent = _ORDERS * rate
    mu2 = math.sqrt(-log_q / rate)
    mu1, epsilon2 = mu2 + 1, rate * mu2
    if mu2 <= 1 or log_q + epsilon2 >= 0:
        return independent
    if log_q > (mu2 - 1) * epsilon2 - mu2 * (math.log(mu1 / (mu1 - 1)) + math.log(mu2 / (mu2 - 1))):
        return independent
    log_1q = math.log1p(-math.exp(log_q))
    log_a = log_1q - math.log1p(-math.exp((log_q + epsilon2) * (1 - 1 / mu2)))
    log_b = rate * mu1 - log_q / (mu1 - 1)
    powers = _ORDERS - 1
    bound = np.logaddexp(log_1q + powers * log_a, log_q + powers * log_b) / powers
    return np.where(mu1 > _ORDERS, np.minimum(independent, bound), independent)


def speed(teachers: int, classes: int, queries: int, sigma: float) -> dict[str, object]:
    """Return queries per second, from votes to a total, of the slow way and of both bounds."""
    from pate.accounting.bounds import outlier, theorem6
    from pate.accounting.bounds.laws import Gaussian
    from pate.accounting.bounds.theorem6_plus import Table

    rng = np.random.default_rng(7)
    right = rng.uniform(0.2, 1.0, queries)  # queries of all difficulties
    shares = np.repeat(((1 - right) / (classes - 1))[:, None], classes, axis=1)
    shares[np.arange(queries), rng.integers(classes, size=queries)] = right
    votes = rng.multinomial(teachers, shares).astype(np.int64)
    few, law, rate = votes[:_SLOW_QUERIES], Gaussian(sigma), 1 / sigma**2
    table = Table.build(math.sqrt(2) * law.mu_of_step, _ORDERS)

    def slow() -> Any:
        return sum(one_query(row, sigma) for row in few)

    def theorem(some: Counts) -> Any:
        return theorem6.rdp(outlier.gnmax_log_q(some, law), rate, _ORDERS).sum(axis=0)

    def looked_up(some: Counts) -> Any:
        return table.lookup(outlier.gnmax_log_q(some, law)).sum(axis=0)

    np.testing.assert_allclose(slow(), theorem(few), rtol=1e-7)
    return {
        "one query at a time": round(len(few) / timed(slow, _REPEATS)),
        "theorem6": round(queries / timed(lambda: theorem(votes), _REPEATS)),
        "sharp": round(queries / timed(lambda: looked_up(votes), _REPEATS)),
    }


def accounting(*, quick: bool = False) -> dict[str, Any]:
    """Return queries per second for both sizes, or with ``quick`` for few queries of the first."""
    sizes = [(250, 10, _SLOW_QUERIES, 40.0)] if quick else _ACCOUNTS
    return {f"{size[0]} teachers, {size[1]} classes": speed(*size) for size in sizes}


# Masked sums


@dataclass(frozen=True)
class Size:
    """A sum: n parties, each with some teachers; rows and columns of the vote matrix."""

    parties: int
    queries: int
    teachers: int = 10
    classes: int = 10

    @property
    def bits(self) -> int:
        """Width of the ring that has room for every sum of these votes."""
        return exact_bits(self.parties * self.teachers)

    def votes(self, number: int) -> Counts:
        """(queries, classes) int64, drawn on each call: 250 of them would fill the memory."""
        rng = np.random.default_rng([self.parties, self.queries, number])
        return rng.multinomial(self.teachers, [1 / self.classes] * self.classes, self.queries)


class Metered:
    """An object whose calls are counted: processor seconds, and bytes of what they return, by method."""

    def __init__(self, inner: object) -> None:
        self._inner = inner
        self.seconds: dict[str, float] = defaultdict(float)
        self.bytes: dict[str, int] = defaultdict(int)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*given: object) -> object:
            began = time.process_time()
            reply = value(*given)
            self.seconds[name] += time.process_time() - began
            self.bytes[name] += size_of(reply)
            return reply

        return call


def size_of(message: object) -> int:
    """Return the bytes of all fields of a message, including names, without framing."""
    if message is None or isinstance(message, int | np.ndarray):
        return 0
    if isinstance(message, bytes | str):
        return len(message if isinstance(message, bytes) else message.encode())
    if isinstance(message, Mapping):
        return sum(size_of(key) + size_of(value) for key, value in message.items())
    if isinstance(message, tuple | list):
        return sum(map(size_of, message))
    assert is_dataclass(message), f"a message has a field of type {type(message).__name__}"
    return sum(size_of(getattr(message, each.name)) for each in fields(message))


def figures(parties: Iterable[Metered], server: Metered) -> dict[str, Any]:
    """Return medians over the parties, and the server's own, by method and in all."""
    seconds, sent = [{**one.seconds} for one in parties], [{**one.bytes} for one in parties]
    return {
        "party_seconds": median(sum(one.values()) for one in seconds),
        "party_bytes": median(sum(one.values()) for one in sent),
        "bytes": {name: median(one.get(name, 0) for one in sent) for name in sent[0]},
        "server_seconds": sum(server.seconds.values()),
    }


class _Votes:
    """Plain votes of one party, packed and read."""

    def __init__(self, size: Size) -> None:
        self._size = size

    def pack(self, votes: Counts) -> bytes:
        """Return a party's message."""
        message = pack_votes(votes, teachers=self._size.teachers, batch=BATCH)
        return message.SerializeToString()

    def read(self, body: bytes) -> Counts:
        """Return the votes of a message."""
        size = self._size
        return read_votes(
            vote_pb2.VoteMatrix.FromString(body), teachers=size.teachers, classes=size.classes,
            queries=size.queries, batch=BATCH,
        )  # fmt: skip


def plain_sum(size: Size) -> dict[str, Any]:
    """Pack, send, read and add every party's votes; the sum is checked."""
    parties, server = [Metered(_Votes(size)) for _ in range(size.parties)], Metered(_Votes(size))
    votes = [size.votes(number) for number in range(size.parties)]
    found = sum(server.read(party.pack(each)) for party, each in zip(parties, votes, strict=True))
    np.testing.assert_array_equal(found, np.sum(votes, axis=0))
    return figures(parties, server)


def masked_sum(size: Size, *, lost: int = 0) -> dict[str, Any]:
    """Run a masked sum; some parties drop out between their shares and their votes. The sum is checked."""
    names = [f"party_{number:03d}" for number in range(size.parties)]
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    members = tuple(Member(name, key.public_key().public_bytes_raw()) for name, key in keys.items())
    context = Context(
        VERSION, os.urandom(16), os.urandom(16), Roster(members, *threshold_for(size.parties)),
        Matrix(BATCH, size.queries, size.classes, size.bits), hashlib.sha256(b"terms").digest(),
    )  # fmt: skip
    server = Metered(ServerMasking(context))
    parties = {
        name: Metered(PartyMasking(context, name=name, identity=key, random=os.urandom))
        for name, key in keys.items()
    }
    for name, party in parties.items():
        server.take_keys(name, party.keys())
    server.advance()
    for name, party in parties.items():
        server.take_boxes(name, party.shares(server.keys_for(name), server.outline_for(name)))
    server.advance()
    expected: Counts = np.zeros((size.queries, size.classes), dtype=np.int64)
    for number, name in enumerate(names[: size.parties - lost]):
        votes = size.votes(number)
        expected += votes
        server.take_masked(name, parties[name].mask(server.boxes_for(name), votes))
    server.advance()
    left = list(server.survivors)
    for name in left:
        server.take_signature(name, parties[name].sign_survivors(server.survivors))
    server.advance()
    for name in left:
        server.take_unmasking(name, parties[name].unmask(server.signatures))
    server.advance()
    np.testing.assert_array_equal(server.result(), expected % (1 << size.bits))
    return figures([parties[name] for name in left], server)


def masking(*, quick: bool = False) -> dict[str, Any]:
    """Return plain and masked sums of 5 to 250 parties, with ``quick`` of 5, and one that lost a third."""
    masked_sum(Size(5, 10))  # the warm up

    def best(make: Callable[..., dict[str, Any]], size: Size, **how: int) -> dict[str, Any]:
        made = [make(size, **how) for _ in range(_REPEATS if size.parties <= 25 else 1)]
        return min(made, key=lambda one: float(one["party_seconds"]))

    sizes = [Size(n, m) for n in ((5,) if quick else (5, 25, 100, 250)) for m in (1_000, 9_000)]
    lost = sizes[-1] if quick else Size(25, 9_000)
    return {
        "growth": [
            {**asdict(each), "plain": best(plain_sum, each), "masked": best(masked_sum, each)}
            for each in sizes
        ],
        "third_lost": best(masked_sum, lost, lost=lost.parties - threshold_for(lost.parties)[0]),
    }


# A campaign


class _Counted:
    """Carries messages, and counts their bytes."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self.nodes, self.close, self.store = link.nodes, link.close, link.store
        self.returning, self.pause = link.returning, link.pause
        self.up = self.down = 0

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        self.down += len(body)
        self._link.send(node, digest, body)

    def receive(self) -> list[Any]:
        arrivals: list[Any] = self._link.receive()
        self.up += sum(len(each.body or b"") for each in arrivals)
        return arrivals


def campaign(*, quick: bool = False, parties: int = 10, queries: int = 10_000) -> dict[str, Any]:
    """Return what a campaign costs its server, masked, with parties of one teacher in other processes."""
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.options import CampaignOptions
    from aggregator_server.results.report import LEDGER_FILE
    from pate.campaign.settings import spec_of
    from pate.runtime.screen import Screen
    from simulation.datasets import deal, digits_like
    from simulation.parties import Opener
    from simulation.processes import PartyProcesses, default_processes, memory_peak
    from simulation.simulate import quorum, run_campaign

    parties, queries = (3, 200) if quick else (parties, queries)
    records = digits_like(queries + 10 * parties + 1)
    dealt = deal(records, parties, public=queries, test=1)
    least, colluders = quorum(parties)
    asked = CampaignOptions(
        campaign="cost", aggregator="gnmax", parties=str(parties), min_parties=least,
        colluders=colluders, classes=",".join(records.classes), epsilon=9e5, sigma2="40",
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="pate-cost-") as scratch:
        place = Path(scratch)
        spec = spec_of(asked, dealt.public.inputs)
        before, began, wall = memory_peak(), time.process_time(), time.monotonic()
        with (
            PartyProcesses(
                lambda numbers: Opener(
                    place, {at: dealt.parties[at] for at in numbers}, 1, dealt.public.inputs
                ),
                parties=parties, processes=default_processes(parties), log=place / "parties.log",
            ) as link,
            Ledger.create(place / LEDGER_FILE, spec) as ledger,
        ):  # fmt: skip
            carrier = _Counted(link)
            run_campaign(ledger, dealt.public.inputs, carrier, screen=Screen("cost"))
            assert len(ledger.state().labels) == queries
        return {
            "parties": parties, "queries": queries, "classes": len(records.classes),
            "server_seconds": round(time.process_time() - began, 2),
            "wall_seconds": round(time.monotonic() - wall, 2),
            # Linux counts pages by processor and adds them up roughly: a later peak can read lower
            "server_memory_before": before, "server_memory_peak": max(before, memory_peak()),
            "bytes_up": carrier.up, "bytes_down": carrier.down,
            "ledger_bytes": (place / LEDGER_FILE).stat().st_size,
        }  # fmt: skip


#: By name on the command line.
COSTS: Final[dict[str, Callable[..., dict[str, Any]]]] = {
    "accounting": accounting, "campaign": campaign, "masking": masking,
}  # fmt: skip
