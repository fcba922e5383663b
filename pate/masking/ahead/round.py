"""A round: one sum, with one bundle of each party that takes part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pate.errors import ProtocolError, QuorumError
from pate.masking.encoding import digest, encode, whole
from pate.masking.messages import SIGNATURE_BYTES, Keys, check_bytes
from pate.masking.roster import check_survivors, survivors_to_sign, verify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.masking.ahead.bundle import Bundle
    from pate.masking.ahead.terms import BundleRoster
    from pate.masking.context import Context


@dataclass(frozen=True, eq=False)
class Round:
    """The bundles of a sum, each signed by its owner.

    Attributes:
        context: of the attempt; its votes are not proved.
        roster: that all bundles are made for.
        bundles: by owner, sorted by it: the parties that take part.
        consent: whether the parties sign the list of survivors before they unmask.

    Raises:
        QuorumError: for fewer than t parties.
        ProtocolError: for a roster that does not fit, votes that are to be proved, a bundle of
            another roster or owner, a signature that does not verify, or a repeated key.
    """

    context: Context
    roster: BundleRoster
    bundles: Mapping[str, Bundle]
    consent: bool

    def __post_init__(self) -> None:
        self.roster.check_fits(self.context)
        if self.context.proofs is not None:
            raise ProtocolError("votes are not proved in a sum whose keys come ahead")
        if len(self.bundles) < self.context.threshold:
            raise QuorumError(
                f"{len(self.bundles)} parties take part, {self.context.threshold} are needed"
            )
        seen: dict[bytes, str] = {}
        for name in sorted(self.bundles):
            bundle = self.bundles[name]
            if bundle.owner != name:
                raise ProtocolError(f"{bundle} is listed for {name!r:.80}")
            bundle.check(self.roster)
            for key in (bundle.keys.mask_key, bundle.keys.share_key):
                if key in seen:
                    raise ProtocolError(f"the bundles of {seen[key]} and {name} have the same key")
                seen[key] = name
        object.__setattr__(
            self, "bundles", {name: self.bundles[name] for name in sorted(self.bundles)}
        )

    @cached_property
    def keys(self) -> dict[str, Keys]:
        """Keys by name."""
        return {name: bundle.keys for name, bundle in self.bundles.items()}

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of context, roster and bundles, 32 bytes; bound to every mask and signature."""
        return digest(
            "ahead",
            self.context.digest,
            self.roster.digest,
            whole(self.consent),
            *(bundle.digest for bundle in self.bundles.values()),
        )

    @property
    def threshold(self) -> int:
        """Number of shares that reconstruct a secret: t."""
        return self.context.threshold

    def committed(self, name: str, seed: bytes) -> bytes:
        """Return the commitment to ``seed`` if it is that of the bundle of ``name``."""
        return self.bundles[name].committed(seed)

    def sign_masked(self, name: str, identity: Ed25519PrivateKey) -> bytes:
        """Return a party's signature that it has masked its votes in this round, 64 bytes."""
        return identity.sign(self._masked_to_sign(name))

    def check_masked(self, name: str, signature: bytes) -> None:
        """Check a party's signature that it has masked its votes in this round.

        Raises:
            ProtocolError: if it is not of the round, or another one is signed.
        """
        if name not in self.bundles:
            raise ProtocolError(f"{name!r:.80} does not take part in this round")
        check_bytes(signature, SIGNATURE_BYTES, f"the signature of {name}")
        verify(
            self.context.identities[name],
            signature,
            self._masked_to_sign(name),
            f"{name} did not sign that it masked its votes in this round: it was shown another one",
        )

    def survivors(self, own: str, masked: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return the names on a list of survivors, sorted, after checking all that a party can.

        Args:
            own: name of the party that checks.
            masked: by survivor, its signature that it masked its votes.

        Raises:
            ProtocolError: for a party that did not sign, or if this party is not on it.
            QuorumError: for fewer than t.
        """
        if len(masked) < self.threshold:
            raise QuorumError(
                f"{len(masked)} parties survive, {self.threshold} are needed for a sum"
            )
        for name in sorted(masked):
            self.check_masked(name, masked[name])
        if own not in masked:
            raise ProtocolError(f"{own} is asked to unmask a sum without it")
        return tuple(sorted(masked))

    def survivors_to_sign(self, survivors: Sequence[str]) -> bytes:
        """Return the bytes to sign for a sorted list of survivors."""
        return survivors_to_sign(self, survivors)

    def check_consents(self, survivors: Sequence[str], consents: Mapping[str, bytes]) -> None:
        """Check that t survivors signed their list, or none did if the round takes no consent.

        Raises:
            ProtocolError: if one is not by a survivor, not over this list, or not wanted.
            QuorumError: for fewer than t.
        """
        if not self.consent:
            if consents:
                raise ProtocolError("signatures of the list of survivors, which are not taken")
            return
        if len(consents) < self.threshold:
            raise QuorumError(
                f"{len(consents)} parties signed the list of survivors, {self.threshold} are needed"
            )
        to_sign = self.survivors_to_sign(survivors)
        for name in sorted(consents):
            if name not in survivors:
                raise ProtocolError(f"{name} signed a list of survivors that it is not on")
            check_survivors(self.context, name, to_sign, consents[name])

    def _masked_to_sign(self, name: str) -> bytes:
        return encode("signed masked ahead", self.context.digest, self.digest, name.encode())
