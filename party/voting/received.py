"""What a server sends in pieces: public sets, and encoders for a party that has no folder of its own.

Nothing of an encoder is taken before the site's policy has accepted it by its digest, and nothing is written
before the whole has that digest and its graph is one that may run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Final

from pate.data.schema import Schema
from pate.data.values import Inputs, content_hash
from pate.encoders.description import FILE
from pate.encoders.encoder import opened_files
from pate.encoders.graph import checked_graph
from pate.errors import DataError, ProtocolError, SchemaError
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory, sweep_drafts, write_file
from protos.public_set import read_encoder, read_first_piece, read_public_set

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pate.campaign.announced import Announced
    from pate.encoders.description import Description
    from pate.encoders.reading import Reader
    from protos.pate.v1 import vote_pb2

#: Most received public sets, or encoders, on disk, the latest ones. They may be gigabytes each.
_MOST_KEPT: Final = 4


class Pieces:
    """Collects the pieces of one thing at a time, in memory: starting a second one abandons the first."""

    def __init__(self) -> None:
        self._of = (b"", 0)
        self._known: dict[int, bytes] = {}

    def take(self, of: bytes, piece: vote_pb2.PublicPiece) -> list[bytes] | None:
        """Process one piece of the whole with hash ``of``, in any order; return all once there."""
        if (of, piece.pieces) != self._of:
            self._of, self._known = (of, piece.pieces), {}
        self._known[piece.index] = piece.content
        if len(self._known) < piece.pieces:
            return None
        whole = [self._known[at] for at in range(piece.pieces)]
        self._known = {}
        return whole


class PublicSets:
    """Finds or receives the public set of a campaign; ``own`` is the content hash of the party's copy."""

    def __init__(self, folder: Path, own: Inputs | None) -> None:
        sweep_drafts(folder)
        self._folder = folder
        self.own = None if own is None else content_hash(own)
        self._own_copy = own
        #: The last one used, by its hash.
        self._held: tuple[bytes, Inputs] | None = None
        self._pieces = Pieces()

    def find(self, campaign: Announced) -> Inputs | None:
        """Return the public set of a campaign, None if it must be sent."""
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

    def current(self, campaign: Announced) -> Inputs | None:
        """Return the public set of a campaign if it is the one in memory."""
        wanted, held = bytes.fromhex(campaign.public_set), self._held
        if wanted == self.own:
            return self._own_copy
        return held[1] if held is not None and held[0] == wanted else None

    def take(self, campaign: Announced, piece: vote_pb2.PublicPiece) -> Inputs | None:
        """Process one piece, in any order; return the complete, verified set once it is there."""
        wanted = bytes.fromhex(campaign.public_set)
        whole = self._pieces.take(wanted, piece)
        if whole is None:
            return None
        body = b"".join(whole)
        del whole
        inputs = read_public_set(body, public_set=wanted, queries=campaign.queries)
        private_directory(self._folder)
        self._make_room()
        write_file(self._path(wanted), body)
        reach("public-set-kept")
        self._held = (wanted, inputs)
        return inputs

    def _look(self, campaign: Announced) -> Inputs | None:
        wanted = bytes.fromhex(campaign.public_set)
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


class Encoders:
    """Finds or receives the encoder of a campaign, and opens it after a trial of one input."""

    def __init__(self, folder: Path, opened: Callable[[Path], Reader]) -> None:
        self._folder = folder
        self._opened = opened
        self._pieces = Pieces()
        #: The last one used.
        self._held: Reader | None = None

    def find(self, digest: str) -> Reader | None:
        """Return the encoder of a digest, None if it must be sent."""
        if self._held is None or self._held.digest != digest:
            if not self._is_whole(digest):
                # Missing or damaged: it will be sent again, and is not read for every piece.
                shutil.rmtree(self._folder / digest, ignore_errors=True)
                return None
            self._held = self._opened(self._folder / digest)
            with contextlib.suppress(OSError):
                os.utime(self._folder / digest)
        return self._held

    def take(self, digest: str, piece: vote_pb2.PublicPiece) -> Description | None:
        """Process one piece, in any order; return the description once all is checked and stored."""
        if piece.index == 0:
            read_first_piece(piece.content, piece.pieces, digest)
        whole = self._pieces.take(bytes.fromhex(digest), piece)
        if whole is None:
            return None
        description, contents = read_encoder(whole, digest)
        checked_graph(contents[0], f"the campaign's encoder {description.in_words()}")
        self._store(description, contents)
        return description

    def _is_whole(self, digest: str) -> bool:
        try:
            return opened_files(self._folder / digest)[0].digest == digest
        except DataError:
            return False

    def _store(self, description: Description, contents: list[bytes]) -> None:
        """Write a folder durably; its description comes last, and without one it is none."""
        private_directory(self._folder)
        self._make_room()
        folder = self._folder / description.digest
        shutil.rmtree(folder, ignore_errors=True)
        private_directory(folder)
        try:
            for entry, content in zip(description.files, contents, strict=True):
                write_file(folder / entry.file, content)
            write_file(folder / FILE, description.to_bytes())
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _make_room(self) -> None:
        """Remove what a killed process left, and the encoders that were used longest ago."""
        stored = sorted(
            (path for path in self._folder.iterdir() if path.is_dir()),
            key=lambda path: ((path / FILE).is_file(), path.stat().st_mtime),
        )
        torn = sum(not (path / FILE).is_file() for path in stored)
        for path in stored[: max(torn, len(stored) - _MOST_KEPT + 1)]:
            shutil.rmtree(path, ignore_errors=True)
