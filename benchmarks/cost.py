"""``python -m benchmarks cost NAME``: what the parts of a campaign cost; one JSON object is printed.

* ``accounting``: the accountant's speed beside the 2018 algorithm, one query at a time in numpy.
* ``masking``: a masked sum and a plain one, for 5 to 250 parties: processor seconds and bytes, by phase.
* ``campaign``: a whole campaign, this process being only its server: processor, memory and bytes.
* ``votes``: a party's own step over 50,000 records of a table and 60,000 embeddings.

Seconds are processor seconds. Compare figures of one run only.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np

from pate.votes import Counts

CLASSES: Final = 10
#: Of each party.
TEACHERS: Final = 10
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
        return theorem6.total(outlier.gnmax_log_q(some, law), rate, _ORDERS)

    np.testing.assert_allclose(slow(), theorem(few), rtol=1e-7)
    return {
        "one query at a time": round(len(few) / timed(slow, _REPEATS)),
        "theorem6": round(queries / timed(lambda: theorem(votes), _REPEATS)),
        "sharp": round(
            queries / timed(lambda: table.total(outlier.gnmax_log_q(votes, law)), _REPEATS)
        ),
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
    teachers: int = TEACHERS
    classes: int = CLASSES

    @property
    def bits(self) -> int:
        """Width of the ring that has room for every sum of these votes."""
        from protos.terms import exact_bits

        return exact_bits(self.parties * self.teachers)

    def names(self) -> list[str]:
        """Return the parties' names."""
        return [f"party_{number:03d}" for number in range(self.parties)]

    def votes(self, number: int) -> Counts:
        """(queries, classes) int64, drawn on each call: 250 of them would fill the memory."""
        rng = np.random.default_rng([self.parties, self.queries, number])
        return rng.multinomial(self.teachers, [1 / self.classes] * self.classes, self.queries)


_MEASURED: Final = Size(25, 9_000)


def _table() -> dict[str, dict[str, float]]:
    return defaultdict(lambda: defaultdict(float))


@dataclass
class Meter:
    """Processor seconds of all threads, and bytes of message fields, by phase and party."""

    seconds: dict[str, dict[str, float]] = field(default_factory=_table)
    up: dict[str, dict[str, float]] = field(default_factory=_table)
    down: dict[str, dict[str, float]] = field(default_factory=_table)
    server: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def at(self, phase: str, party: str | None = None) -> Iterator[None]:
        """Count the processor time of the body as a party's, or as the server's."""
        began = time.process_time()
        yield
        spent = time.process_time() - began
        if party is None:
            self.server[phase] += spent
        else:
            self.seconds[phase][party] += spent

    def costs(self) -> dict[str, dict[str, float]]:
        """Return medians over the parties by phase, and the server's own, each with its total."""
        parts = {"party_seconds": self.seconds, "bytes_up": self.up, "bytes_down": self.down}
        found = {name: _medians(table) for name, table in parts.items()}
        return {**found, "server_seconds": {**self.server, "total": sum(self.server.values())}}


