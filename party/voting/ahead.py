"""A party's part in masked sums whose keys come ahead: bundles, masked votes, consent, unmasking.

As :mod:`party.voting.masked`, but everything that a later step needs is on disk, so the steps may be
days apart. :mod:`pate.masking.ahead.party` has the rules, docs/proofs/envelopes.md the proof.

The file of bundles and rounds is as secret as the votes themselves: with the shares in it, and those of
others, votes can be unmasked. It is not in a backup: a restored party would use a bundle a second time.
Without it a party makes new bundles, and takes part in new campaigns.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from party.identity.keys import sealing_key
from party.voting.masked import MaskedSums
from pate.errors import RefusedError
from pate.masking.ahead.party import PartyAhead
from pate.masking.ahead.store import REMOVED, Asker
from pate.masking.encoding import decode, encode
from pate.masking.keys import KeyPair
from pate.runtime.failpoints import reach
from pate.storage.durable_file import DurableFile
from protos import ahead, masked
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from pate.campaign.offer import Offer
    from pate.masking.ahead.bundle import Round
    from pate.masking.ahead.store import Kind, Place
    from pate.votes import Counts

_HASH_BYTES: Final = 32
#: Name of the file in a party's home.
BUNDLES_FILE: Final = "bundles.db"
#: "patb" in ASCII.
_APPLICATION_ID: Final = 0x70617462
_SCHEMA: Final = (
    (
        "CREATE TABLE entries (kind TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, "
        "PRIMARY KEY (kind, key)) STRICT"
    ),
    (
        "CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries "
        "BEGIN SELECT RAISE(ABORT, 'entries are kept as they are'); END"
    ),
    (
        "CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries "
        f"WHEN OLD.kind NOT IN ({', '.join(repr(each.value) for each in REMOVED)}) "
        "BEGIN SELECT RAISE(ABORT, 'what was bound or answered is not removed'); END"
    ),
)


@dataclass(kw_only=True, eq=False, repr=False)
class AheadVotes(MaskedSums):
    """Takes a party through rounds whose keys come ahead.

    Its keys and bundles in ``home`` are made only when they are needed. The ledger has bundles
    before they leave, the round of each before it masks, and an unmasking before the shares leave.
    """

    home: Path

    @property
    def _file(self) -> Path:
        return self.home / BUNDLES_FILE

    @cached_property
    def _party(self) -> PartyAhead:
        return PartyAhead(
            name=self.name,
            identity=self.identity,
            pair=KeyPair(sealing_key(self.home)),
            store=AheadFile(self._file),
            random=secrets.token_bytes,
        )

    def sealing(self) -> vote_pb2.SealingKey:
        """Return our sealing key, signed."""
        key, signature = self._party.sealing()
        return vote_pb2.SealingKey(key=key, signature=signature)

    def bundles(self, key: bytes, campaign: bytes, asked: vote_pb2.AskBundles) -> vote_pb2.Bundles:
        """Return bundles for a campaign's request; see :meth:`pate.masking.ahead.party.PartyAhead.bundles`.

        There are none for a roster with an earlier sealing key of ours: the server takes the
        present one from our description, and asks again.
        """
        roster = ahead.roster_from_wire(asked)
        identity = self.identity.public_key().public_bytes_raw()
        if roster.plain.identities.get(self.name) == identity:
            ours, _ = self._party.sealing()
            if roster.keys[self.name] != ours:
                return vote_pb2.Bundles()
        asker = Asker(key, campaign, int(time.time()))
        made = self._party.bundles(roster, asked.first, asked.count, asker)
        reach("bundles-kept")
        self.ledger.list_bundles(roster.digest, asked.first, [each.digest for each, _ in made])
        return vote_pb2.Bundles(bundles=[ahead.bundle_to_wire(*each) for each in made])

    def masked(
        self,
        offer: Offer,
        asked: vote_pb2.AskMaskedAhead,
        hashes: Sequence[bytes],
        *,
        votes: Callable[[], Counts],
        check: Callable[[Counts], None],
        record: Callable[[Counts], None],
    ) -> vote_pb2.MaskedAhead:
        """Mask our votes on our own copy of the queries, with our noise share if the campaign uses them.

        ``check`` compares them with all earlier votes; ``record`` does so, too, and records them in
        the party's ledger, after their noise is durable, and before they leave.
        """
        name = offer.campaign
        if not self._party.takes_part(bytes.fromhex(name)):
            record_ = self.ledger.find(name)
            if record_ is not None and record_.batches:
                raise RefusedError(
                    "votes of this campaign left by the steps online, or in a round whose bundles "
                    "are lost here: no other way of summing them is taken"
                )
        round_ = ahead.round_of(offer, asked, self._party.roster(asked.roster))
        boxes = {each.party: each.box for each in asked.bundles if each.party != self.name}
        kept = vote_pb2.AskMaskedAhead()
        kept.CopyFrom(asked)
        for each in kept.bundles:
            each.box = b""
        note = encode("note", kept.SerializeToString(deterministic=True), b"".join(hashes))
        self._party.begin(round_, boxes, note)
        reach("round-begun")
        # Bound in both files: neither, put back to an earlier state, lets a bundle mask twice.
        self.ledger.use_bundle(round_.bundles[self.name].digest, round_.digest)

        def values() -> Counts:
            found = votes()
            check(found)
            hidden = self._with_noise(offer, asked.batch, found)
            record(found)
            return hidden

        packed, signature = self._party.mask(round_, values)
        reach("masked-kept")
        return vote_pb2.MaskedAhead(packed=packed, signature=signature)

    def consent(self, offer: Offer, asked: vote_pb2.AskConsentAhead) -> vote_pb2.Consent:
        """Sign the list of survivors."""
        round_, _, _ = self._round(offer, asked.attempt)
        signature = self._party.sign(round_, masked.signatures_from_wire(asked.masked))
        reach("list-signed")
        return vote_pb2.Consent(signature=signature)

    def opening(
        self, offer: Offer, asked: vote_pb2.AskOpeningAhead, *, allow_other: bool
    ) -> vote_pb2.Opening:
        """Reveal the shares that unmask the sum of one list of survivors."""
        round_, batch, hashes = self._round(offer, asked.attempt)
        given = (
            masked.signatures_from_wire(asked.masked),
            masked.signatures_from_wire(asked.consents),
        )
        survivors = self._party.check_list(round_, *given)
        # A list that the ledger refuses is not fixed: the right one may still come.
        self.ledger.open_batch(offer.campaign, batch, hashes, survivors, allow_other=allow_other)
        reach("opening-recorded")
        self._party.choose(round_, *given)
        reach("list-kept")
        return masked.unmasking_to_wire(self._party.unmask(round_))

    def require_none(self, campaign: bytes) -> None:
        """Check that no round of a campaign was begun here, so its sums may be made online."""
        if self._file.exists() and self._party.takes_part(campaign):
            raise RefusedError(
                "this campaign's votes are masked with bundles: they are not summed by the steps "
                "online, too"
            )

    def forget(self, campaign: bytes) -> None:
        """Delete the remaining secrets of a campaign's rounds."""
        if self._file.exists():
            self._party.forget(campaign)

    def _round(self, offer: Offer, attempt: bytes) -> tuple[Round, bytes, list[bytes]]:
        """Return a round that was begun, the digest of its batch, and the hashes of its queries."""
        stored, whole = decode("note", self._party.note(bytes.fromhex(offer.campaign), attempt))
        asked = vote_pb2.AskMaskedAhead.FromString(stored)
        # Under other terms it is another round, which has not masked anything.
        round_ = ahead.round_of(offer, asked, self._party.roster(asked.roster))
        hashes = [whole[at : at + _HASH_BYTES] for at in range(0, len(whole), _HASH_BYTES)]
        return round_, asked.batch.digest, hashes


