"""Some parties of a roster as a bit set: one bit for each, in the order of the roster.

Party i, from 0, is bit i % 8 of byte i // 8, the least significant bit first. The bits beyond the
roster are 0, so every set has one form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protos.bounds import check, length

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def bits_from_names(names: Collection[str], roster: Sequence[str]) -> bytes:
    """Return the bit set of parties, each of which is on the roster."""
    some = frozenset(names)
    bits = sum(1 << place for place, name in enumerate(roster) if name in some)
    return bits.to_bytes(_bytes(roster), "little")


def names_from_bits(bits: bytes, roster: Sequence[str], what: str) -> tuple[str, ...]:
    """Return the parties of a bit set, in the order of the roster."""
    length(bits, _bytes(roster), what)
    number = int.from_bytes(bits, "little")
    check(number < 1 << len(roster), f"{what} has more parties than the roster")
    return tuple(name for place, name in enumerate(roster) if number >> place & 1)


def _bytes(roster: Sequence[str]) -> int:
    return (len(roster) + 7) // 8
