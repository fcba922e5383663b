"""A wire over two folders: requests leave as envelopes, and answers are taken from files."""

from __future__ import annotations

import hashlib
import hmac
from collections import deque
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from aggregator_server.envelopes.store import EARLY
from aggregator_server.envelopes.sums import SumsAhead
from aggregator_server.exchange.wire import Arrival
from pate.envelopes.file import SUFFIX, digest_of, opened, write
from pate.envelopes.manifest import Manifest
from pate.envelopes.sealing import unseal
from pate.errors import DiskError, PateError, ProtocolError, StateError
from pate.masking.keys import KeyPair
from pate.runtime.failpoints import reach
from protos import wire
from protos.bounds import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aggregator_server.envelopes.known_keys import KnownKeys
    from aggregator_server.envelopes.out import Out
    from aggregator_server.envelopes.store import Store
    from aggregator_server.exchange.wire import Wire
    from pate.envelopes.file import Envelope
    from protos.pate.v1 import vote_pb2

#: Names of the folders for and from couriers.
OUT: Final = "out"
IN: Final = "in"
#: Largest receipt of a piece of the public set, sealed, bytes.
_MOST_RECEIPT: Final = 2**16


class EnvelopeWire:
    """A wire to parties that take part by envelope; each has one envelope at a time.

    A node is below 0, so that it is none of Flower's. All parties count as connected. A request that
    is sent again gives the same bytes, so after any interruption the replies that have come arrive
    again, and nothing is asked twice.

    Args:
        store: of the campaign.
        folder: holds the folders ``out`` and ``in``.
        campaign: its id, hex.
        parties: their names.
        signing_key: the campaign's.
        secret: of this campaign, 32 bytes: answers are sealed to a key of it.
        enrolled: identity keys by name; None: a party keeps the key of its first answer.
        say: one line for the server's screen.
        show: called with the last envelope for each party whenever one has changed.
        keys: sealing keys that are known before a party has described itself; None: none are.
        sums: of the campaign, at least.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        *,
        campaign: str,
        parties: Sequence[str],
        signing_key: Ed25519PrivateKey,
        secret: bytes,
        enrolled: Callable[[], Mapping[str, bytes]] | None,
        say: Callable[[str], None],
        show: Callable[[Sequence[Out]], None] = lambda _: None,
        keys: KnownKeys | None = None,
        sums: int = 1,
    ) -> None:
        self._show = show
        self._store = store
        self._campaign = campaign
        self._name_of = {-1 - at: name for at, name in enumerate(sorted(parties))}
        self._node_of = {name: node for node, name in self._name_of.items()}
        self._key = signing_key
        self._pair = KeyPair(_derive(secret, b"seal"))
        self._nonce_key = _derive(secret, b"nonce")
        self._enrolled = enrolled
        self._say = say
        self._out, self._in = folder / OUT, folder / IN
        try:
            for path in (self._out, self._in):
                path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DiskError(f"cannot make the folder {folder}: {error.strerror}") from error
        self._ready: deque[Arrival] = deque()
        #: Handles of requests without reply, by party and digest of the request.
        self._open: dict[tuple[str, bytes], str] = {}
        self._changed = True
        #: Whether envelopes that are still out were written again, as after a restart.
        self._written = False
        self._was_closed: set[tuple[str, bytes]] = set()
        self._sums = SumsAhead(store, campaign, keys, sums)
        self._early: vote_pb2.AskBundles | None = None
        #: State of each file of the inbox when it was last looked at.
        self._seen: dict[str, tuple[int, ...]] = {}
        #: Why a file of the inbox is not taken: said once it does not change any more.
        self._unsaid: dict[str, str] = {}

    @property
    def sums(self) -> SumsAhead:
        """What begins masked sums here."""
        return self._sums

    # --- what only this wire does: aggregator_server.exchange.wire.Courier ---------------------

    def party_at(self, node: int) -> str | None:
        """Return the name of the party at a node of this wire, None for another node."""
        return self._name_of.get(node)

    def nonce(self, request: bytes) -> bytes:
        """Return the nonce of a request, the same each time: a keyed hash of its bytes."""
        return hmac.digest(self._nonce_key, request, "sha256")[:ID_BYTES]

    def early(self) -> vote_pb2.AskBundles | None:
        """Return the request for bundles in the first envelope, None if it cannot be made yet."""
        self._early = self._sums.early
        return self._early

    def closed(self) -> frozenset[str]:
        """Return the handles of requests that are not waited for any more."""
        gone = self._store.closed()
        return frozenset(handle for key, handle in self._open.items() if key in gone)

    def begin_sum(self, place: int | None) -> None:
        """Delete the replies to all sums but one; see :meth:`Store.begin_sum`."""
        self._store.begin_sum(place)
        reach("replies-deleted")

    # --- a wire --------------------------------------------------------------------------------

    def nodes(self) -> frozenset[int]:
        """Return all parties."""
        return frozenset(self._name_of)

    def send(self, node: int, body: bytes) -> str:
        """Send ``body`` to a party and return a handle under which the answer will arrive."""
        party = self._name_of[node]
        request = wire.read_request(body)[1]
        kind = request.WhichOneof("body") or ""
        if kind == "ask_bundles" and request.ask_bundles == self._early:
            kind = EARLY
        digest = hashlib.sha256(body).digest()
        handle = f"{party} {digest.hex()}"
        reply = self._store.ask(party, body, kind)
        if reply is None:
            self._open[party, digest] = handle
            self._changed = True
        else:
            self._ready.append(Arrival(handle, node, reply, None))
        return handle

    def receive(self) -> list[Arrival]:
        """Return what has arrived since the last call; write what is to leave, without waiting."""
        # What lies in the inbox is in time, also when the server was away at the date.
        if self._take_in():
            for name, by_date in self._store.close_due():
                why = "until the date of its envelope" if by_date else "when the wait was ended"
                self._say(f"{name}: no answer {why}; a later one is refused")
                self._changed = True
        self._put_out()
        found = [*self._ready]
        self._ready.clear()
        return found

    def close(self) -> None:
        """Write what is to leave."""
        self._put_out()

    # --- out -----------------------------------------------------------------------------------

    def _put_out(self) -> None:
        """Let envelopes appear, and remove those of which nothing is waited for."""
        closed = self._store.closed()
        if not self._changed and closed == self._was_closed:
            return
        self._was_closed = closed
        first = not self._written
        for out in self._store.due(sorted(self._node_of)):
            manifest = self._manifest(out)
            path = self._out / manifest.file_name
            if out.file is not None and (path.exists() or not first):
                continue
            if out.file is None:
                # Once it is outside, a courier may take it away, and an answer may come at any time.
                bodies = self._store.bodies(manifest.parts)
                self._store.note(out, digest_of(manifest, self._key, bodies))
                reach("envelope-noted")
            write(path, manifest, self._key, self._store.bodies(manifest.parts))
            self._say(f"envelope for {out.party}: {path}{_until(out)}")
        for out in self._store.envelopes():
            if out.over and out.file is not None:
                (self._out / self._file_name(out)).unlink(missing_ok=True)
        self._written, self._changed = True, False
        self._show(self._store.newest())

    def _manifest(self, out: Out) -> Manifest:
        return Manifest(
            campaign=self._campaign,
            direction="for",
            party=out.party,
            number=out.number,
            answers=b"",
            until=out.until,
            key=self._key.public_key().public_bytes_raw(),
            seal=self._pair.public,
            parts=self._store.parts(out),
        )

    def _file_name(self, out: Out) -> str:
        return self._manifest(out).file_name

    # --- in ------------------------------------------------------------------------------------

    def _take_in(self) -> bool:
        """Take all answers that are new in the inbox; files are left where they are.

        Returns:
            Whether none is left that this server could not judge now.
        """
        judged = True
        for path in sorted(self._in.glob(f"*{SUFFIX}")):
            try:
                facts = path.lstat()
            except FileNotFoundError:
                continue
            state = (facts.st_size, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns)
            if self._seen.get(path.name) == state:
                if (why := self._unsaid.pop(path.name, None)) is not None:
                    self._say(why)
                continue
            self._seen[path.name] = state
            self._unsaid.pop(path.name, None)
            try:
                with opened(path, self._admit) as envelope:
                    self._take(envelope, path)
            except DiskError:
                raise
            except StateError:  # of this server, such as its list of parties: it is looked at again
                del self._seen[path.name]
                judged = False
            except PateError as error:
                # It may be on its way still: a courier copies it bit by bit.
                self._unsaid[path.name] = f"{path.name} is not taken: {error}"
        return judged

    def _admit(self, manifest: Manifest) -> None:
        """Refuse an answer by its head, before its messages are read.

        Raises:
            ProtocolError: if it is not for this campaign, not of an asked party, or too large.
        """
        if manifest.direction != "from":
            raise ProtocolError("it is an envelope for a party, not an answer")
        if manifest.campaign != self._campaign:
            raise ProtocolError(f"it is of campaign {manifest.campaign[:8]}, not of this one")
        party = manifest.party
        if party not in self._node_of:
            raise ProtocolError(f"{party} does not take part by envelope")
        if self._enrolled is not None and self._enrolled().get(party) != manifest.key:
            raise ProtocolError(f"it is not signed by the enrolled key of {party}")
        kinds = self._store.kinds(self._store.answered(manifest))
        for kind, part in zip(kinds, manifest.parts, strict=True):
            if kind == "public_piece" and part.size > _MOST_RECEIPT:
                raise ProtocolError(f"a receipt of {part.size:,} bytes")

    def _take(self, envelope: Envelope, path: Path) -> None:
        manifest = envelope.manifest
        party, out = manifest.party, self._store.answered(manifest)
        replies = [
            unseal(self._pair, manifest, at, each) for at, each in enumerate(envelope.messages())
        ]
        taken = self._store.take(out, envelope.digest, manifest.key, replies)
        if taken is None:
            return
        reach("answer-taken")
        self._changed = True
        late = "" if taken else "; nothing of it is waited for any more: it came too late"
        self._say(f"answer of {party} to envelope {out.number}: {path.name}{late}")
        for digest, reply in taken:
            handle = self._open.pop((party, digest), None)
            if handle is not None:  # else it is delivered when the request is made again
                self._ready.append(Arrival(handle, self._node_of[party], reply, None))


class MixedWire:
    """Two wires as one: some parties by envelope, the others online.

    Args:
        files: to the parties by envelope.
        online: to the others.
    """

    def __init__(self, files: EnvelopeWire, online: Wire) -> None:
        self._files = files
        self._online = online

    def nodes(self) -> frozenset[int]:
        """Return the parties that are connected now, and all by envelope."""
        return self._files.nodes() | self._online.nodes()

    def send(self, node: int, body: bytes) -> str:
        """Send ``body`` to a party and return a handle under which the answer will arrive."""
        return (self._files if node < 0 else self._online).send(node, body)

    def receive(self) -> list[Arrival]:
        """Return what has arrived since the last call."""
        return self._files.receive() + self._online.receive()

    def close(self) -> None:
        """Release both."""
        self._files.close()
        self._online.close()


def _until(out: Out) -> str:
    return f", to be answered until {out.until}" if out.until else ""


def _derive(secret: bytes, what: bytes) -> bytes:
    info = b"pate/v1/envelopes/" + what
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)
