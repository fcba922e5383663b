"""A commitment to the keys of all parties, and proof that the keys of some are in it.

A hash tree over the parties in the order of their names: a party that masks with k neighbours gets
their keys and the hashes of the rest, some k log(n/k) of them, and finds the root that all others
find. Two sets of keys with one root would be a collision of SHA-256.

Source: Merkle, "A certified digital signature", CRYPTO 1989; the shape for any number of leaves is
that of RFC 6962, section 2.1.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pate.errors import ProtocolError
from pate.masking.encoding import digest
from pate.masking.messages import HASH_BYTES, check_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pate.masking.messages import Keys


@dataclass(frozen=True)
class Outline:
    """Who announced keys, and hashes in place of the keys that are left out.

    Attributes:
        names: of all parties that announced keys, sorted.
        hashes: of the subtrees without any key that is sent, from the first name on, 32 bytes each.
    """

    names: tuple[str, ...]
    hashes: tuple[bytes, ...] = ()


class KeyTree:
    """The tree over the keys of all parties, at the server.

    Args:
        keys: by name.
    """

    def __init__(self, keys: Mapping[str, Keys]) -> None:
        self.names = tuple(sorted(keys))
        self._nodes: dict[tuple[int, int], bytes] = {}
        self._leaves = [leaf(name, keys[name]) for name in self.names]
        self._grow(0, len(self.names))

    def outline(self, shown: Sequence[str]) -> Outline:
        """Return the outline for who is sent the keys of ``shown``; each of them is in the tree."""
        places = sorted(bisect_left(self.names, name) for name in shown)
        hashes: list[bytes] = []

        def walk(low: int, high: int, low_shown: int, high_shown: int) -> None:
            if low_shown == high_shown:
                hashes.append(self._nodes[low, high])
            elif high - low > 1:
                middle = _split(low, high)
                middle_shown = bisect_left(places, middle, low_shown, high_shown)
                walk(low, middle, low_shown, middle_shown)
                walk(middle, high, middle_shown, high_shown)

        walk(0, len(self.names), 0, len(places))
        return Outline(self.names, tuple(hashes))

    def _grow(self, low: int, high: int) -> bytes:
        if high - low == 1:
            node = self._leaves[low]
        else:
            middle = _split(low, high)
            node = _joined(self._grow(low, middle), self._grow(middle, high))
        self._nodes[low, high] = node
        return node


def leaf(name: str, keys: Keys) -> bytes:
    """Return the hash of one party's keys, without their signature, 32 bytes."""
    return digest(
        "announced keys", name.encode(), keys.mask_key, keys.share_key, keys.seed_commitment
    )


def root_of(outline: Outline, keys: Mapping[str, Keys]) -> bytes:
    """Return the root of the tree over the keys of all, 32 bytes.

    Args:
        outline: its names sorted, one at least.
        keys: of some of these parties, by name.

    Raises:
        ProtocolError: if there are too few or too many hashes for these keys, or one has another
            size, or keys are of a party that the outline has not.
    """
    strangers = sorted(keys.keys() - set(outline.names))
    if strangers:
        raise ProtocolError(f"keys of {strangers[0]}, which is not among those that announced some")
    for each in outline.hashes:
        check_bytes(each, HASH_BYTES, "a hash of keys")
    places = [place for place, name in enumerate(outline.names) if name in keys]
    rest = iter(outline.hashes)

    def climb(low: int, high: int, low_shown: int, high_shown: int) -> bytes:
        if low_shown == high_shown:
            node = next(rest, None)
            if node is None:
                raise ProtocolError("a list of keys with too few hashes of the keys left out")
            return node
        if high - low == 1:
            return leaf(outline.names[low], keys[outline.names[low]])
        middle = _split(low, high)
        middle_shown = bisect_left(places, middle, low_shown, high_shown)
        return _joined(
            climb(low, middle, low_shown, middle_shown),
            climb(middle, high, middle_shown, high_shown),
        )

    root = climb(0, len(outline.names), 0, len(places))
    if next(rest, None) is not None:
        raise ProtocolError("a list of keys with more hashes than keys are left out")
    return root


def _joined(left: bytes, right: bytes) -> bytes:
    return digest("announced node", left, right)


def _split(low: int, high: int) -> int:
    """Return where a range of two or more leaves is split: after the most that is a power of two."""
    return low + (1 << ((high - low - 1).bit_length() - 1))
