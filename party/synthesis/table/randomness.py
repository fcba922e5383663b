"""Uniform random numbers for sampling synthetic rows and for private choices.

:class:`SystemRandomness` is the only source that a release may use. It takes a fresh key from the
operating system at every call and buffers nothing, so a forked process repeats nothing.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from pate.errors import UsageError
from pate.noise.lanes import uniform_below
from pate.noise.seed import seed_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Most numbers of one call: their bits are in memory together.
_MOST: Final = 2**28


class Randomness(Protocol):
    """A source of independent uniform numbers."""

    #: Whether releases may use it. False for seeded numbers.
    production: ClassVar[bool]

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return (count,) uniform words of 64 bits."""

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Return (count,) uniform multiples of 2^-53 in [0, 1)."""

    def below(self, bound: int, count: int) -> NDArray[np.intp]:
        """Return (count,) integers, exactly uniform in [0, bound), for 1 <= bound < 2^63."""


def require_production(randomness: Randomness) -> None:
    """Check that a release may use these numbers.

    Raises:
        UsageError: for a seeded source.
    """
    if randomness.production is not True:
        raise UsageError(
            "releases need random numbers from the operating system: a seeded source gives no protection"
        )


class _Uniform:
    """Uniform numbers derived from keys."""

    def _key(self) -> bytes:
        """Return 32 bytes, never the same twice."""
        raise NotImplementedError

    def words(self, count: int) -> NDArray[np.uint64]:
        """See :class:`Randomness`."""
        if not 0 <= count <= _MOST:
            raise UsageError(f"cannot draw {count} numbers at once: ask for 0 to {_MOST}")
        # Counter and nonce are zero: each key gives one stream.
        stream = Cipher(algorithms.ChaCha20(self._key(), bytes(16)), mode=None).encryptor()
        return np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8").astype(np.uint64)

    def uniform(self, count: int) -> NDArray[np.float64]:
        """See :class:`Randomness`."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bound: int, count: int) -> NDArray[np.intp]:
        """See :class:`Randomness`."""
        if not 1 <= bound < 2**63:
            raise UsageError(f"cannot draw numbers below {bound}")
        return uniform_below(bound, count, self.words).astype(np.intp)


class SystemRandomness(_Uniform):
    """Numbers from the operating system's CSPRNG, expanded by ChaCha20."""

    production: ClassVar[bool] = True

    def _key(self) -> bytes:
        return os.urandom(32)


class SimulatedRandomness(_Uniform):
    """Numbers derived from a seed. SIMULATION ONLY: they give a release no protection.

    Args:
        seed: any integer from 0 to 2^128 - 1.

    Raises:
        UsageError: for another seed.
    """

    production: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self._seed = b"pate simulated randomness" + seed_bytes(seed)
        self._requests = 0

    def _key(self) -> bytes:
        self._requests += 1
        return hashlib.sha256(self._seed + self._requests.to_bytes(16, "little")).digest()
