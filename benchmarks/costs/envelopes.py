"""``python -m benchmarks.costs.envelopes [--out DIR] [--quick]``: what a campaign by envelope costs a party.

Whole campaigns of 5, 25 and 100 enrolled parties, masked, once by files and once by the messages of a
connection: the real server, voters, policies and ledgers in one process. Teachers vote on 9,000 queries with
10 classes, and the server adds noise; records vote at 1,000 queries with 10 classes, and the parties add it.
Votes are made up, so that seconds are those of everything else: messages and files read and checked, ledger,
keys, masks, noise shares, sealing. Seconds are CPU seconds of a party, bytes those of files, or of messages
without TLS and Flower; both are medians over parties. A trip is an envelope to a party and its answer. The
last envelope, of the end, need not be answered; it is counted as a file. Prints one JSON object, and a
Markdown table on standard error. Set TMPDIR to a folder in memory: each step is durable, which takes long on
a disk.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.campaign.runner import Campaign
from aggregator_server.envelopes.known_keys import KnownKeys
from aggregator_server.envelopes.store import FILE, Store
from aggregator_server.envelopes.wire import IN, OUT, EnvelopeWire
from aggregator_server.exchange.wire import Arrival
from aggregator_server.identities import Identities
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.reaching import enrolled_of
from benchmarks.costs import add_out, publish
from party.envelopes.answering import Answers
from party.identity.enrolment import enrol
from party.identity.keys import identity_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import Policy
from party.voting.neighbour import NeighbourVotes
from party.voting.site import Site
from party.voting.voter import Voter
from pate.campaign.neighbour_terms import MOST_VOTES, NeighbourTerms
from pate.campaign.parameters import Parameters
from pate.campaign.spec import CampaignSpec, new_campaign_id
from pate.campaign.sum_terms import SumTerms
from pate.data.values import Dataset, Images, content_hash
from pate.errors import ProtocolError
from pate.formats.enrolment import Answer
from pate.masking.context import threshold_for
from pate.noise.exact import SystemNoise
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pate.codes import Code
    from pate.data.values import Inputs
    from pate.runtime.screen import Screen
    from pate.votes import Counts

PARTIES: Final = (5, 25, 100)
CLASSES: Final = tuple("0123456789")
TEACHERS: Final = 10
#: Of teachers' votes and of records' votes.
QUERIES: Final = {"teachers": 9_000, "records": 1_000}
#: Bytes of an input of the public set: small, and the set is reported apart.
_SHAPE: Final = (4, 4, 1)
#: Most looks of the server in a row without a new file: the next step takes some.
_LOOKS: Final = 20


class Teachers:
    """Teachers whose votes are made up."""

    teachers = TEACHERS
    classes = CLASSES
    unit = "record"
    answer = "class"
    schema = "images 4x4x1"

    def __init__(self, number: int) -> None:
        self._number = number
        self.fingerprint = number.to_bytes(32)

    def conform(self, inputs: Inputs) -> Inputs:
        return inputs

    def vote(self, _: Inputs, rows: Sequence[int], classes: Sequence[str], _code: Code) -> Counts:
        rng = np.random.default_rng([self._number, len(rows)])
        return rng.multinomial(TEACHERS, [1 / len(classes)] * len(classes), len(rows))


class Records(NeighbourVotes):
    """Records whose votes are made up: counts as large as may be."""

    def vote(  # type: ignore[override]  # the terms that bound it are met
        self, _: Inputs, rows: Sequence[int], classes: Sequence[str], **__: Any
    ) -> Counts:
        rng = np.random.default_rng(self.records.inputs.row_hashes()[0][0])
        return rng.integers(0, MOST_VOTES, (len(rows), len(classes)), endpoint=True)


class Quiet:
    """A screen that shows nothing."""

    def say(self, line: str, level: str = "info") -> None: ...

    @contextmanager
    def bar(self, _: str, **__: bool) -> Iterator[Callable[[int, int], None]]:
        yield lambda *_: None

    @contextmanager
    def waiting(self, _: float) -> Iterator[Callable[[str], None]]:
        yield self.say


@dataclass
class Cost:
    """What a campaign cost each party.

    Attributes:
        asked: by party, messages that it answered, or files.
        down: bytes to it.
        up: bytes from it.
        seconds: CPU seconds.
        public_set: bytes of all pieces of the public set for one party, part of ``down``.
    """

    asked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    down: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    up: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    public_set: int = 0

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Count the CPU time of the body as that party's."""
        began = time.process_time()
        yield
        self.seconds[name] += time.process_time() - began

    def figures(self) -> dict[str, float]:
        """Return the medians over the parties."""
        return {
            "answers": median(self.asked.values()),
            "bytes_to_party": median(self.down.values()),
            "bytes_from_party": median(self.up.values()),
            "seconds": round(median(self.seconds.values()), 3),
        }


