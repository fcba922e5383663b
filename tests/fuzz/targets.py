"""The parsers of network input: valid messages for each, and how to feed it one.

Signed messages are changed first and then signed by an admitted key, which tests the parser behind the
signature against a malicious participant. One in ten is changed after signing, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Array, ArrayRecord, RecordDict

from aggregator_server.campaign.labelling import checked_accuracy, checked_predictions
from aggregator_server.flower.fleet.filter import Filter
from aggregator_server.flower.node_sessions import Sessions
from party.identity.keys import identity_key
from pate.data.values import content_hash
from pate.errors import ProtocolError
from pate.formats.enrolment import Answer, Bundle, fingerprint, verifier_of
from pate.formats.labels import LabelSet, checked_statement
from pate.formats.privacy_statement import PrivacyStatement
from pate.masking.proofs.argument import verify
from protos import wire
from protos.flower import carriage
from protos.pate.v1 import student_pb2, vote_pb2
from protos.public_set import pack_public_set, read_public_set
from protos.terms import packed
from student.arrivals import EventCheck, PublicSet, checked_campaign
from tests.fuzz import fleet
from tests.fuzz.campaign import Target
from tests.fuzz.mutate import mutated_bytes, mutated_message
from tests.fuzz.page import page
from tests.party.voting.test_lying_server import CLASSES, NAMES, PUBLIC, Liar
from tests.pate.formats.test_enrolment_formats import ANSWER, BUNDLE
from tests.pate.formats.test_votes_file import PRIVACY, SET
from tests.support.campaign_messages import SERVER_KEY, campaign_message
from tests.support.masking.proving import SEED, prover_of, statement
from tests.support.party.asked import describe
from tests.support.party.offers import statement as privacy_statement

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any

    from aggregator_server.exchange.aggregation import MaskedAggregation

_OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))


def targets(folder: Path) -> tuple[Target, ...]:
    """All readers; ``folder`` is for the homes of the parties that are asked."""
    return (
        *_of_the_party(folder / "party"),
        *_of_the_server(folder / "server"),
        *_of_the_student(),
    )


# --- the party ---------------------------------------------------------------------------------


class _Stage:
    """Parties that have been taken to a step, and the request that the server sends then."""

    def __init__(self, folder: Path, step: int, most_taken: int = 10) -> None:
        self._folder, self._step, self._most_taken = folder, step, most_taken
        self._uses = self._count = self.taken = 0
        self._set()

    def _set(self) -> None:
        self._count += 1
        home = self._folder / f"{self._step}-{self._count}"
        home.mkdir(parents=True)
        self.liar = Liar(home)
        self.aggregation = self.liar.aggregation()
        self.liar.through(self.aggregation, [NAMES] * self._step)
        self.request = self.aggregation.request("a")

    def ready(self) -> None:
        """Renew the state now and then: an accepted message may have changed it."""
        self._uses += 1
        if self._uses < 250 and self.taken < self._most_taken:
            return
        self._uses = self.taken = 0
        self._set()

    def feed(self, rng: random.Random) -> Callable[[], object]:
        self.ready()
        asked = vote_pb2.PartyRequest()
        asked.CopyFrom(self.request)
        asked.version, asked.nonce = wire.VERSION, wire.new_id()
        asked.campaign = self.liar.campaign.packed()
        changed = mutated_message(asked, rng)
        body = wire.sign_request(changed, SERVER_KEY if rng.random() < 0.97 else _OTHER_KEY)
        if rng.random() < 0.1:
            body = mutated_bytes(body, rng)
        return lambda: self._hand_over(body)

    def _hand_over(self, body: bytes) -> None:
        self.liar.voters["a"].handle(body)
        self.taken += 1


def _of_the_party(folder: Path) -> tuple[Target, ...]:
    made = []
    for step, name in enumerate(("keys", "shares", "masked", "consent", "opening")):
        stage = _Stage(folder, step)
        made.append(Target(f"a request for {name}", "party", stage.feed))
    joining = _Stage(folder / "joining", 0)
    joining.request = describe()
    made.append(Target("a request to describe itself", "party", joining.feed))
    piece = _Stage(folder / "piece", 0)
    piece.request = vote_pb2.PartyRequest(
        public_piece=vote_pb2.PublicPiece(index=0, pieces=1, content=pack_public_set(PUBLIC))
    )
    made.append(Target("a piece of a public set", "party", piece.feed))
    ending = _Stage(folder / "ending", 0)
    ending.request = vote_pb2.PartyRequest(
        finish=vote_pb2.Finish(epsilon_cap=1.0, delta=1e-5, labels_released=3, queries_asked=6)
    )
    made.append(Target("a farewell", "party", ending.feed))
    body, digest = pack_public_set(PUBLIC), content_hash(PUBLIC)

    def whole(rng: random.Random) -> Callable[[], object]:
        changed = mutated_bytes(body, rng)
        return lambda: read_public_set(changed, public_set=digest, queries=len(PUBLIC))

    made.append(Target("a whole public set", "party", whole))
    made.append(Target("a Flower message", "party", _carried))
    made.append(Target("an enrolment bundle", "party", _text(BUNDLE.to_json(), Bundle.from_json)))
    published = privacy_statement().to_json().encode()
    made.append(
        Target(
            "a published statement", "party", _text(published, _decoded(PrivacyStatement.from_json))
        )
    )
    return tuple(made)


def _carried(rng: random.Random) -> Callable[[], object]:
    data = rng.randbytes(rng.randint(0, 64))
    shape: tuple[Any, ...] = rng.choice(((len(data),), (), (0,), (-1,), (2**63,), (1, len(data))))
    dtype = rng.choice(("uint8", "uint8", "object", "float64", "|O", "x" * 9_999))
    stype = rng.choice((carriage.STYPE, carriage.STYPE, "numpy.ndarray", "", "\x00"))
    arrays = {rng.choice(("pate", "pate", "", "other")): Array(dtype, shape, stype, data)}
    if rng.random() < 0.2:
        arrays |= {str(at): Array("uint8", (0,), carriage.STYPE, b"") for at in range(50)}
    record = RecordDict({rng.choice(("pate", "pate", "else")): ArrayRecord(arrays)})
    return lambda: carriage.unpack(record, limit=32)


def _text(good: bytes, read: Callable[[bytes], object]) -> Callable[..., Callable[[], object]]:
    """Feed a text file: changed as bytes, or with one of its values changed."""

    def make(rng: random.Random) -> Callable[[], object]:
        body = mutated_bytes(good, rng)
        if rng.random() < 0.5:
            odd = rng.choice(
                (b"1e999", b"NaN", b"-1", b"null", b"[" * 60_000, b"{}", b'"\\ud800"', b"9" * 5_000,
                 b"true", b'""', b"[[]]", b'{"a":' * 5_000)
            )  # fmt: skip
            places = [at for at, mark in enumerate(good) if mark in b":,["]
            at = rng.choice(places)
            body = good[: at + 1] + odd + good[at + 1 + rng.randint(0, 12) :]
        return lambda: read(body)

    return make


def _decoded(read: Callable[[str], object]) -> Callable[[bytes], object]:
    def from_bytes(body: bytes) -> object:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise ProtocolError("not UTF-8") from None  # as the readers of files and of gRPC say
        return read(text)

    return from_bytes


# --- the server --------------------------------------------------------------------------------


def _of_the_server(folder: Path) -> tuple[Target, ...]:
    made = []
    for step, name in enumerate(("keys", "shares", "masked votes", "consent", "opening")):
        # A ballot takes one reply of a party: what comes after a good one is refused unread.
        stage = _Stage(folder, step, most_taken=1)
        made.append(Target(f"a reply with {name}", "server", _reply(stage)))
    about = statement()
    prover = prover_of(about)
    commitment, proof = prover.commitment, prover.prove(SEED)

    def prove(rng: random.Random) -> Callable[[], object]:
        changed = mutated_bytes(proof, rng)
        if rng.random() < 0.7:
            changed = changed[: len(proof)].ljust(len(proof), b"\x00")
        return lambda: verify(about, commitment, SEED, changed)

    made.append(Target("a proof of votes", "server", prove))
    made.append(Target("a call of a node", "server", fleet.call))

    def enrol(body: bytes) -> object:
        answer = Answer.from_json(body)
        answer.check_keys(fingerprint(BUNDLE.ca))
        return answer.made_with(verifier_of(BUNDLE.code), fingerprint(BUNDLE.ca))

    made.append(Target("an enrolment", "server", _text(ANSWER.to_json(), enrol)))
    made.append(Target("a call of the Fleet API", "server", _http))
    made.append(Target("a student's predictions", "server", _predictions))
    made.append(Target("a look at the page", "server", page))
    return tuple(made)


def _reply(stage: _Stage) -> Callable[[random.Random], Callable[[], object]]:
    """Feed a reply of a party to the ballot that waits for it."""
    good: dict[int, bytes] = {}

    def make(rng: random.Random) -> Callable[[], object]:
        stage.ready()
        aggregation, key = stage.aggregation, identity_key(stage.liar.root / "a")
        if id(aggregation) not in good:
            good.clear()
            asked = vote_pb2.PartyRequest()
            asked.CopyFrom(stage.request)
            asked.version, asked.nonce = wire.VERSION, bytes(16)
            asked.campaign = stage.liar.campaign.packed()
            good[id(aggregation)] = stage.liar.voters["a"].handle(
                wire.sign_request(asked, SERVER_KEY)
            )
        signed = vote_pb2.SignedReply.FromString(good[id(aggregation)])
        reply = mutated_message(vote_pb2.Reply.FromString(signed.body), rng)
        body = wire.sign_reply(reply, key)
        if rng.random() < 0.1:
            body = mutated_bytes(body, rng)
        return lambda: _take(stage, aggregation, body)

    return make


def _take(stage: _Stage, aggregation: MaskedAggregation, body: bytes) -> None:
    _, reply = wire.read_reply(body, campaign=stage.liar.campaign.id, nonce=bytes(16))
    aggregation.take(stage.liar.party("a"), reply)
    stage.taken += 1


def _http(rng: random.Random) -> Callable[[], object]:
    """Feed a request to the gateway, of a node that is on its list or not."""
    path = rng.choice(
        ("/v1/fleet/pull-messages", "/v1/fleet/register-node", "/health", "/pate/v1/enroll",
         "/v1/fleet/../control", "/" + "a" * 5_000, "", "/v1/fleet/pull-messages%00", "//", "/metrics")
    )  # fmt: skip
    headers = [
        (rng.choice((b"flwr-public-key-bin", b"content-type", b"host", b"x" * 999)),
         rng.choice((b"known", b"", b"\xff" * 40, b"known, known", rng.randbytes(20))))
        for _ in range(rng.randint(0, 6))
    ]  # fmt: skip
    scope = {
        "type": "http",
        "method": rng.choice(("POST", "POST", "GET", "PUT", "", "X" * 99)),
        "path": path,
        "headers": headers,
        "client": rng.choice((None, ("192.0.2.1", 1), ("", 0))),
    }
    pieces = [rng.randbytes(rng.choice((0, 1, 1_000))) for _ in range(rng.randint(1, 4))]
    # Nobody is there: without any SuperLink the health check would wait for one.
    gateway = Filter(Sessions())
    gateway.point_at("127.0.0.1:9")
    gateway.keys = frozenset({b"known"})

    async def talk() -> None:
        waiting = [
            {"type": "http.request", "body": piece, "more_body": at + 1 < len(pieces)}
            for at, piece in enumerate(pieces)
        ]
        if rng.random() < 0.2:
            waiting[-1] = {"type": "http.disconnect"}

        async def receive() -> Any:
            return waiting.pop(0) if waiting else {"type": "http.disconnect"}

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await gateway(scope, receive, send)
        # Nothing may pass: there is no SuperLink behind it, and a stranger gets no other answer.
        assert sent[0]["status"] in (401, 404, 412, 413, 503), sent[0]

    return lambda: asyncio.run(talk())


class _State:
    """As much of a campaign's state as predictions are checked against."""

    class spec:  # noqa: N801
        queries = 6

    classes = CLASSES


