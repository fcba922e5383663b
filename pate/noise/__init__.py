"""Exact noise from the operating system's randomness, shares of it, and seeded noise for simulation."""

from typing import Literal

#: Here, so that options may name the laws without the samplers.
NoiseLawName = Literal["gaussian", "geometric"]
