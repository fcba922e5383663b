"""Requirements of a test on the machine: without them it is skipped, or fails if all are required."""

from __future__ import annotations

import os

import pytest


def require(condition: bool, what: str) -> None:
    """Go on if ``condition`` holds; else skip, or fail if ``PATE_TEST_REQUIRE_ALL=1`` is set."""
    if condition:
        return
    if os.environ.get("PATE_TEST_REQUIRE_ALL") == "1":
        pytest.fail(f"this test needs {what}, and PATE_TEST_REQUIRE_ALL=1 allows no skipping")
    pytest.skip(f"needs {what}")
