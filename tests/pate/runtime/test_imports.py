"""Imported objects are exempt from garbage collection, and the rest is collected as before."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from pate.runtime.forked import importing


def test_garbage_is_collected_before_and_after_and_not_meanwhile() -> None:
    frozen = gc.get_freeze_count()
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen, "nothing was imported, so nothing is kept"
    with pytest.raises(ImportError), importing():
        raise ImportError
    assert gc.isenabled()


def test_what_was_imported_is_kept() -> None:
    code = (
        "import gc\n"
        "from pate.runtime.forked import importing\n"
        "with importing():\n"
        "    import numpy, http.server, asyncio, email.mime.text, xml.dom.minidom, unittest.mock\n"
        "print(gc.get_freeze_count() > 1000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
