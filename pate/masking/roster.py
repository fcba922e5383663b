"""The announced keys of an attempt: their signatures and common digest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pate.errors import ProtocolError, QuorumError
from pate.masking.encoding import digest, encode
from pate.masking.graph import Graph, graph_of
from pate.masking.keys import commitment
from pate.masking.messages import SIGNATURE_BYTES, Keys, check_bytes
from pate.masking.proofs.outline import Outline, root_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pate.masking.context import Context
    from pate.masking.keys import KnownKeys


@dataclass(frozen=True, eq=False)
class Announced:
    """The keys of an attempt, each signed by its party: U1.

    Attributes:
        context: of the attempt.
        keys: by name, sorted by it: of all, or of those that a party masks with and itself.
        outline: who announced keys, with hashes of those that ``keys`` lacks; None: it lacks none.

    Raises:
        QuorumError: for fewer than t parties.
        ProtocolError: for a party outside the roster, a signature that does not verify, a
            repeated key, which names the party; and for hashes that do not fit the keys.
    """

    context: Context
    keys: Mapping[str, Keys]
    outline: Outline | None = None

    def __post_init__(self) -> None:
        self.context.check_members(self.keys, "a list of keys")
        self.context.check_members(self.names, "a list of keys")
        if list(self.names) != sorted(set(self.names)):
            raise ProtocolError("those that announced keys are not sorted, or one is there twice")
        if len(self.names) < self.context.threshold:
            raise QuorumError(
                f"{len(self.names)} parties announced keys, {self.context.threshold} are needed"
            )
        seen: dict[bytes, str] = {}
        for name in sorted(self.keys):
            keys = self.keys[name]
            check_keys(self.context, name, keys)
            for key in (keys.mask_key, keys.share_key):
                if key in seen:
                    raise ProtocolError(f"{seen[key]} and {name} announced the same key")
                seen[key] = name
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

    @property
    def threshold(self) -> int:
        """Number of shares that reconstruct a secret."""
        return self.graph.threshold

    def committed(self, name: str, seed: bytes) -> bytes:
        """Return the commitment to ``seed`` if it is that of ``name``, 32 bytes."""
        return commitment(self.context.digest, name, seed)


def sign_keys(context: Context, name: str, identity: Ed25519PrivateKey, keys: Keys) -> Keys:
    """Return the keys of ``name``, signed by its identity."""
    return Keys(
        keys.mask_key,
        keys.share_key,
        keys.seed_commitment,
        identity.sign(_signed_keys(context, name, keys)),
    )


def check_keys(context: Context, name: str, keys: Keys) -> None:
    """Check the keys that one party announced.

    Raises:
        ProtocolError: if a size is wrong, both keys are equal, or the signature is not by the
            party's identity over these keys in this context.
    """
    if not isinstance(keys, Keys):
        raise ProtocolError(f"{name} announced something that is not its keys")
    keys.check(name)
    if keys.mask_key == keys.share_key:
        raise ProtocolError(f"{name} announced one key for two uses")
    _verify(
        context,
        name,
        keys.signature,
        _signed_keys(context, name, keys),
        f"the keys of {name} are not signed by its identity for this attempt",
    )


def survivors_to_sign(announced: KnownKeys, survivors: Sequence[str]) -> bytes:
    """Return the bytes to sign for a sorted list of survivors.

    They include the digest of the announced keys: a party that reveals shares knows that those who
    signed saw the same keys, and so the same graph.
    """
    names = encode("names", *(name.encode() for name in survivors))
    return encode("signed survivors", announced.context.digest, announced.digest, names)


def check_survivors(context: Context, name: str, signed: bytes, signature: bytes) -> None:
    """Check a signature over a list of survivors.

    Args:
        context: of the attempt.
        name: who should have signed.
        signed: :func:`survivors_to_sign` of the list.
        signature: 64 bytes.

    Raises:
        ProtocolError: if it is not by the identity of ``name`` over this list.
    """
    check_bytes(signature, SIGNATURE_BYTES, f"the signature of {name}")
    otherwise = f"the list of survivors is not signed by {name}: it saw another list, or other keys"
    _verify(context, name, signature, signed, otherwise)


def _verify(context: Context, name: str, signature: bytes, signed: bytes, otherwise: str) -> None:
    verify(context.identities[name], signature, signed, otherwise)


def verify(identity: bytes, signature: bytes, signed: bytes, otherwise: str) -> None:
    """Check an Ed25519 signature.

    Raises:
        ProtocolError: if it does not verify; ``otherwise`` is the message.
    """
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, signed)
    except (InvalidSignature, ValueError) as error:  # ValueError: an identity that is not a point
        raise ProtocolError(otherwise) from error


def _signed_keys(context: Context, name: str, keys: Keys) -> bytes:
    return encode(
        "signed keys",
        context.digest,
        name.encode(),
        keys.mask_key,
        keys.share_key,
        keys.seed_commitment,
    )
