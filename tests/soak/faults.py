"""Random faults of a campaign, and their injection into its processes."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aggregator_server.session import is_over
from pate.errors import QuorumError
from simulation.programs import children

if TYPE_CHECKING:
    import random

    from tests.soak.enrolled import Stage
    from tests.support.world.stand import Stand

#: Share of faults before the first charge.
_EARLY: Final = 0.2
#: Share of stops longer than the time after which Flower considers a node disconnected.
_LONG: Final = 0.06
_ACTS: Final = {
    ("server", "kill"): 8, ("server", "stop"): 4, ("party", "kill"): 4, ("party", "stop"): 3,
    ("SuperLink", "kill"): 2, ("SuperLink", "stop"): 1, ("SuperNode", "kill"): 2,
    ("SuperNode", "stop"): 1,
}  # fmt: skip
_OF_STUDENT: Final = {("student", "kill"): 5, ("student", "stop"): 3}
#: Faults of others while the server is down or stopped: in more than half of the cases none.
_BESIDE: Final = (None, None, None, "party", "party", "SuperNode")
#: Most times that a campaign with too few parties left is resumed.
_RESUMED: Final = 3
_POLL_S: Final = 0.002
_IDLE_S: Final = 0.05


@dataclass(frozen=True)
class Fault:
    """One fault."""

    target: str  # server, SuperLink, party, SuperNode or student
    what: str  # kill (``kill -9``), or stop, to continue later
    party: str  # of the process, if it is a party's
    charges: int  # number of durable charges to wait for first
    after: float  # seconds to wait then
    pause: float  # seconds until it is started again, or continues
    beside: str | None = None  # another target killed meanwhile and restarted afterwards, or None

    @classmethod
    def draw(
        cls, chance: random.Random, mode: str, names: tuple[str, ...], charges: int
    ) -> list[Fault]:
        """Draw the faults of one campaign, in order.

        ``chance``: source of randomness; ``mode``: of the campaign; ``names``: of its parties;
        ``charges``: least number that it makes.
        """
        acts = _ACTS | (_OF_STUDENT if mode == "interactive" else {})
        besides = _BESIDE + (("student",) if mode == "interactive" else ())
        drawn = []
        for _ in range(chance.choice((2, 3, 3, 4))):
            target, what = chance.choices(list(acts), list(acts.values()))[0]
            early = chance.random() < _EARLY
            pause = chance.uniform(0.0, 3.0) if what == "kill" else chance.uniform(0.5, 5.0)
            if what == "stop" and chance.random() < _LONG:
                pause = chance.uniform(32.0, 40.0)
            drawn.append(
                cls(
                    target,
                    what,
                    chance.choice(names),
                    0 if early else chance.randint(1, charges),
                    chance.uniform(0.5, 9.0) if early else chance.choice((0.0, 0.02)),
                    pause,
                    chance.choice(besides) if target == "server" else None,
                )
            )
        return sorted(drawn, key=lambda each: (each.charges, each.after))

    def __str__(self) -> str:
        when = f"charge {self.charges}" if self.charges else f"{self.after:.1f} s"
        whom = f"{self.party}'s " * (self.target in ("party", "SuperNode")) + self.target
        beside = f" and {self.beside}" if self.beside else ""
        return f"{self.what} {whom}{beside} at {when}"


@dataclass
class Played:
    """One campaign over Flower."""

    number: int  # from 1
    mode: str  # of the campaign
    parties: int  # their number
    faults: list[str] = field(default_factory=list)  # the injected ones, in order
    seconds: float = 0.0  # its duration, including checks
    kills: int = 0  # processes killed
    late_kills: int = 0  # of these, after the first charge
    stops: int = 0  # processes stopped for a while
    late_stops: int = 0  # of these, after the first charge
    resumed: int = 0  # times that the campaign was resumed because too few parties were left
    labels: int = 0  # released
    vain: int = 0  # charges without a release
    passed: list[str] = field(default_factory=list)  # names of the checks that it passed
    wrong: list[str] = field(default_factory=list)  # failures, each as text

    def __str__(self) -> str:
        """Return a line for the screen, and one more for each failure."""
        line = (
            f"{self.number:4} {self.mode:11} {self.late_kills} of {self.kills} kills, "
            f"{self.late_stops} of {self.stops} stops after a charge; {self.seconds:5.1f} s, "
            f"{self.labels:4} labels, {self.vain} in vain; "
            f"{'WRONG' if self.wrong else 'all checks passed'}  [{'; '.join(self.faults)}]"
        )
        return "\n     ".join((line, *self.wrong))


@dataclass
class Havoc:
    """Injects the faults of one campaign, and counts them."""

    stage: Stage  # the campaign
    deadline: float  # of the whole campaign, by the monotonic clock
    played: Played  # what is counted here
    # state of the ledger after each fault, in order
    stands: list[Stand] = field(default_factory=list)
    # parties that were killed or stopped, or whose SuperNode was
    disturbed: set[str] = field(default_factory=set)
    _student_killed: bool = False

    def wreak(self, faults: list[Fault]) -> None:
        """Inject all faults, until the campaign ends."""
        began = time.monotonic()
        for fault in faults:
            if not self._wait_until(fault, began):
                return
            self._do(fault)
            if (stand := self.stage.stand()) is not None:
                self.stands.append(stand)

    def finish(self) -> None:
        """Wait until the campaign has ended, resuming it where needed."""
        while self._runs():
            self._in_time("the server ends")
            time.sleep(0.05)

    # --- waiting -----------------------------------------------------------------------------

    def _wait_until(self, fault: Fault, began: float) -> bool:
        """Wait for the moment of a fault. False: the campaign ended before it came."""
        while self._runs():
            self._in_time(str(fault))
            if fault.charges == 0 and time.monotonic() - began >= fault.after:
                return True
            is_opened, charges = self.stage.progress()
            if fault.charges and charges >= fault.charges:
                time.sleep(fault.after)
                return True
            # From an unmasking to the first charge it is a second, from charge to charge 10 ms.
            time.sleep(_POLL_S if is_opened else _IDLE_S)
        return False

    def _runs(self) -> bool:
        """Whether the server runs; one that lost too many parties is started again."""
        code = self.stage.server.code
        if code == -signal.SIGKILL and is_over(self.stage.place):
            return False
        if code == QuorumError.exit_code and self.disturbed and self.played.resumed < _RESUMED:
            self.played.resumed += 1
            self.stage.serve()
            return True
        assert code in (None, 0), f"the server ended with {code}:\n{self.stage.server.text}"
        return code is None

    def _in_time(self, what: str) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError(f"still not: {what}; the server said\n{self.stage.server.text}")

    # --- doing -------------------------------------------------------------------------------

    def _do(self, fault: Fault) -> None:
        self.played.faults.append(str(fault))
        if fault.what == "stop":
            self._stop(fault)
        elif fault.target == "server":
            self._kill_server(fault)
        else:
            self._kill(fault.target, fault.party)
            time.sleep(fault.pause)
            self._again(fault.target, fault.party)

    def _kill_server(self, fault: Fault) -> None:
        server = self.stage.server
        self._count(kill=True, number=server.code is None)
        server.kill()
        server.leaves_nobody()
        if (stand := self.stage.stand()) is not None:
            self.stands.append(stand)
        if fault.beside is not None:
            self._kill(fault.beside, fault.party)
        time.sleep(fault.pause)
        if server.code != 0 and not is_over(self.stage.place):  # it had not done everything
            self.stage.serve()
        if fault.beside is not None:
            self._again(fault.beside, fault.party)

    def _stop(self, fault: Fault) -> None:
        pids = self._of(fault.target, fault.party)
        self._count(kill=False, number=bool(pids))
        _send(pids, signal.SIGSTOP)
        try:
            if fault.beside is not None:
                self._kill(fault.beside, fault.party)
            time.sleep(fault.pause)
        finally:
            _send(pids, signal.SIGCONT)
        if fault.beside is not None:
            self._again(fault.beside, fault.party)

    def _kill(self, target: str, party: str) -> None:
        pids = self._of(target, party)
        self._count(kill=True, number=bool(pids))
        if target == "party":
            program = self.stage.parties[party]
            if program.code is None:
                program.kill()
                program.leaves_nobody()
        elif target == "student":
            if self.stage.student is not None and self.stage.student.code is None:
                self.stage.student.kill()
                self._student_killed = True
        else:
            _send(pids, signal.SIGKILL)

    def _again(self, target: str, party: str) -> None:
        """Restart killed processes; SuperLink and SuperNode are restarted by their owners."""
        if target == "party" and self.stage.parties[party].code not in (None, 0):
            self.stage.start(party)
        elif target == "student" and self._student_killed:
            self._student_killed = False
            self.stage.study()

    def _of(self, target: str, party: str) -> list[int]:
        """Return the target processes of a fault; none if they have ended."""
        if target == "server":
            return [self.stage.server.pid] if self.stage.server.code is None else []
        if target == "student":
            student = self.stage.student
            return [student.pid] if student is not None and student.code is None else []
        if target == "SuperLink":
            return children(self.stage.server.pid)
        self.disturbed.add(party)
        program = self.stage.parties[party]
        if program.code is not None:
            return []
        program.family()
        return [program.pid] if target == "party" else children(program.pid)

    def _count(self, *, kill: bool, number: int = 1) -> None:
        late = number * (self.stage.progress()[1] > 0)
        if kill:
            self.played.kills += number
            self.played.late_kills += late
        else:
            self.played.stops += number
            self.played.late_stops += late


def _send(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            continue


__all__ = ["Fault", "Havoc", "Played"]
