"""Public sets at a party: its own copy, and those that a server sent, in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pate.data.schema import Schema
from pate.data.values import Inputs, content_hash
from pate.errors import ProtocolError, SchemaError
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory, write_file
from protos.public_set import read_public_set

if TYPE_CHECKING:
    from pathlib import Path

    from protos.pate.v1 import vote_pb2

#: Public sets that were sent and are kept on disk: the latest ones. They may be gigabytes each.
_MOST_KEPT: Final = 4


class PublicSets:
    """Finds the public set of a campaign, and takes in what is sent of it.

    Args:
        folder: where those that were sent are kept.
        own: the party's own copy of one, or None.

    Attributes:
        own: content hash of the own copy, or None.
    """

    def __init__(self, folder: Path, own: Inputs | None) -> None:
        self._folder = folder
        self.own = None if own is None else content_hash(own)
        self._own_copy = own
        #: The last one that was looked at, by its hash.
        self._held: tuple[bytes, Inputs] | None = None
        self._pieces: dict[bytes, dict[int, bytes]] = {}

    def find(self, campaign: vote_pb2.Campaign) -> Inputs | None:
        """Return the public set of a campaign, None if it has to be sent.

        Raises:
            ProtocolError: if it has another size than the campaign announces.
            SchemaError: if it is something else than the campaign announces.
        """
        held = self._look(campaign)
        if held is not None and len(held) != campaign.queries:
            raise ProtocolError(
                f"the campaign announces {campaign.queries} queries, its public set has {len(held)}"
            )
        # Our records are read by the line, and votes are cast on the set: both must say the same.
        if held is not None and (
            held.schema() != campaign.schema or Schema.parse(campaign.schema) != Schema.of(held)
        ):
            raise SchemaError(
                f"the campaign says that its inputs are {campaign.schema:.80}, its public set is "
                f"{held.schema():.80}"
            )
        return held

    def take(self, campaign: vote_pb2.Campaign, piece: vote_pb2.PublicPiece) -> Inputs | None:
        """Take in one piece, in any order; return the whole once it is there and was checked.

        Raises:
            ProtocolError: if the whole is not what was announced.
            DiskError: if it cannot be kept.
        """
        # One public set at a time: a server that starts a second one gives up the first.
        held = self._pieces.get(campaign.public_set)
        if held is None:
            held = {}
            self._pieces = {campaign.public_set: held}
        held[piece.index] = piece.content
        if len(held) < piece.pieces:
            return None
        body = b"".join(held[at] for at in sorted(held))
        self._pieces.clear()
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
                return None  # not here, or damaged on disk: it will be sent again
            self._held = (wanted, inputs)
        return self._held[1]

    def _path(self, public_set: bytes) -> Path:
        return self._folder / f"{public_set.hex()}.bin"

    def _make_room(self) -> None:
        stored = sorted(self._folder.glob("*.bin"), key=lambda path: path.stat().st_mtime)
        for path in stored[: -(_MOST_KEPT - 1)]:
            path.unlink(missing_ok=True)