class Stage:
    """One campaign in a folder."""

    def __init__(self, root: Path, voters: str, parties: int) -> None:
        self.root = root
        self._records = voters == "records"
        self.names = tuple(f"party_{number:03d}" for number in range(parties))
        rng = np.random.default_rng(parties)
        self.public = Images(rng.integers(0, 256, (QUERIES[voters], *_SHAPE), dtype=np.uint8))
        least, colluders = threshold_for(parties)
        self.spec = CampaignSpec(
            name="cost",
            id=new_campaign_id(),
            aggregator="neighbour" if self._records else "gnmax",
            parties=self.names,
            sums=SumTerms(
                aggregation="masked", noise="distributed" if self._records else "central",
                min_parties=least, colluders=colluders,
            ),
            public_set=content_hash(self.public).hex(),
            queries=len(self.public),
            schema=self.public.schema(),
            epsilon=1.0,
            delta=1e-5,
            classes=CLASSES,
            parameters=Parameters() if self._records else Parameters(sigma2=Fraction(40)),
            neighbour=NeighbourTerms(tuple(range(len(self.public)))) if self._records else None,
        )  # fmt: skip
        self.key = Ed25519PrivateKey.generate()
        self.cost = Cost()

    @property
    def ledger_path(self) -> Path:
        return self.root / "server" / "ledger.db"

    def voter(self, name: str, ledger: PartyLedger) -> Voter:
        """Return a party as it starts."""
        home, number = self.root / name, self.names.index(name)
        rng = np.random.default_rng(number)
        few = Images(rng.integers(0, 256, (20, *_SHAPE), dtype=np.uint8))
        held = Dataset(few, np.arange(20) % len(CLASSES), CLASSES)
        return Voter(
            name=name,
            identity=identity_key(home),
            ensemble=None if self._records else Teachers(number),
            records=Records(held, b"secret") if self._records else None,
            home=home,
            site=Site(Policy.default(loopback=True), ledger),
            noise=SystemNoise(),
        )

    def ledger(self, name: str) -> PartyLedger:
        home = self.root / name
        home.mkdir(parents=True, exist_ok=True)
        return PartyLedger(home / LEDGER_FILE)

    def run(self, link: Any, *, by_envelope: bool, pause: Callable[[float], None]) -> None:
        """Run the campaign to its end, and check that all parties are in its sum.

        Raises:
            AssertionError: if one is not.
        """
        with Ledger.open(self.ledger_path) as ledger:
            campaign = Campaign(
                ledger, self.public, link, noise=SystemNoise(), screen=cast("Screen", Quiet()),
                signing_key=self.key, patience=0.0, await_predictions=lambda _: None, pause=pause,
                courier=link if by_envelope else None, sums=link.sums if by_envelope else None,
            )  # fmt: skip
            campaign.run()
            campaign.farewell()
            assert {batch.responders for batch in ledger.state().batches} == {self.names}


class Online:
    """A wire to parties of this process that stay."""

    def __init__(self, stage: Stage) -> None:
        self._cost = stage.cost
        self._names = dict(enumerate(stage.names, 1))
        self._voters = {
            node: stage.voter(name, stage.ledger(name)) for node, name in self._names.items()
        }
        self._arrivals: list[Arrival] = []
        self._sent = 0

    def nodes(self) -> frozenset[int]:
        return frozenset(self._names)

    def send(self, node: int, body: bytes) -> str:
        self._sent += 1
        name, cost, handle = self._names[node], self._cost, f"message {self._sent}"
        asked = vote_pb2.PartyRequest.FromString(vote_pb2.SignedRequest.FromString(body).body)
        if asked.WhichOneof("body") == "public_piece" and node == 1:
            cost.public_set += len(body)
        with cost.of(name):
            reply = self._voters[node].handle(body)
        if error := self._voters[node].error:
            raise error
        cost.asked[name] += 1
        cost.down[name] += len(body)
        cost.up[name] += len(reply)
        self._arrivals.append(Arrival(handle, node, reply, None))
        return handle

    def receive(self) -> list[Arrival]:
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def close(self) -> None: ...


def online(voters: str, parties: int) -> dict[str, float]:
    """Run a campaign over connections."""
    with tempfile.TemporaryDirectory(prefix="pate-envelopes-") as scratch:
        stage = Stage(Path(scratch), voters, parties)
        Ledger.create(stage.ledger_path, stage.spec).close()
        stage.run(Online(stage), by_envelope=False, pause=lambda _: None)
        return {**stage.cost.figures(), "public_set": stage.cost.public_set}


