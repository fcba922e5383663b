"""Encoders at a party that has no folder of its own: received in pieces from a server, and kept.

Nothing is taken before the site's policy has accepted the encoder by its digest, and nothing is written
before the whole has that digest and its graph is one that may run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Final

from party.voting.received.pieces import Pieces
from pate.encoders.description import FILE
from pate.encoders.encoder import opened_files
from pate.encoders.graph import checked_graph
from pate.errors import DataError
from pate.runtime.home import private_directory, write_file
from protos.encoder_files import read_encoder, read_first_piece

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pate.encoders.description import Description
    from pate.encoders.reading import Reader
    from protos.pate.v1 import vote_pb2

#: Most received encoders on disk, the latest ones. They may be a gigabyte each.
_MOST_KEPT: Final = 4


class Encoders:
    """Finds or receives the encoder of a campaign.

    Args:
        folder: of received ones, a folder each.
        opened: opens the encoder of a folder, after a trial of one input.
    """

    def __init__(self, folder: Path, opened: Callable[[Path], Reader]) -> None:
        self._folder = folder
        self._opened = opened
        self._pieces = Pieces()
        #: The last one used.
        self._held: Reader | None = None

    def find(self, digest: str) -> Reader | None:
        """Return the encoder of a digest, None if it must be sent.

        Raises:
            DataError: if it cannot be run.
        """
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
        """Process one piece, in any order; return the description once all is checked and stored.

        Raises:
            ProtocolError: if it differs from the announced encoder.
            DataError: if its graph may not run.
            DiskError: if it cannot be stored.
        """
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
