"""What a test needs of the machine, and which cases of a long table `make test` leaves to `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def others_slow(cases: Iterable[Any], first: Callable[[Any], bool]) -> list[Any]:
    """Return the cases of a parametrized test; those for which ``first`` is false are marked slow."""
    return [each if first(each) else _slow(each) for each in cases]


def _slow(case: Any) -> Any:
    return pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.slow)


def require(condition: bool, what: str) -> None:
    """Go on if ``condition`` holds; else skip, or fail if ``PATE_TEST_REQUIRE_ALL=1`` is set."""
    if condition:
        return
    if os.environ.get("PATE_TEST_REQUIRE_ALL") == "1":
        pytest.fail(f"this test needs {what}, and PATE_TEST_REQUIRE_ALL=1 allows no skipping")
    pytest.skip(f"needs {what}")
