"""A party before its first request: its rules, its ledger and its own data, whatever the transport."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Self

from party.identity.keys import identity_key, shard_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.file import policy_of, source_of
from party.policy.operator import Operator, bind
from party.voting.own_data import OwnVoters, Training
from party.voting.own_file import OwnFile
from party.voting.received import Encoders
from party.voting.site import Site
from party.voting.voter import Voter
from pate.campaign.choices import TEACHERS_EACH
from pate.data.read import read_inputs
from pate.encoders.reading import Reader
from pate.noise.exact import SystemNoise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from party.identity.enrolment import Enrolment
    from party.monitoring import Status
    from party.options import OwnOptions
    from party.policy.policy import Policy
    from pate.data.values import Inputs
    from pate.runtime.screen import Screen


@dataclass(frozen=True)
class Prepared:
    """What a run of a party works with; its data are not read yet."""

    name: str
    home: Path
    policy: Policy
    ledger: PartyLedger
    own: OwnVoters
    public: Inputs | None
    enrolment: Enrolment | None
    say: Callable[[str], None]

    @classmethod
    def of(
        cls,
        options: OwnOptions,
        name: str,
        home: Path,
        screen: Screen,
        status: Status,
        enrolment: Enrolment | None,
        *,
        trial: bool,
    ) -> Self:
        """Open everything that may be damaged or missing, before hours of training.

        ``trial``: whether the server is on this machine, and the party not enrolled.
        """
        policy = policy_of(home, loopback=trial, file=options.policy)
        screen.say(
            f"stored in {home}; policy: {source_of(home, options.policy)} (`pate-party check` shows it)"
        )
        public = None
        encoder = Reader.open(options.encoder, home=home, bar=screen.bar)
        if encoder is not None:
            screen.say(f"encoder: {encoder.encoder.description.statement()}")
        if options.public is not None:
            warn = partial(screen.say, level="warning")
            public = read_inputs(
                options.public, drop=options.dropped, say=warn, encoder=encoder, text=options.text
            )
        for line in _warnings(enrolment):
            screen.say(line, "warning")
        ledger = PartyLedger(home / LEDGER_FILE)
        for line in bind(ledger, policy):
            screen.say(line)
        received = None
        if encoder is None and policy.encoders != ():
            received = Encoders(home / "encoders", partial(Reader.of, home=home, bar=screen.bar))
        own = _own_voters(options, encoder, received, home, screen, status)
        return cls(name, home, policy, ledger, own, public, enrolment, screen.say)

    def voter(self, operator: Operator | None = None) -> Voter:
        """Return what answers requests for this party; without an operator only a terminal is asked."""
        operator = operator or Operator.here()

        def say(line: str) -> None:
            if voter.refusal is None:  # it is the command's last line
                self.say(line)

        voter = Voter(
            name=self.name,
            identity=identity_key(self.home),
            voters=self.own,
            home=self.home,
            site=Site(
                self.policy,
                self.ledger,
                pinned=self.pinned,
                ask=operator.ask if operator.is_here else None,
            ),
            noise=SystemNoise(),
            public=self.public,
            say=say,
        )
        return voter

    @property
    def pinned(self) -> bytes | None:
        """The campaign key of the enrolment."""
        return None if self.enrolment is None else self.enrolment.campaign_key


def _own_voters(
    options: OwnOptions,
    encoder: Reader | None,
    received: Encoders | None,
    home: Path,
    screen: Screen,
    status: Status,
) -> OwnVoters:
    @contextlib.contextmanager
    def shown() -> Iterator[Callable[[int, int], None]]:
        before = status.standing.state
        status.is_now("training")
        with screen.bar("teachers ready") as move:

            def progress(done: int, total: int) -> None:
                status.trained(done, total)
                move(done, total)

            yield progress
        status.is_now(before)

    how = Training(
        teachers=options.teachers or TEACHERS_EACH,
        takes_wanted=options.teachers is None,
        later=options.trained_later,
        model=options.model,
        device=options.device,
        home=home,
        shown=shown,
    )
    return OwnVoters(
        OwnFile.of(options, encoder),
        training=None if options.only_records else how,
        records=options.votes in ("any", "neighbour"),
        key=shard_key(home),
        say=screen.say,
        warn=lambda line: screen.say(line, "warning"),
        encoders=received,
    )


def _warnings(enrolment: Enrolment | None) -> list[str]:
    """Return lines about what expires soon."""
    if enrolment is None:
        return []
    now = datetime.now(UTC)
    enrolment.require_valid(now)
    return enrolment.warnings(now)
