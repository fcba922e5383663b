"""The soak without Flower: draws a campaign and a fault, runs it, checks the result, and repeats."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from aggregator_server.session import is_over
from pate.data.values import Images
from pate.errors import PateError, StateError, UnreachableError
from simulation.datasets import write_inputs
from tests.soak.hosts import Host
from tests.soak.leaks import Held
from tests.soak.report import Result, tell
from tests.support.world.commands import KINDS, Play
from tests.support.world.sites import NAMES, TEACHERS, Sites

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.programs import Program

#: Queries of a campaign: more than one charge.
_QUERIES: Final = 80
#: The party that runs throughout.
_HOST: Final = NAMES[0]
#: Seconds for which a restarted party waits for a server that may have ended.
_ALONE_S: Final = 60
#: Seconds for one campaign, on a busy machine.
_WITHIN_S: Final = 600.0
_FAULTS: Final = (
    "none",
    "server failpoint",
    "party failpoint",
    "server kill",
    "party kill",
    "party stop",
)
_SERVER_POINTS: Final = (
    "public-set-stored", "ledger-drafted", "ledger-created", "entry-written:1", "entry-written:4",
    "roster-recorded", "opening-listed", "votes-arrived", "votes-recorded", "charge-recorded",
    "noise-drawn", "release-recorded", "round-ended", "campaign-closed", "farewell-said",
    "parties-told",
)  # fmt: skip
_PARTY_POINTS: Final = (
    "offer-recorded", "public-set-kept", "answer-recorded", "voting", "votes-cached", "shares-sent",
    "masked-sent", "survivors-signed", "opening-recorded", "party-entry-written:2",
)  # fmt: skip
_KINDS: Final = tuple(kind for kind in KINDS if kind != "neighbour")


@dataclass
class Soak:
    """Runs campaigns one after the other.

    Attributes:
        out: output folder; its content is removed.
        seed: of every choice.
        results: so far.
        wrong: failures, one line each.
    """

    out: Path
    seed: int
    results: list[Result] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def run(self, campaigns: int) -> None:
        self._deal()
        party, server = (
            Host("party", self.out / "party.log"),
            Host("server", self.out / "server.log"),
        )
        try:
            for number in range(1, campaigns + 1):
                result = self._play(number, party, server)
                self.results.append(result)
                print(
                    f"{number:4} {result.kind:11} {result.fault:34} {result.seconds:5.1f} s "
                    f"{result.labels:3} labels {result.wrong or 'verified'}",
                    flush=True,
                )
                if result.wrong:
                    self.wrong.append(f"campaign {number} (seed {self.seed}): {result.wrong}")
                    break  # later failures would be consequences of this one
        finally:
            party.end()
            server.end()

    def report(self) -> None:
        """Print the table, write JSON and picture, and count every leak as a failure."""
        self.wrong += tell(self.out, self.seed, self.results)

    # --- one campaign ------------------------------------------------------------------------

    def _play(self, number: int, party: Host, server: Host) -> Result:
        chance = random.Random(f"{self.seed} {number}")  # noqa: S311 - which fault comes is no secret
        kind, fault = chance.choice(_KINDS), chance.choice(_FAULTS)
        began = time.monotonic()
        folder = self.out / "campaigns" / f"{number:04d}"
        with Play(folder, self._sites, public=self._public(number), kind=kind) as play:
            result = Result(number, kind, fault, 0.0, 0, 0)
            try:
                self._with_fault(play, chance, result, party, server)
                self._check(play, result)
            except (AssertionError, TimeoutError, PateError) as error:
                result.wrong = f"{kind}, {fault}: {type(error).__name__}: {error}"
        result.seconds = round(time.monotonic() - began, 2)
        result.party, result.server = Held.by(party.pid), Held.by(server.pid)
        result.harness = Held.by(os.getpid())
        result.disk = sum(p.stat().st_size for p in (self.out / "homes").rglob("*") if p.is_file())
        if not result.wrong:
            shutil.rmtree(folder)
        return result

    def _with_fault(
        self, play: Play, chance: random.Random, result: Result, party: Host, server: Host
    ) -> None:
        on_server = result.fault.startswith("server")
        victim = chance.choice(NAMES[1:])
        point = None
        if result.fault.endswith("failpoint"):
            point = chance.choice(_SERVER_POINTS if on_server else _PARTY_POINTS)
            if result.kind == "gated" and point.startswith("entry-written"):
                point = "entry-written:2"
            result.fault += f" {'' if on_server else victim + ' '}{point}"
        served = None
        if on_server:
            served = play.serve(failpoint=point)
        else:
            server.begin(play.arguments())
        party.begin([
            str(self._sites.data(_HOST)), str(self._sites.home(_HOST)), str(TEACHERS),
            f"127.0.0.1:{play.port}",
        ])  # fmt: skip
        others = {
            name: play.party(
                name, "--max-wait", "600",
                failpoint=None if on_server or name != victim else point,
            )
            for name in NAMES[1:]
        }  # fmt: skip
        student = play.student() if result.kind == "interactive" else None
        if served is not None:
            self._kill_server(play, chance, result, served)
        elif result.fault.startswith("party"):
            others[victim] = self._harm_party(play, chance, result, others[victim], victim)
        if served is None and (wrong := server.done(_WITHIN_S)):
            raise AssertionError(f"the server ended with {wrong}")
        for name, each in others.items():
            if each.ends(0, *([UnreachableError.exit_code] if name == victim else [])):
                self._check_alone(play, result)
        if student is not None:
            student.ends(0)
        if wrong := party.done(_WITHIN_S):
            raise AssertionError(f"{_HOST} ended with {wrong}")

    def _kill_server(
        self, play: Play, chance: random.Random, result: Result, served: Program
    ) -> None:
        if result.fault == "server kill":
            after = chance.uniform(0.1, 3.0)
            served.pause(after)
            served.send(signal.SIGKILL)
            result.fault += f" at {after:.2f} s"
        code = served.ends(0, -signal.SIGKILL)
        before = play.stand()
        if code != 0:
            result.kills += 1
            play.serve().ends(StateError.exit_code if is_over(play.place) else 0)
        after_it = play.stand()
        assert after_it is not None, "there is no ledger"
        if before is not None:
            after_it.follows(before)

    def _harm_party(
        self, play: Play, chance: random.Random, result: Result, victim: Program, name: str
    ) -> Program:
        after = chance.uniform(0.1, 2.0)
        if result.fault == "party stop":
            victim.pause(after)
            victim.send(signal.SIGSTOP)
            victim.pause(chance.uniform(0.2, 3.0))
            victim.send(signal.SIGCONT)
            result.fault += f" {name} at {after:.2f} s"
            return victim
        if result.fault == "party kill":
            victim.pause(after)
            victim.send(signal.SIGKILL)
            result.fault += f" {name} at {after:.2f} s"
        if victim.ends(0, -signal.SIGKILL) == 0:
            return victim  # it finished before the fault
        result.kills += 1
        # It may have been killed at the end, which is not repeated.
        return play.party(name, "--max-wait", str(_ALONE_S))

    @staticmethod
    def _check_alone(play: Play, result: Result) -> None:
        """Check that a party without a server was killed, and that the campaign had ended by then."""
        stand = play.stand()
        assert result.kills > 0, "a party that nobody killed gave up"
        assert stand is not None
        assert stand.phase == "finished", "a party gave up, and the campaign was not over"

    def _check(self, play: Play, result: Result) -> None:
        stand = play.stand()
        assert stand is not None, "there is no ledger"
        assert stand.phase == "finished", f"the campaign is {stand.phase}"
        assert stand.vain <= result.kills, f"{stand.vain} charges in vain"
        play.check_parties()
        result.labels = len(stand.labels)
        if result.kind == "interactive":
            told = json.loads((play.folder / "labels.json").read_text())["labels"]
            assert {query: label for query, label, *_ in told} == stand.labels, (
                "the student differs"
            )
        left = list(play.folder.rglob(".*"))
        assert not left, f"drafts were left: {left}"

    # --- data --------------------------------------------------------------------------------

    def _deal(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        (self.out / "campaigns").mkdir(parents=True)
        self._sites = Sites(self.out, NAMES, self.seed).deal()

    def _public(self, number: int) -> Path:
        """Write a new public set: digits with some noise on each pixel."""
        rng = np.random.default_rng([self.seed, number])
        left = self._sites.left()
        inputs = left.take(rng.choice(len(left), _QUERIES, replace=False).tolist()).inputs
        assert isinstance(inputs, Images)
        noise = rng.integers(0, 8, inputs.pixels.shape, dtype=np.uint8)
        pixels = np.where(inputs.pixels < 248, inputs.pixels + noise, inputs.pixels)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.out / "public")
        return write_inputs(self.out / "public.npz", Images(pixels.astype(np.uint8)))
