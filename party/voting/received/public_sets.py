"""Public sets at a party: its own copy, and those received in pieces from a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from party.voting.received.pieces import Pieces
from pate.data.schema import Schema
from pate.data.values import Inputs, content_hash
from pate.errors import ProtocolError, SchemaError
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory, write_file
from protos.public_set import read_public_set

if TYPE_CHECKING:
    from pathlib import Path

    from protos.pate.v1 import vote_pb2

#: Most received public sets on disk, the latest ones. They may be gigabytes each.
_MOST_KEPT: Final = 4


class PublicSets:
    """Finds or receives the public set of a campaign.

    Args:
        folder: of received ones.
        own: the party's own copy of one, or None.

    Attributes:
        own: content hash of the own copy, or None.
    """

    def __init__(self, folder: Path, own: Inputs | None) -> None:
        self._folder = folder
        self.own = None if own is None else content_hash(own)
        self._own_copy = own
        #: The last one used, by its hash.
        self._held: tuple[bytes, Inputs] | None = None
        self._pieces = Pieces()

    def find(self, campaign: vote_pb2.Campaign) -> Inputs | None:
        """Return the public set of a campaign, None if it must be sent.

        Raises:
            ProtocolError: if its size differs from the campaign's.
            SchemaError: if its schema differs from the campaign's.
        """
        known = self._look(campaign)
        if known is not None and len(known) != campaign.queries:
            raise ProtocolError(
                f"the campaign announces {campaign.queries} queries, its public set has {len(known)}"
            )
        # Our records are read by the schema line, and votes are cast on the set: they must agree.
        if known is not None and (
            known.schema() != campaign.schema or Schema.parse(campaign.schema) != Schema.of(known)
        ):
            raise SchemaError(
                f"the campaign says that its inputs are {campaign.schema:.80}, its public set is "
                f"{known.schema():.80}"
            )
        return known

    def take(self, campaign: vote_pb2.Campaign, piece: vote_pb2.PublicPiece) -> Inputs | None:
        """Process one piece, in any order; return the complete, verified set once it is there.

        Raises:
            ProtocolError: if the complete set differs from the announced one.
            DiskError: if it cannot be stored.
        """
        whole = self._pieces.take(campaign.public_set, piece)
        if whole is None:
            return None
        body = b"".join(whole)
        del whole
        inputs = read_public_set(body, public_set=campaign.public_set, queries=campaign.queries)
        private_directory(self._folder)
        self._make_room()
        write_file(self._path(campaign.public_set), body)
        reach("public-set-kept")
        self._held = (campaign.public_set, inputs)
        return inputs

    def _look(self, campaign: vote_pb2.Campaign) -> Inputs | None:
        wanted = campaign.public_set
        if wanted == self.own:
            return self._own_copy
        if self._held is None or self._held[0] != wanted:
            try:
                body = self._path(wanted).read_bytes()
                inputs = read_public_set(body, public_set=wanted, queries=campaign.queries)
            except (FileNotFoundError, ProtocolError):
                return None  # missing or damaged: it will be sent again
            self._held = (wanted, inputs)
        return self._held[1]

    def _path(self, public_set: bytes) -> Path:
        return self._folder / f"{public_set.hex()}.bin"

    def _make_room(self) -> None:
        stored = sorted(self._folder.glob("*.bin"), key=lambda path: path.stat().st_mtime)
        for path in stored[: -(_MOST_KEPT - 1)]:
            path.unlink(missing_ok=True)
