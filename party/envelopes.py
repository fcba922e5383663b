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

import glob
import hashlib
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pate.envelopes import SUFFIX, Envelope, Manifest, Part, date_of, opened, seal, write
from pate.errors import DataError, PateError, RefusedError, StateError
from pate.masking.encoding import encode
from pate.masking.keys import KeyPair, derive
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory, sweep_drafts, write_file
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


@dataclass(frozen=True, kw_only=True, repr=False)
class Answers:
    """Answers the envelopes of one party."""

    name: str
    identity: Ed25519PrivateKey
    home: Path
    ledger: PartyLedger
    pinned: bytes | None  # the campaign key of its enrolment; None: not enrolled
    # makes what answers requests; called only if there is something to answer
    voter: Callable[[], Voter]
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        sweep_drafts(private_directory(self._folder))

    @property
    def _folder(self) -> Path:
        return self.home / FOLDER

    def answer(self, path: Path, out: Path) -> Answered:
        """Answer an envelope; ``out`` is the file of the answer, or an existing folder for it."""
        with opened(path) as envelope:
            require_for(envelope, self.name, self.pinned)
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
        if manifest.until and self.clock() > date_of(manifest.until):
            raise RefusedError(
                f"this envelope could be answered until {manifest.until}, and it is "
                f"{self.clock():%Y-%m-%dT%H:%M:%SZ} here: ask the coordinator for a new one, or "
                "correct this machine's clock"
            )
        record = self.ledger.find(manifest.campaign)
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
        voter = self.voter()
        replies = []
        for kind, body in zip(asked.kinds, envelope.messages(), strict=True):
            replies.append(self._reply(voter, envelope.manifest.campaign, kind, body))
        answers = replace_direction(
            envelope.manifest,
            answers=envelope.digest,
            key=self.identity.public_key().public_bytes_raw(),
        )
        pair = self._pair(envelope.digest, replies)
        draft = replace(answers, seal=pair.public)
        sealed = seal(pair, envelope.manifest.seal, draft.about, replies)
        write(to, replace(draft, parts=tuple(map(Part.of, sealed))), self.identity, sealed)

    def _release(self) -> None:
        """Delete what campaigns that ended left here, but for the answer to the last envelope of each."""
        for record in self.ledger.campaigns():
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
            self.ledger.send(
                envelope.manifest.campaign,
                number=envelope.manifest.number,
                answers=envelope.digest,
                digest=answer.digest,
                size=answer.size,
            )
            reach("envelope-recorded")
            sweep_drafts(to.parent, glob.escape(to.name))
            write(to, answer.manifest, self.identity, answer.messages())
            write_file(self._sent_mark(envelope.digest), b"")
            return Answered(to, answer.digest, answer.size, again)

    def _pair(self, envelope: bytes, replies: list[bytes]) -> KeyPair:
        """Return the pair that seals these replies; other replies have another one."""
        digests = [hashlib.sha256(each).digest() for each in replies]
        info = encode("envelope key", envelope, *digests)
        return KeyPair(derive(self.identity.private_bytes_raw(), info))

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


@dataclass(frozen=True)
class Watch:
    """Answers what arrives in a folder, for those who move files by a robot.

    A file that cannot be answered is named once and left where it is; it is tried again when it has
    changed, since a robot may still have been writing it.
    """

    answers: Answers
    inbox: Path
    outbox: Path
    say: Callable[[str], None]
    # state of a file when it was last looked at, by its name
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for folder in (self.inbox, self.outbox):
            if not folder.is_dir():
                raise DataError(f"there is no folder at {folder}")

    def look(self) -> list[PateError]:
        """Answer what is new, and return the errors of what could not be answered."""
        errors: list[PateError] = []
        for path in sorted(self.inbox.glob(f"*{SUFFIX}")):
            try:
                facts = path.lstat()
            except FileNotFoundError:
                continue
            state = (facts.st_size, facts.st_mtime_ns)
            if self._seen.get(path.name) == state:
                continue
            self._seen[path.name] = state
            try:
                self._one(path)
            except PateError as error:
                errors.append(error)
                self.say(f"{path.name} is not answered: {error}")
        return errors

    def once(self) -> list[PateError]:
        """Look until nothing new has arrived meanwhile."""
        errors: list[PateError] = []
        while True:
            before = dict(self._seen)
            errors += self.look()
            if self._seen == before:
                return errors

    def _one(self, path: Path) -> None:
        with opened(path) as envelope:
            if self.answers.sent(envelope.digest):
                return
        done = self.answers.answer(path, self.outbox)
        self.say(f"{path.name} is answered: {done.path}, SHA-256 {done.digest.hex()}")

    def run(self, every: float, pause: Callable[[float], None] = time.sleep) -> None:
        """Look until the process is stopped, with ``every`` seconds between two looks."""
        while True:
            self.look()
            pause(every)
