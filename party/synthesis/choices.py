"""Choices of a release of synthetic rows."""

from __future__ import annotations

from typing import Literal

#: Generators of rows, the default first.
Method = Literal["l1", "cfs"]
Release = Literal["seedless", "seeded"]
