"""The seed of a simulation; no sampler is here, so that code of real releases may check one."""

from __future__ import annotations

from pate.errors import UsageError


def seed_bytes(seed: int) -> bytes:
    """Return the seed of a simulation as 16 bytes.

    Raises:
        UsageError: unless it is from 0 to 2^128 - 1.
    """
    if not 0 <= seed < 2**128:
        raise UsageError(f"a seed must be between 0 and 2^128 - 1, got {seed}")
    return seed.to_bytes(16, "little")