class AheadFile:
    """Entries of a party's bundles and rounds; a :class:`pate.masking.ahead.store.Store`."""

    def __init__(self, path: Path) -> None:
        self._file = DurableFile(path, _SCHEMA, _APPLICATION_ID)

    def get(self, kind: Kind, key: bytes) -> bytes | None:
        """See :class:`pate.masking.ahead.store.Store`."""
        with self._file.reading() as db:
            found = db.execute(
                "SELECT value FROM entries WHERE kind = ? AND key = ?", (kind.value, key)
            ).fetchone()
        return None if found is None else bytes(found[0])

    def find(self, kind: Kind, prefix: bytes = b"") -> dict[bytes, bytes]:
        """See :class:`pate.masking.ahead.store.Store`."""
        with self._file.reading() as db:
            return dict(
                db.execute(
                    "SELECT key, value FROM entries WHERE kind = ? AND substr(key, 1, ?) = ?",
                    (kind.value, len(prefix), prefix),
                ).fetchall()
            )

    def change(self, add: Mapping[Place, bytes], remove: Collection[Place] = ()) -> None:
        """See :class:`pate.masking.ahead.store.Store`."""
        with self._file.writing() as db:
            db.execute("PRAGMA secure_delete = ON")
            for (kind, key), value in add.items():
                db.execute(
                    "INSERT INTO entries VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                    (kind.value, key, value),
                )
                (stored,) = db.execute(
                    "SELECT value FROM entries WHERE kind = ? AND key = ?", (kind.value, key)
                ).fetchone()
                if stored != value:
                    raise RefusedError(
                        f"{self._file.path} has another entry ({kind.value}) for the same key: what "
                        "was answered once is not answered otherwise"
                    )
            for kind, key in remove:
                db.execute("DELETE FROM entries WHERE kind = ? AND key = ?", (kind.value, key))