def _medians(table: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
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
    """Pack, send, read and add every party's vote matrix; the sum is checked."""
    from protos.pate.v1 import vote_pb2
    from protos.wire import pack_votes, read_votes

    meter = Meter()
    total: Counts = np.zeros((size.queries, size.classes), dtype=np.int64)
    expected = total.copy()
    for number, name in enumerate(size.names()):
        votes = size.votes(number)
        expected += votes
        with meter.at("votes", name):
            body = pack_votes(votes, teachers=size.teachers, batch=BATCH).SerializeToString()
        meter.up["votes"][name] += len(body)
        with meter.at("votes"):
            total += read_votes(
                vote_pb2.VoteMatrix.FromString(body), teachers=size.teachers,
                classes=size.classes, queries=size.queries, batch=BATCH,
            )  # fmt: skip
    np.testing.assert_array_equal(total, expected)
    return meter


def masked_sum(size: Size, *, lost: int = 0) -> Meter:
    """Run a masked sum; some parties drop out between their shares and their votes. The sum is checked."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.masking.context import VERSION, Context, Matrix, Member, Roster, threshold_for
    from pate.masking.party import PartyMasking
    from pate.masking.server import ServerMasking

    meter, names = Meter(), size.names()
    identities = {name: Ed25519PrivateKey.generate() for name in names}
    members = tuple(
        Member(name, key.public_key().public_bytes_raw()) for name, key in identities.items()
    )
    context = Context(
        VERSION, os.urandom(16), os.urandom(16), Roster(members, *threshold_for(size.parties)),
        Matrix(BATCH, size.queries, size.classes, size.bits), hashlib.sha256(b"terms").digest(),
    )  # fmt: skip
    server = ServerMasking(context)
    parties = {
        name: PartyMasking(context, name=name, identity=key, random=os.urandom)
        for name, key in identities.items()
    }

    def stage(
        phase: str,
        who: list[str],
        ask: Callable[[str], tuple[Any, ...]],
        answer: Callable[..., Any],
        take: Callable[[str, Any], None],
        down: Callable[..., int] = lambda *_: 0,
    ) -> None:
        for name in who:
            with meter.at(phase):
                asked = ask(name)
            meter.down[phase][name] += down(*asked)
            with meter.at(phase, name):
                reply = answer(parties[name], *asked)
            meter.up[phase][name] += size_of(reply)
            with meter.at(phase):
                take(name, reply)
        with meter.at(phase):
            server.advance()

    # Who announced keys, and who survived, is a bit set on the wire.
    bits = -(-size.parties // 8)
    expected: Counts = np.zeros((size.queries, size.classes), dtype=np.int64)
    votes = {}
    stage("keys", names, lambda _: (), PartyMasking.keys, server.take_keys)
    stage(
        "shares", names, lambda name: (server.keys_for(name), server.outline_for(name)),
        PartyMasking.shares, server.take_boxes,
        down=lambda peers, outline: size_of(peers) + bits + size_of(outline.hashes),
    )  # fmt: skip
    for number, name in enumerate(names[: size.parties - lost]):
        votes[name] = size.votes(number)
        expected += votes[name]
    stage(
        "votes", list(votes), lambda name: (server.boxes_for(name), votes[name]),
        PartyMasking.mask, server.take_masked, down=lambda boxes, _: size_of(boxes),
    )  # fmt: skip
    survivors = list(server.survivors)
    stage(
        "consistency", survivors, lambda _: (server.survivors,), PartyMasking.sign_survivors,
        server.take_signature, down=lambda _: bits,
    )  # fmt: skip
    stage(
        "unmask", survivors, lambda _: (server.signatures,), PartyMasking.unmask,
        server.take_unmasking, down=size_of,
    )  # fmt: skip
    with meter.at("unmask"):
        found = server.result()
    np.testing.assert_array_equal(found, expected % (1 << size.bits))
    return meter


def masking(*, quick: bool = False) -> dict[str, Any]:
    """Return plain and masked sums of 5 to 250 parties, with ``quick`` of 5, and one that lost a third."""
    from pate.masking.context import threshold_for

    masked_sum(Size(5, 10))  # the warm up

    def best(make: Callable[[], Meter], times: int) -> dict[str, dict[str, float]]:
        made = [make().costs() for _ in range(times)]
        return min(made, key=lambda one: one["party_seconds"]["total"])

    sizes = [Size(n, m) for n in ((5,) if quick else (5, 25, 100, 250)) for m in (1_000, 9_000)]
    growth = []
    for size in sizes:
        times = _REPEATS if size.parties <= _MEASURED.parties else 1
        plain = best(lambda size=size: plain_sum(size), times)  # type: ignore[misc]
        masked = best(lambda size=size: masked_sum(size), times)  # type: ignore[misc]
        growth.append({**asdict(size), "bits": size.bits, "plain": plain, "masked": masked})
    lost = _MEASURED.parties - threshold_for(_MEASURED.parties)[0]
    return {
        "growth": growth,
        "third_lost": {} if quick else best(lambda: masked_sum(_MEASURED, lost=lost), _REPEATS),
    }


# A campaign


class _Counted:
    """Carries messages, and counts their bytes."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self.nodes, self.close = link.nodes, link.close
        self.up = self.down = 0

    def send(self, node: int, body: bytes) -> str:
        self.down += len(body)
        return str(self._link.send(node, body))

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
    from pate.runtime.home import private_directory
    from pate.runtime.screen import Screen
    from simulation.campaign import run_campaign
    from simulation.datasets import deal, digits_like
    from simulation.party import PUBLIC_FILE, party_home, store_inputs, store_records, worker
    from simulation.party_processes import PartyProcesses, default_processes, memory_peak
    from simulation.simulate import quorum

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
        for number, each in enumerate(dealt.parties):
            store_records(private_directory(party_home(place, number)), each)
        store_inputs(place / PUBLIC_FILE, dealt.public.inputs)
        spec = spec_of(asked, dealt.public.inputs)
        before, began, wall = memory_peak(), time.process_time(), time.monotonic()
        with (
            PartyProcesses(
                "simulation.party", worker(place, 1), parties=parties,
                processes=default_processes(parties), log=place / "parties.log",
            ) as link,
            Ledger.create(place / LEDGER_FILE, spec) as ledger,
        ):  # fmt: skip
            wire = _Counted(link)
            run_campaign(ledger, dealt.public.inputs, wire, screen=Screen("cost"))
            assert len(ledger.state().labels) == queries
        return {
            "parties": parties, "queries": queries, "classes": len(records.classes),
            "server_seconds": round(time.process_time() - began, 2),
            "wall_seconds": round(time.monotonic() - wall, 2),
            "server_memory_before": before, "server_memory_peak": memory_peak(),
            "bytes_up": wire.up, "bytes_down": wire.down,
            "ledger_bytes": (place / LEDGER_FILE).stat().st_size,
        }  # fmt: skip


# A party's step over its records, before its votes are masked

_RECORDS, _PUBLIC = 50_000, 10_000
#: Embedded records, public rows, and coordinates.
_EMBEDDED, _ROWS, _WIDTH = 60_000, 4_000, 1_280
_ANSWERS: Final = ("no", "yes")


def table(rows: int, seed: int) -> Any:
    """Return made-up rows of five columns of numbers and seven of 2 to 40 categories, with a class each."""
    from pate.data.values import Dataset, Table

    rng, fixed = np.random.default_rng(seed), np.random.default_rng(0)
    hidden = rng.normal(size=(rows, 4))
    numbers = [np.round(20 * hidden @ fixed.normal(size=4)) for _ in range(5)]
    texts = [
        np.array([f"category {at}" for at in range(size)])[
            np.digitize(hidden @ fixed.normal(size=4), np.linspace(-2, 2, size - 1))
        ]
        for size in (2, 5, 6, 7, 8, 14, 40)
    ]
    inputs = Table(tuple(f"column {at}" for at in range(12)), (*numbers, *texts))
    return Dataset(inputs, (numbers[0] > 0).astype(np.int64), _ANSWERS)


def embedded(rows: int, seed: int, width: int = _WIDTH) -> Any:
    """Return made-up embeddings around two directions, and which of them each is near."""
    from pate.data.embeddings import UNIT, Embeddings
    from pate.data.values import Dataset

    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, rows)
    middles = np.random.default_rng(0).normal(size=(2, width)).astype(np.float32)
    points = middles[labels] + 2 * rng.normal(size=(rows, width)).astype(np.float32)
    points /= np.sqrt(np.square(points).sum(axis=1, keepdims=True))
    whole = np.round(points * UNIT).astype(np.int16)
    return Dataset(Embeddings(whole, "images", "0" * 64), labels.astype(np.int64), _ANSWERS)


