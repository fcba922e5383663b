"""The systemd units, as systemd itself reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pate import errors
from tests.support.deploy_places import DEPLOY
from tests.support.needs import require

UNITS = DEPLOY / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
#: Most that `systemd-analyze security` may say of a unit: 0 is locked up, 10 is wide open.
MOST_EXPOSED = 1.5


def analyze(*arguments: str | Path) -> str:
    program = shutil.which("systemd-analyze")
    require(program is not None, "systemd-analyze")
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "unit",
    [*SERVICES, *sorted(UNITS.glob("*.timer")), *sorted(UNITS.glob("*.path"))],
    ids=lambda path: path.name,
)
def test_a_unit_is_understood_whole(unit: Path) -> None:
    said = analyze("verify", "--man=no", "--recursive-errors=no", unit)
    # The program lies where the operator installs it, and not here.
    odd = [line for line in said.splitlines() if not re.search(r"/opt/pate/\S+ is not exec", line)]
    assert odd == []


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_a_unit_is_locked_up(unit: Path) -> None:
    said = analyze("security", "--offline=true", unit)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert found, said
    assert float(found[1]) <= MOST_EXPOSED


def test_what_no_restart_can_mend_is_not_tried_again() -> None:
    """The same codes as in docs/operator.md; others are trouble that passes."""
    final = {
        each.exit_code
        for each in (
            errors.UsageError, errors.DataError, errors.SchemaError, errors.StateError,
            errors.BudgetError, errors.AccountingError, errors.LedgerError, errors.RefusedError,
        )
    }  # fmt: skip
    for name in ("pate-server.service", "pate-party@.service"):
        line = re.search(
            r"^RestartPreventExitStatus=(.*)$", (UNITS / name).read_text(), re.MULTILINE
        )
        assert line, name
        assert {int(code) for code in line[1].split()} == final
