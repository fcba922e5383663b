"""A value that must be there: most of what may be absent is present in a test."""

from __future__ import annotations

from typing import TypeVar

_T = TypeVar("_T")


def there(value: _T | None) -> _T:
    assert value is not None
    return value
