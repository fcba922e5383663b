"""Exact noise from the operating system's randomness, and shares of it."""

from typing import Literal

#: Here, so that options may name the laws without the samplers.
NoiseLawName = Literal["gaussian", "geometric"]
