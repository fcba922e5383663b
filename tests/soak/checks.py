"""Checks of a finished campaign over Flower, for any sequence of faults."""

from __future__ import annotations

import itertools
import json
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aggregator_server.results.report import label_set
from pate.errors import PateError, UnreachableError
from tests.support.processes.programs import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.enrolled import Stage
    from tests.soak.faults import Havoc
    from tests.support.processes.programs import Program
    from tests.support.world.stand import Stand

#: In this order.
CHECKS: Final = (
    "parties and student ended as they may", "server's ledger verifies",
    "no query labelled twice", "every stand is a prefix of the end", "spent only grows",
    "parties' ledgers verify", "parties agree with the statement",
    "student's statement is the server's", "no process left", "no port left", "no draft left",
)  # fmt: skip
#: A party killed at the campaign's end finds no server; it is stopped after this many seconds.
_ALONE_S: Final = 15.0
_ENDS_S: Final = 240.0


@dataclass
class Left:
    """The final state of a campaign."""

    stage: Stage  # the campaign; its server has ended with 0
    havoc: Havoc  # its faults

    def look(self) -> None:
        """Run all checks, also after one has failed."""
        rules: dict[str, Callable[[], None]] = dict(
            zip(
                CHECKS,
                (
                    self._all_ended, self._server_verifies, self._labelled_once, self._prefixes,
                    self._spent_grows, self._parties_verify, self._parties_agree,
                    self._student_has_it, self.stage.all_gone, self.stage.doors_closed,
                    self._no_drafts,
                ),
                strict=True,
            )
        )  # fmt: skip
        for name, rule in rules.items():
            try:
                rule()
            except (AssertionError, TimeoutError, PateError, OSError) as error:
                self.havoc.played.wrong.append(f"{name}: {type(error).__name__}: {error}")
            else:
                self.havoc.played.passed.append(name)

    # --- the processes -----------------------------------------------------------------------

    def _all_ended(self) -> None:
        for name, party in self.stage.parties.items():
            if name not in self.havoc.disturbed:
                party.ends(0, deadline_s=_ENDS_S)
            else:
                _ends_or_is_alone(party)
        if (student := self.stage.student) is not None:
            # Its last training may begin after the server has ended.
            until(lambda: student.code is not None, "the student ends", _ENDS_S)
            may = (0, UnreachableError.exit_code)
            assert student.code in may, f"it ended with {student.code}:\n{student.text}"

    # --- the server's ledger -----------------------------------------------------------------

    def _end(self) -> Stand:
        stand = self.stage.stand()
        assert stand is not None, "there is no ledger"
        return stand

    def _server_verifies(self) -> None:
        told = self._tells("aggregator_server", "ledger", "verify", "--home", self.stage.home)
        assert told["phase"] == "finished", told
        end, played = self._end(), self.havoc.played
        played.labels, played.vain = len(end.labels), end.vain
        assert told["labels_released"] == len(end.labels), told
        # A kill wastes at most the charge that it interrupts.
        assert end.vain <= played.kills, f"{end.vain} charges in vain"
        # Votes of records may label nothing, and a gate may stay closed.
        if end.vain == 0 and self.stage.mode not in ("neighbour", "gated"):
            assert end.labels, "nothing was lost, and there is no label"

    def _labelled_once(self) -> None:
        """Check that no query has two labels, over all rounds."""
        seen = set[int]()
        for query, label in self._end().answers:
            if label is None:
                continue
            assert query not in seen, f"query {query} was labelled twice"
            seen.add(query)
        assert seen == set(self._end().labels) or self.stage.mode == "neighbour"

    def _prefixes(self) -> None:
        for earlier, later in self._steps():
            later.follows(earlier)

    def _spent_grows(self) -> None:
        for earlier, later in self._steps():
            assert later.spent >= earlier.spent, f"{earlier.spent}, later {later.spent}"
            assert later.wasted >= 0

    def _steps(self) -> list[tuple[Stand, Stand]]:
        stands = [*self.havoc.stands, self._end()]
        # Compare each with the next, and with the final one.
        return [*itertools.pairwise(stands), *((each, stands[-1]) for each in stands)]

    # --- the others --------------------------------------------------------------------------

    def _parties_verify(self) -> None:
        for name in self.stage.names:
            self._tells("party", "ledger", "--home", self.stage.sites.home(name))

    def _parties_agree(self) -> None:
        statement = self.stage.folder / "privacy.json"
        statement.write_text(label_set(self.stage.place).privacy)
        for name in self.stage.names:
            home = self.stage.sites.home(name)
            told = self._tells("party", "verify", statement, "--home", home)
            assert told["agrees"] is True, f"{name}: {told}"

    def _student_has_it(self) -> None:
        student = self.stage.student
        if student is None or student.code != 0:
            return  # there is none, or it was killed and the server had gone when it was back
        published = json.loads((self.stage.folder / "student" / "privacy.json").read_text())
        assert published == json.loads(label_set(self.stage.place).privacy), "it differs"

    def _no_drafts(self) -> None:
        left = self.stage.drafts()
        assert not left, ", ".join(left)

    def _tells(self, module: str, *arguments: object) -> dict[str, object]:
        """Return the JSON output of a command that must exit with 0."""
        program = self.stage.run(f"{module}-{arguments[0]}", module, *arguments, "--json")
        program.ends(0, deadline_s=_ENDS_S)
        return program.result()


def _ends_or_is_alone(program: Program) -> None:
    """Check that a disturbed party exits with 0, or that its server has ended."""
    deadline = time.monotonic() + _ALONE_S
    while program.code is None and time.monotonic() < deadline:
        time.sleep(0.1)
    may = [0, UnreachableError.exit_code]
    if program.code is None:
        program.send(signal.SIGTERM)
        until(lambda: program.code is not None, f"{program.name} is stopped", _ENDS_S)
        may += [130, -signal.SIGTERM]  # the latter where it was about to end by itself
    assert program.code in may, f"{program.name} ended with {program.code}:\n{program.text}"
