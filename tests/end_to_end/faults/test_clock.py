"""A wall clock that jumps by a day, forwards or back, at the server or at a party."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import read_campaign
from aggregator_server.results.report import LEDGER_FILE, verify
from party.ledger.ledger import PartyLedger
from pate.votes import Histogram
from tests.support.needs import require
from tests.support.server.campaigns import CLASSES, NAMES, make_parties, make_spec, make_votes
from tests.support.world.commands import Campaign
from tests.support.world.sites import Sites

if TYPE_CHECKING:
    from pathlib import Path

_MECHANISM: Final = ("--aggregator", "gnmax", "--sigma2", "1")
_DAY_S: Final = 86_400

#: Moves the wall clock of a process, and no other clock: libfaketime of Debian spoils sleeping.
_SHIM: Final = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    char text[32] = {0};
    int file = open(getenv("TEST_CLOCK"), O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *kept) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (kept) *kept = exact.tv_sec;
    return exact.tv_sec;
}
"""


class Clock:
    """The wall clock of processes started with its prefix; it runs, and can be set."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._file, source, shim = folder / "clock", folder / "clock.c", folder / "clock.so"
        self.set(0)
        compiler = shutil.which("cc")
        require(compiler is not None, "a C compiler")
        source.write_text(_SHIM)
        subprocess.run([str(compiler), "-O2", "-shared", "-fPIC", "-o", shim, source], check=True)
        self.prefix = ("env", f"LD_PRELOAD={shim}", f"TEST_CLOCK={self._file}")
        shown = subprocess.run(
            [*self.prefix, sys.executable, "-c", "import time; print(time.time())"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert abs(float(shown.stdout) - time.time()) < _DAY_S / 2
        self.set(_DAY_S)
        shown = subprocess.run(
            [*self.prefix, sys.executable, "-c", "import time; print(time.time())"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert float(shown.stdout) - time.time() > _DAY_S / 2
        self.set(0)

    def set(self, seconds: int) -> None:
        """Set its offset from the true time, in seconds; negative: behind."""
        draft = self._file.with_suffix(".new")
        draft.write_text(f"{seconds:+d}\n")
        draft.replace(self._file)


@pytest.mark.slow
def test_the_clocks_of_a_server_and_of_a_party_jump(sites: Sites, tmp_path: Path) -> None:
    """A party says how far its clock is off, and the campaign continues once all clocks are correct."""
    ours, theirs = Clock(tmp_path / "server"), Clock(tmp_path / "party")
    with Campaign(tmp_path / "campaign", sites) as campaign:
        campaign.prefix = ours.prefix
        server = campaign.serve(sites.public(1050, 20), *_MECHANISM, parties="north,south")
        campaign.prefix = theirs.prefix
        north = campaign.party("north")
        server.says("north joined")
        for seconds, explained in (
            (-_DAY_S, "24 hours behind that of"),
            (7, " s ahead of that of"),
        ):
            theirs.set(seconds)
            north.says(explained)
        assert "refuses more than 5 s ahead and 305 s behind" in north.text
        theirs.set(0)
        ours.set(_DAY_S)
        campaign.prefix = ()
        south = campaign.party("south")
        south.says("24 hours behind")
        ours.set(0)
        for program in (server, north, south):
            program.ends(0)
        assert campaign.verified()["labels_released"] == 20
        PartyLedger(sites.home("north") / "ledger.db", read_only=True).verify()


def test_entries_stay_in_order_when_the_clock_goes_back(tmp_path: Path) -> None:
    """The order is that of the chain; times are those of the clock."""
    start = datetime(2030, 1, 8, 12, tzinfo=UTC)
    times = iter([start, start + timedelta(days=1), start, start - timedelta(days=1)])
    with Ledger.create(tmp_path / LEDGER_FILE, make_spec(), clock=lambda: next(times)) as ledger:
        ledger.record_roster(make_parties(), CLASSES)
        votes = make_votes(200)
        ledger.record_votes(0, Histogram(votes[:100], 100), NAMES)
        ledger.record_votes(100, Histogram(votes[100:], 100), NAMES)
    with Ledger.open(tmp_path / LEDGER_FILE) as ledger:
        assert not ledger.state().missing_votes
    _, held = read_campaign(tmp_path / LEDGER_FILE)
    assert [entry.seq for entry in held] == [1, 2, 3, 4]
    stamps = [entry.written_at for entry in held]
    assert stamps != sorted(stamps)
    assert verify(tmp_path, None)["phase"] == "labelling"
