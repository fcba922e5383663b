"""Seeded noise, for tests only. It gives a release no protection.

Anyone who knows the seed can remove the noise. The server refuses it, since ``production`` is
False.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, ClassVar

from pate.noise.exact import discrete_gaussian, discrete_laplace, discrete_laplace_share
from pate.noise.lanes import Lanes

if TYPE_CHECKING:
    from fractions import Fraction

    from pate.noise.lanes import Integers


class SimulatedNoise:
    """The samplers of :mod:`pate.noise.exact` on bits that follow from a seed. FOR TESTS ONLY.

    The bits are SHAKE-128 of the seed, from 0 to 2^128 - 1, and the number of the request, so the draws of a
    seed are the same on every machine and with every version of numpy.
    """

    production: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self._key = b"pate simulated noise" + seed.to_bytes(16, "little")
        self._requests = 0

    def gaussian(self, sigma: Fraction, count: int) -> Integers:
        """See :func:`pate.noise.exact.discrete_gaussian`."""
        return discrete_gaussian(sigma, count, self._bits)

    def laplace(self, scale: Fraction, count: int) -> Integers:
        """See :func:`pate.noise.exact.discrete_laplace`."""
        return discrete_laplace(scale, count, self._bits)

    def laplace_share(self, scale: Fraction, shares: int, count: int) -> Integers:
        """See :func:`pate.noise.exact.discrete_laplace_share`."""
        return discrete_laplace_share(scale, shares, count, self._bits)

    @property
    def lanes(self) -> Lanes:
        """See :class:`pate.noise.exact.Randomness`."""
        return Lanes(self._bits)

    def _bits(self, number: int) -> bytes:
        self._requests += 1
        block = self._key + self._requests.to_bytes(16, "little")
        return hashlib.shake_128(block).digest(number)
