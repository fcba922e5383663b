"""A page in a browser, by token, and the files that all pages have.

Its server has limits on connections, sizes and times (:mod:`pate.listening`).
"""

from importlib import resources


def static(name: str, package: str = "pate.page") -> bytes:
    """Return a file of the folder ``static`` of a package."""
    return (resources.files(package) / "static" / name).read_bytes()
