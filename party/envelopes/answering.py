"""One envelope answered: all its requests in order, durably, before the answer's file appears.

Everything that can refuse is asked first: the file, its recipient, its signer, its date, each request
in it, and what was answered before. Then the voter answers request by request, by policy and ledger
as over a connection. A refusal leaves no file: the server sees a party that does not answer.

The same envelope gives the same bytes, until its campaign has ended: then answers before the last one are
deleted. Answers with votes or shares are kept by the digest of their
request, and the key that seals a file is derived from its content; so a step that was killed may be
repeated, and an answer that was lost on its way may be sent again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pate.envelopes.file import Envelope, opened, write
from pate.envelopes.manifest import Manifest, Part, date_of
from pate.envelopes.sealing import seal
from pate.errors import RefusedError, StateError
from pate.masking.encoding import encode
from pate.masking.keys import KeyPair
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory, write_file
from protos.bounds import MAX_MESSAGE, parse
from protos.envelopes import read_requests, require_for
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from party.ledger.ledger import PartyLedger
    from party.voting.voter import Voter

#: Folder of a home with the answers to envelopes.
FOLDER: Final = "envelopes"
_REPLY: Final = ".reply"


@dataclass(frozen=True)
class Answered:
    """An answer that left."""

    path: Path
    digest: bytes  # SHA-256 of it, 32 bytes
    size: int  # of it, in bytes
    again: bool


class Answers:
    """Answers the envelopes of one party."""

    def __init__(
        self,
        *,
        name: str,
        identity: Ed25519PrivateKey,
        home: Path,
        ledger: PartyLedger,
        pinned: bytes | None,  # the campaign key of its enrolment; None: not enrolled
        # makes what answers requests; called only if there is something to answer
        voter: Callable[[], Voter],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),  # UTC
    ) -> None:
        self._name = name
        self._identity = identity
        self._folder = private_directory(home / FOLDER)
        self._ledger = ledger
        self._pinned = pinned
        self._voter = voter
        self._clock = clock

    def answer(self, path: Path, out: Path) -> Answered:
        """Answer an envelope.

        ``out``: file of the answer, or an existing folder for it.
        """
        with opened(path) as envelope:
            require_for(envelope, self._name, self._pinned)
            known = self._kept(envelope.digest)
            again = known.exists()
            if not again:
                self._require_timely(envelope)
                self._make(envelope, known)
                reach("envelope-answered")
            to = out / replace_direction(envelope.manifest).file_name if out.is_dir() else out
            done = self._send(envelope, known, to, again=again)
        self._release()
        return done

    def sent(self, digest: bytes) -> bool:
        """Return whether the answer to the envelope of this digest has appeared as a file."""
        return self._sent_mark(digest).exists()

    def _require_timely(self, envelope: Envelope) -> None:
        """Check dates and numbers: an old envelope, or one of two with the same number, is refused."""
        manifest = envelope.manifest
        if manifest.until and self._clock() > date_of(manifest.until):
            raise RefusedError(
                f"this envelope could be answered until {manifest.until}, and it is "
                f"{self._clock():%Y-%m-%dT%H:%M:%SZ} here: ask the coordinator for a new one, or "
                "correct this machine's clock"
            )
        record = self._ledger.find(manifest.campaign)
        last = max((each.number for each in record.files.values()), default=0) if record else 0
        if manifest.number <= last:
            raise RefusedError(
                f"envelope {last} of campaign {manifest.campaign[:8]} was answered before, and this "
                f"is another envelope with number {manifest.number}: an old one, or one of two; it is "
                "not answered"
            )

    def _make(self, envelope: Envelope, to: Path) -> None:
        """Answer all requests, and keep the answer's file."""
        asked = read_requests(envelope)  # all of them, before the first is answered
        voter = self._voter()
        replies = []
        for kind, body in zip(asked.kinds, envelope.messages(), strict=True):
            replies.append(self._reply(voter, envelope.manifest.campaign, kind, body))
        answers = replace_direction(
            envelope.manifest,
            answers=envelope.digest,
            key=self._identity.public_key().public_bytes_raw(),
        )
        pair = self._pair(envelope.digest, replies)
        draft = replace(answers, seal=pair.public)
        sealed = seal(pair, envelope.manifest.seal, draft.about, replies)
        write(to, replace(draft, parts=tuple(map(Part.of, sealed))), self._identity, sealed)

    def _release(self) -> None:
        """Delete what campaigns that ended left here, but for the answer to the last envelope of each."""
        for record in self._ledger.campaigns():
            if record.ending is None or not record.files:
                continue
            campaign, *earlier = record.offer.campaign, *[*record.files.values()][:-1]
            for reply in self._folder.glob(f"{campaign}.*{_REPLY}"):
                reply.unlink(missing_ok=True)
            for each in earlier:
                self._kept(bytes.fromhex(each.answers)).unlink(missing_ok=True)

    def _reply(self, voter: Voter, campaign: str, kind: str, body: bytes) -> bytes:
        """Return the reply to one request: as before, if it has votes or shares and was made before."""
        kept = self._folder / f"{campaign}.{hashlib.sha256(body).hexdigest()}{_REPLY}"
        if kept.exists():
            return kept.read_bytes()
        reply = voter.handle(body)
        if voter.error is not None:
            raise voter.error
        require_no_refusal(reply)
        if kind.startswith("ask"):
            write_file(kept, reply)
        return reply

    def _send(self, envelope: Envelope, known: Path, to: Path, *, again: bool) -> Answered:
        """Record the file in the ledger, and let it appear."""
        with opened(known) as answer:
            if answer.manifest.answers != envelope.digest:
                raise StateError(f"{known} is damaged: it answers another envelope; remove it")
            self._ledger.send(
                envelope.manifest.campaign,
                number=envelope.manifest.number,
                answers=envelope.digest,
                digest=answer.digest,
                size=answer.size,
            )
            reach("envelope-recorded")
            write(to, answer.manifest, self._identity, answer.messages())
            write_file(self._sent_mark(envelope.digest), b"")
            return Answered(to, answer.digest, answer.size, again)

    def _pair(self, envelope: bytes, replies: list[bytes]) -> KeyPair:
        """Return the pair that seals these replies; other replies have another one."""
        digests = [hashlib.sha256(each).digest() for each in replies]
        info = encode("envelope key", envelope, *digests)
        secret = self._identity.private_bytes_raw()
        return KeyPair(HKDF(SHA256(), length=32, salt=None, info=info).derive(secret))

    def _kept(self, digest: bytes) -> Path:
        return self._folder / f"{digest.hex()}.pate"

    def _sent_mark(self, digest: bytes) -> Path:
        return self._folder / f"{digest.hex()}.sent"


def replace_direction(manifest: Manifest, **changes: object) -> Manifest:
    """Return the manifest of the answer to an envelope, so far as it follows from that."""
    fields = {"answers": bytes(32), "until": "", "direction": "from", **changes}
    return replace(manifest, **fields)  # type: ignore[arg-type]


def require_no_refusal(reply: bytes) -> None:
    """Check that a reply of our own is an answer."""
    signed, inner = vote_pb2.SignedReply(), vote_pb2.Reply()
    parse(signed, reply, "reply", limit=MAX_MESSAGE)
    parse(inner, signed.body, "reply")
    if inner.WhichOneof("body") == "refusal":
        raise RefusedError(f"we refused a request: {inner.refusal.kind}")