def step_of(code: str, number: int, public: Any, records: Any) -> dict[str, Any]:
    """Return the seconds of a party's step, by part: hashes, votes, and hashes of a series."""
    from party.offer import Offer
    from party.voting.neighbour import NeighbourVotes
    from party.voting.series import series_voters
    from pate.campaign.neighbour_terms import MOST_VOTES
    from pate.campaign.representatives import choose
    from pate.codes import code_of
    from pate.data.values import Table

    votes = NeighbourVotes(records, os.urandom(32))
    chosen = choose(public, number, lambda _: None)
    made = {
        "hash": timed(lambda: votes.fingerprint),
        "vote": timed(
            lambda: votes.vote(
                public, chosen, _ANSWERS, votes_per_patient=None, most_votes=MOST_VOTES,
                code=code_of(code),
            )
        ),
    }  # fmt: skip
    if isinstance(public, Table):  # of embeddings there are no series without identifiers
        # The hashes need no more of the terms than these.
        offer = cast("Offer", SimpleNamespace(key=bytes(32), series="monthly"))
        seen: Callable[[object], frozenset[bytes]] = lambda _: frozenset()  # noqa: E731
        made["series"] = timed(lambda: series_voters(votes, offer, os.urandom(32), seen, None))
    return {"code": code, "representatives": number, **made, "total": sum(made.values())}


def votes(*, quick: bool = False) -> dict[str, Any]:
    """Return a party's steps over a table and over embeddings, with ``quick`` of nearest votes of few."""
    share = 100 if quick else 1
    tables = table(_PUBLIC // share, 1).inputs, table(_RECORDS // share, 2)
    images = embedded(_ROWS // share, 1).inputs, embedded(_EMBEDDED // share, 2)
    codes = {"nearest": 400 // share, "dense-128": 128, "dense-512": 512}
    asked = list(codes.items())[: 1 if quick else None]
    return {
        name: [step_of(*each, *of) for each in asked]
        for name, of in (("table", tables), ("embeddings", images))
    }


#: By name on the command line.
COSTS: Final[dict[str, Callable[..., dict[str, Any]]]] = {
    "accounting": accounting, "campaign": campaign, "masking": masking, "votes": votes,
}  # fmt: skip
