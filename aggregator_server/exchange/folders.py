"""A carrier over two folders: requests leave as envelopes, and answers are taken from files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from aggregator_server.exchange.carrier import Arrival
from pate.envelopes import SUFFIX, Manifest, digest_of, opened, unseal, write
from pate.errors import DiskError, PateError, ProtocolError, StateError
from pate.masking.keys import KeyPair, derive
from pate.runtime.failpoints import reach
from pate.runtime.home import sweep_drafts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from aggregator_server.exchange.attendance import Keyring
    from aggregator_server.exchange.carrier import Carrier
    from aggregator_server.exchange.presence import Out
    from aggregator_server.exchange.store import Store
    from pate.envelopes import Envelope

#: Names of the folders for and from the people who carry the files.
OUT: Final = "out"
IN: Final = "in"
#: Largest receipt of a piece of the public set, sealed, bytes.
_MOST_RECEIPT: Final = 2**16


class Folders:
    """Carries what the store has recorded and not closed: one envelope a party at a time."""

    def __init__(
        self,
        store: Store,
        folder: Path,  # for the folders ``out`` and ``in``
        campaign: str,  # its id, hex
        keys: Keyring,
        secret: bytes,  # of this campaign, 32 bytes: answers are sealed to a key of it
        say: Callable[[str], None],
        # called with the last envelope for each party whenever one has changed
        show: Callable[[Sequence[Out]], None] = lambda _: None,
    ) -> None:
        self.store: Store = store
        self._nodes = {name: node for node, name in store.names.items()}
        self._campaign = campaign
        self._keys = keys
        self._pair = KeyPair(derived(secret, b"seal"))
        self._say = say
        self._show = show
        self._out, self._in = folder / OUT, folder / IN
        try:
            for path in (self._out, self._in):
                path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DiskError(f"cannot make the folder {folder}: {error.strerror}") from error
        # Others may use the folder, too.
        sweep_drafts(self._out, f"campaign-{campaign[:8]}.*")
        #: What was waited for when envelopes were written last; None: not since this process began.
        self._waiting: frozenset[tuple[str, bytes]] | None = None
        self._taken = False  # whether an answer was taken since
        #: State of each file of the inbox when it was last looked at.
        self._seen: dict[str, tuple[int, ...]] = {}
        #: Why a file of the inbox is not taken: said once it does not change any more.
        self._unsaid: dict[str, str] = {}

    def nodes(self) -> frozenset[int]:
        """Return all parties by envelope."""
        return frozenset(self.store.names)

    def returning(self) -> Collection[str]:
        """Return nobody: they are always here."""
        return ()

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        """Refuse: what is asked by envelope is recorded in the store, and leaves from there."""
        del digest, body
        raise ValueError(f"no party is connected at node {node}")

    def receive(self) -> list[Arrival]:
        """Return what has arrived since the last call; write what is to leave, without waiting."""
        arrivals: list[Arrival] = []
        # What lies in the inbox is in time, also when the server was away at the date.
        if self._take_in(arrivals):
            for name, by_date in self.store.close_due():
                why = "until the date of its envelope" if by_date else "when the wait was ended"
                self._say(f"{name}: no answer {why}; a later one is refused")
        self._put_out()
        return arrivals

    def pause(self, seconds: float) -> None:
        """Wait that long: files come without notice."""
        time.sleep(seconds)

    def close(self) -> None:
        """Write what is to leave."""
        self._put_out()

    # --- out -----------------------------------------------------------------------------------

    def _put_out(self) -> None:
        """Let envelopes appear, and remove those of which nothing is waited for."""
        waiting = self.store.waiting()
        if waiting == self._waiting and not self._taken:
            return
        for out in self.store.due():
            manifest = self._manifest(out)
            path = self._out / manifest.file_name
            # Those that are still out are written again after a restart only.
            if out.file is not None and (path.exists() or self._waiting is not None):
                continue
            if out.file is None:
                # Once it is outside, somebody may take it away, and an answer may come at any time.
                bodies = self.store.bodies(manifest.parts)
                self.store.note(out, digest_of(manifest, self._keys.own, bodies))
                reach("envelope-noted")
            write(path, manifest, self._keys.own, self.store.bodies(manifest.parts))
            until = f", to be answered until {out.until}" if out.until else ""
            self._say(f"envelope for {out.party}: {path}{until}")
        for out in self.store.envelopes():
            if out.over and out.file is not None:
                (self._out / self._manifest(out).file_name).unlink(missing_ok=True)
        self._waiting, self._taken = waiting, False
        self._show(self.store.newest())

    def _manifest(self, out: Out) -> Manifest:
        return Manifest(
            campaign=self._campaign,
            direction="for",
            party=out.party,
            number=out.number,
            answers=b"",
            until=out.until,
            key=self._keys.own.public_key().public_bytes_raw(),
            seal=self._pair.public,
            parts=self.store.parts(out),
        )

    # --- in ------------------------------------------------------------------------------------

    def _take_in(self, arrivals: list[Arrival]) -> bool:
        """Take what is new in the inbox, where files stay; return whether none is left to be judged later."""
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
                    arrivals += self._take(envelope, path.name)
            except DiskError:
                raise
            except StateError:  # of this server, such as its list of parties: it is looked at again
                del self._seen[path.name]
                judged = False
            except PateError as error:
                # It may be on its way still: somebody copies it bit by bit.
                self._unsaid[path.name] = f"{path.name} is not taken: {error}"
        return judged

    def _admit(self, manifest: Manifest) -> None:
        """Refuse an answer by its head, before its messages are read."""
        if manifest.direction != "from":
            raise ProtocolError("it is an envelope for a party, not an answer")
        if manifest.campaign != self._campaign:
            raise ProtocolError(f"it is of campaign {manifest.campaign[:8]}, not of this one")
        party, enrolled = manifest.party, self._keys.enrolled
        if party not in self._nodes:
            raise ProtocolError(f"{party} does not take part by envelope")
        if enrolled is not None and enrolled().get(party) != manifest.key:
            raise ProtocolError(f"it is not signed by the enrolled key of {party}")
        _, kinds = self.store.answered(manifest)
        for kind, part in zip(kinds, manifest.parts, strict=True):
            if kind == "public_piece" and part.size > _MOST_RECEIPT:
                raise ProtocolError(f"a receipt of {part.size:,} bytes")

    def _take(self, envelope: Envelope, file: str) -> list[Arrival]:
        manifest = envelope.manifest
        out, _ = self.store.answered(manifest)
        replies = [
            unseal(self._pair, manifest, at, each) for at, each in enumerate(envelope.messages())
        ]
        taken = self.store.take(out, envelope.digest, manifest.key, replies)
        if taken is None:
            return []
        reach("answer-taken")
        self._taken = True
        late = "" if taken else "; nothing of it is waited for any more: it came too late"
        self._say(f"answer of {out.party} to envelope {out.number}: {file}{late}")
        # A reply to what was not asked yet since a restart is found when it is asked again.
        return [Arrival(self._nodes[out.party], digest, reply, None) for digest, reply in taken]


class Both:
    """Two carriers as one: some parties by envelope, the others connected."""

    def __init__(self, files: Folders, online: Carrier) -> None:
        self.store: Store | None = files.store
        self._files = files
        self._online = online
        self.returning, self.send, self.pause = online.returning, online.send, online.pause

    def nodes(self) -> frozenset[int]:
        """Return the parties that are connected now, and all by envelope."""
        return self._files.nodes() | self._online.nodes()

    def receive(self) -> list[Arrival]:
        """Return what has arrived since the last call."""
        return self._files.receive() + self._online.receive()

    def close(self) -> None:
        """Release both."""
        self._files.close()
        self._online.close()


def derived(secret: bytes, what: bytes) -> bytes:
    """Return the key of 32 bytes for one use of a campaign's secret."""
    return derive(secret, b"pate/v1/envelopes/" + what)
