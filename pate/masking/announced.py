"""What the parties of a sum announced and signed: keys with their digest and hash tree, and survivors.

The tree is over the parties in the order of their names: a party that masks with k neighbours gets
their keys and the hashes of the rest, some k log(n/k) of them, and finds the root that all others
find. Two sets of keys with one root would be a collision of SHA-256.

Source of the tree: Merkle, "A certified digital signature", CRYPTO 1989; the shape for any number of
leaves is that of RFC 6962, section 2.1.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from pate.errors import ProtocolError, QuorumError
from pate.masking.encoding import HASH_BYTES, SIGNATURE_BYTES, check_bytes, digest, encode
from pate.masking.graph import Graph, graph_of
from pate.masking.keys import Keys, check_signature, check_unlike, commitment, unseal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.masking.context import Context
    from pate.masking.keys import KeyPair


class KnownKeys(Protocol):
    """The keys of all parties of a sum, from this attempt or from bundles made ahead."""

    @property
    def context(self) -> Context:
        """Of the attempt."""

    @property
    def keys(self) -> Mapping[str, Keys]:
        """By name."""

    @property
    def digest(self) -> bytes:
        """Of the context and all keys, 32 bytes."""

    @property
    def graph(self) -> Graph:
        """Who masks with whom, and how many shares reconstruct a secret."""

    def committed(self, name: str, seed: bytes) -> bytes:
        """Return the commitment to ``seed`` if it is that of ``name``, 32 bytes."""

    def box(self, sender: str, recipient: str) -> bytes:
        """Return what a box is bound to, for its key and as associated data."""


@dataclass(frozen=True, eq=False)
class Announced:
    """The keys of an attempt, each signed by its party: U1."""

    context: Context  # of the attempt
    # by name, sorted by it: of all, or of those that a party masks with and itself
    keys: Mapping[str, Keys]
    # who announced keys, with hashes of those that ``keys`` lacks; None: it lacks none
    outline: Outline | None = None

    def __post_init__(self) -> None:
        self.context.roster.check_members(self.keys, "a list of keys")
        self.context.roster.check_members(self.names, "a list of keys")
        if list(self.names) != sorted(set(self.names)):
            raise ProtocolError("those that announced keys are not sorted, or one is there twice")
        if len(self.names) < self.context.roster.threshold:
            raise QuorumError(
                f"{len(self.names)} parties announced keys, {self.context.roster.threshold} are needed"
            )
        for name in sorted(self.keys):
            check_keys(self.context, name, self.keys[name])
        check_unlike(self.keys)
        object.__setattr__(self, "keys", {name: self.keys[name] for name in sorted(self.keys)})
        _ = self.digest  # which checks that the hashes fit

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all that announced keys, sorted."""
        return tuple(sorted(self.keys)) if self.outline is None else self.outline.names

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over names and keys of all, without signatures, 32 bytes."""
        root = root_of(self.outline or Outline(self.names), self.keys)
        names = encode("names", *(name.encode() for name in self.names))
        return digest("announced", self.context.digest, names, root)

    @cached_property
    def graph(self) -> Graph:
        """The masking graph."""
        return graph_of(self.context, self.digest, self.names)

    def committed(self, name: str, seed: bytes) -> bytes:
        """Return the commitment to ``seed`` if it is that of ``name``, 32 bytes."""
        return commitment(self.context.digest, name, seed)

    def box(self, sender: str, recipient: str) -> bytes:
        """Return what a box is bound to, for its key and as associated data."""
        return encode(
            "box",
            self.context.digest,
            self.digest,
            sender.encode(),
            self.keys[sender].share_key,
            recipient.encode(),
            self.keys[recipient].share_key,
        )


def open_boxes(
    known: KnownKeys, recipient: str, own: KeyPair, boxes: Mapping[str, bytes]
) -> dict[str, tuple[int, int]]:
    """Return the shares (of the seed, of the mask key) that others sealed for a party, by sender."""
    return {
        sender: unseal(
            own,
            known.keys[sender].share_key,
            known.box(sender, recipient),
            boxes[sender],
            sender=sender,
            recipient=recipient,
        )
        for sender in sorted(boxes)
    }


def sign_keys(context: Context, name: str, identity: Ed25519PrivateKey, keys: Keys) -> Keys:
    """Return the keys of ``name``, signed by its identity."""
    return replace(keys, signature=identity.sign(_signed_keys(context, name, keys)))


def check_keys(context: Context, name: str, keys: Keys) -> None:
    """Check the keys that one party announced."""
    if not isinstance(keys, Keys):
        raise ProtocolError(f"{name} announced something that is not its keys")
    keys.check(name)
    check_signature(
        context.roster.identities[name],
        keys.signature,
        _signed_keys(context, name, keys),
        f"the keys of {name} are not signed by its identity for this attempt",
    )


def _signed_keys(context: Context, name: str, keys: Keys) -> bytes:
    return encode("signed keys", context.digest, name.encode(), *keys.parts[:-1])


# --- the list of survivors --------------------------------------------------------------------


def survivors_to_sign(known: KnownKeys, survivors: Sequence[str]) -> bytes:
    """Return the bytes to sign for a sorted list of survivors.

    They include the digest of the announced keys: a party that reveals shares knows that those who
    signed saw the same keys, and so the same graph.
    """
    names = encode("names", *(name.encode() for name in survivors))
    return encode("signed survivors", known.context.digest, known.digest, names)


def check_survivors(context: Context, name: str, signed: bytes, signature: bytes) -> None:
    """Check a signature over a list of survivors."""
    check_bytes(signature, SIGNATURE_BYTES, f"the signature of {name}")
    otherwise = f"the list of survivors is not signed by {name}: it saw another list, or other keys"
    check_signature(context.roster.identities[name], signature, signed, otherwise)


def check_consents(
    known: KnownKeys, survivors: Sequence[str], signatures: Mapping[str, bytes]
) -> None:
    """Check that enough of those who sign for all signed a list of survivors.

    Raises:
        ProtocolError: if one is not by a survivor that signs for all, or not over this list.
        QuorumError: for fewer than reconstruct a secret.
    """
    graph, signed = known.graph, survivors_to_sign(known, survivors)
    if len(signatures) < graph.threshold:
        raise QuorumError(
            f"{len(signatures)} parties signed the list of survivors, {graph.threshold} are needed"
        )
    alive = frozenset(survivors)
    for name in sorted(signatures):
        if name not in alive:
            raise ProtocolError(f"{name} signed a list of survivors that it is not on")
        if name not in graph.signers:
            raise ProtocolError(f"the signature of {name}, which is not asked for in this attempt")
        check_survivors(known.context, name, signed, signatures[name])


# --- the tree over all keys -------------------------------------------------------------------


@dataclass(frozen=True)
class Outline:
    """Who announced keys, and hashes in place of the keys that are left out."""

    names: tuple[str, ...]  # of all parties that announced keys, sorted
    # of the subtrees without any key that is sent, from the first name on, 32 bytes each
    hashes: tuple[bytes, ...] = ()


class KeyTree:
    """The tree over the keys of all parties, at the server."""

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
    return digest("announced keys", name.encode(), *keys.parts[:-1])


def root_of(outline: Outline, keys: Mapping[str, Keys]) -> bytes:
    """Return the root of the tree over the keys of all, 32 bytes."""
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