def enrolled(stage: Stage) -> Identities:
    """Enrol all parties of a campaign by files, as `pate-server enroll`, `pate-party enroll` and `admit`."""
    now = datetime.now(UTC)
    identities = Identities.create(stage.root / "server", [], 9092, now)
    for name in stage.names:
        file = stage.root / f"{name}.answer.json"
        enrol(identities.invite(name, now=now), stage.root / name, file=file, send=False)
        identities.admit(Answer.from_json(file.read_bytes()), now)
    return identities


def by_envelope(voters: str, parties: int) -> dict[str, float]:
    """Run a campaign by files, each of which is carried and answered once."""
    with tempfile.TemporaryDirectory(prefix="pate-envelopes-") as scratch:
        stage = Stage(Path(scratch), voters, parties)
        Ledger.create(stage.ledger_path, stage.spec).close()
        post, seen = stage.root / "post", set[str]()
        identities = enrolled(stage)
        files = EnvelopeWire(
            Store(stage.ledger_path.parent / FILE), post, campaign=stage.spec.id,
            parties=stage.names, signing_key=stage.key, secret=os.urandom(32),
            enrolled=enrolled_of(identities), say=lambda _: None,
            keys=KnownKeys(stage.ledger_path.parent, stage.spec, identities, lambda _: None),
        )  # fmt: skip

        idle = 0

        def carry(_: float) -> None:
            """Have every party answer the file that is out for it."""
            nonlocal idle
            fresh = [path for path in (post / OUT).glob("*.pate") if path.name not in seen]
            idle = 0 if fresh else idle + 1
            if idle > _LOOKS:
                raise ProtocolError("the server waits, and no file is under way")
            for path in sorted(fresh):
                seen.add(path.name)
                name = path.name.removesuffix(".pate").partition(".for-")[2]
                stage.cost.down[name] += path.stat().st_size
                with stage.cost.of(name):
                    done = answers(name).answer(path, post / IN)
                stage.cost.up[name] += done.size
                stage.cost.asked[name] += 1

        def answers(name: str) -> Answers:
            """Return a party's process: a new one for each file."""
            ledger = stage.ledger(name)
            home = stage.root / name
            return Answers(
                name=name, identity=identity_key(home), home=home, ledger=ledger, pinned=None,
                voter=lambda: stage.voter(name, ledger),
            )  # fmt: skip

        stage.run(files, by_envelope=True, pause=carry)
        files.close()
        ends = [path for path in (post / OUT).glob("*.pate") if path.name not in seen]
        found = stage.cost.figures()
        return {
            "trips": found.pop("answers"),
            "files": 2 * median(stage.cost.asked.values()) + len(ends) / parties,
            **found,
        }


def case(voters: str, parties: int) -> dict[str, Any]:
    """Measure a campaign both ways."""
    there = online(voters, parties)
    return {
        "votes": voters,
        "queries": QUERIES[voters],
        "parties": parties,
        "public_set_bytes": there.pop("public_set"),
        "by_envelope": by_envelope(voters, parties),
        "online": there,
    }


def run(*, quick: bool = False) -> dict[str, Any]:
    """Measure all sizes, or with ``quick`` that of 5 parties."""
    sizes = PARTIES[:1] if quick else PARTIES
    cases = [case(voters, parties) for voters in QUERIES for parties in sizes]
    return {"cores": os.cpu_count(), "classes": len(CLASSES), "cases": cases}


def table_of(found: dict[str, Any]) -> str:
    """Return the figures as a Markdown table; bytes without the public set."""
    heads = (
        "votes", "parties", "trips", "files", "to / from a party", "its seconds", "messages online",
        "to / from a party", "its seconds",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for each in found["cases"]:
        cells = [f"{each['votes']}, {each['queries']:,} x {found['classes']}", each["parties"]]
        for way, counts in (("by_envelope", ("trips", "files")), ("online", ("answers",))):
            cost = each[way]
            down = cost["bytes_to_party"] - each["public_set_bytes"]
            cells += [f"{cost[name]:g}" for name in counts]
            cells.append(f"{down / 1e3:,.0f} / {cost['bytes_from_party'] / 1e3:,.0f} kB")
            cells.append(f"{cost['seconds']:.2f}")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_out(parser)
    parser.add_argument("--quick", action="store_true", help="5 parties only")
    asked = parser.parse_args()
    found = run(quick=asked.quick)
    sys.stderr.write(table_of(found) + "\n")
    publish(found, asked.out, "envelopes")


if __name__ == "__main__":
    main()