def _predictions(rng: random.Random) -> Callable[[], object]:
    shares = np.full((6, 2), 0.5, dtype="<f4").tobytes()
    good = student_pb2.Predictions(
        campaign=b"c" * 16, round=2, rows=6, classes=2, probabilities=shares, accuracy=0.5
    )
    body = _broken(good, rng)

    def feed() -> None:
        message = student_pb2.Predictions()
        _parse(message, body)
        checked_predictions(message, _State)  # type: ignore[arg-type]
        checked_accuracy(message)

    return feed


# --- the student -------------------------------------------------------------------------------


def _of_the_student() -> tuple[Target, ...]:
    own = PublicSet(content_hash(PUBLIC), len(PUBLIC), PUBLIC.schema())
    about = campaign_message(PUBLIC, classes=CLASSES, rounds=2)
    info = student_pb2.CampaignInfo(campaign=packed(about.announced.text), name="a", phase="voting")

    def campaign(rng: random.Random) -> Callable[[], object]:
        body = _broken(info, rng)

        def feed() -> None:
            message = student_pb2.CampaignInfo()
            _parse(message, body)
            checked_campaign(message, own)

        return feed

    events: Sequence[student_pb2.LabelEvent] = (
        student_pb2.LabelEvent(
            cursor=1, label=student_pb2.Label(query=0, round=1, source=student_pb2.SOURCE_TEACHERS)
        ),
        student_pb2.LabelEvent(
            cursor=2,
            label=student_pb2.Label(query=3, round=1, source=student_pb2.SOURCE_REINFORCED),
        ),
        student_pb2.LabelEvent(
            cursor=3, round_end=student_pb2.RoundEnd(round=1, wants_predictions=True)
        ),
        student_pb2.LabelEvent(cursor=4, campaign_end=student_pb2.CampaignEnd(labels_released=2)),
    )

    def stream(rng: random.Random) -> Callable[[], object]:
        bodies = [event.SerializeToString() for event in events]
        at = rng.randrange(len(events))
        bodies[at] = _broken(events[at], rng)

        def feed() -> None:
            check = EventCheck(len(PUBLIC))
            for body in bodies:
                event = student_pb2.LabelEvent()
                _parse(event, body)
                check.event(event, lambda: len(CLASSES))

        return feed

    return (
        Target("a campaign", "student", campaign),
        Target("a stream of labels", "student", stream),
        Target(
            "a label file", "student", _text(SET.to_json().encode(), _decoded(LabelSet.from_json))
        ),
        Target("a statement", "student", _text(PRIVACY.encode(), _decoded(checked_statement))),
    )


def _broken(message: Any, rng: random.Random) -> bytes:
    body: bytes = mutated_message(message, rng).SerializeToString()
    return mutated_bytes(body, rng) if rng.random() < 0.3 else body


def _parse(message: Any, body: bytes) -> None:
    """Parse as gRPC does before our code sees a message: malformed input is refused there."""
    from google.protobuf.message import DecodeError

    try:
        message.ParseFromString(body)
    except DecodeError:
        raise ProtocolError("gRPC refuses it") from None
