"""``pate-party answer``, ``train`` and ``watch``: take part by files, without a connection."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from party.cli.home import at_home
from party.options import AnswerOptions, EnvelopeOptions, OwnOptions, WatchOptions
from pate.errors import DataError
from pate.runtime.command import print_json
from pate.runtime.forked import importing
from pate.runtime.options import takes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from party.envelopes import Answers
    from party.prepared import Prepared
    from party.voting.voter import Voter
    from pate.runtime.screen import Screen


@takes(AnswerOptions)
def answer(options: AnswerOptions) -> None:
    """Answer an envelope: train, vote, write one file.

    No connection is used. Your policy and ledger are asked first, as with `pate-party start`; a
    refusal writes no file. `pate envelope show FILE` prints what is asked. The same envelope gives
    the same answer, so a command that was killed, or an answer that was lost, is repeated by the
    same command.

    For example: pate-party answer campaign-660bc95d.round-1.for-hospital_a.pate --data ./hospital_a
    """
    with _party(options, _addressee(options.file)) as (party, answers, voters, screen):
        done = answers.answer(options.file, options.out or Path())
        said = "was answered before, with the same file" if done.again else "is answered"
        screen.say(f"{options.file.name} {said}: {done.path}, {done.size} bytes")
        screen.say(f"SHA-256 {done.digest.hex()}; give it to the coordinator")
        _say_ending(voters, screen)
    if options.as_json:
        found = {"party": party.name, "file": str(done.path), "sha256": done.digest.hex()}
        print_json(found | {"bytes": done.size, "again": done.again})


@takes(EnvelopeOptions)
def train(options: EnvelopeOptions) -> None:
    """Train teachers for an envelope, and answer nothing.

    For computing centres: train on a node with a GPU, answer where the files are moved. Your policy is
    asked first. Each teacher is stored when it is trained; the same command continues.

    For example: pate-party train campaign-660bc95d.round-1.for-hospital_a.pate --data ./hospital_a
    """
    from pate.envelopes import opened
    from protos.envelopes import read_requests, require_for

    with (
        opened(options.file) as envelope,
        _party(options, envelope.manifest.party) as (party, _, _voters, screen),
    ):
        require_for(envelope, party.name, party.pinned)
        asked = read_requests(envelope)
        party.voter().prepare(asked.offer)
        screen.say("ready: no teacher is left to train for this campaign")
    if options.as_json:
        print_json({"party": party.name, "campaign": asked.offer.campaign})


@takes(WatchOptions)
def watch(options: WatchOptions) -> None:
    """Answer each envelope in INBOX once, into OUTBOX.

    For those whose files are moved by a robot. What is refused is named and left where it is. Files in
    INBOX are not removed. With --once it answers what is there and ends: for cron, a queue of jobs or a
    path unit of systemd. The exit code is then 0, or that of the first error.

    For example: pate-party watch ./inbox ./outbox --data ./hospital_a
    """
    with importing():
        from party.envelopes import Watch

    with _party(options, options.name) as (party, answers, _, screen):
        watching = Watch(answers, options.inbox, options.outbox, screen.say)
        if not options.once:
            screen.say(f"{party.name} watches {options.inbox}; Ctrl-C ends it")
            watching.run(options.every)
        if errors := watching.once():
            raise errors[0]


def _addressee(path: Path) -> str:
    from pate.envelopes import opened

    with opened(path) as envelope:
        return envelope.manifest.party


@contextlib.contextmanager
def _party(
    options: OwnOptions, called: str | None
) -> Iterator[tuple[Prepared, Answers, list[Voter], Screen]]:
    """Yield this party, what answers its envelopes, the voters that were made for that, and its screen."""
    options.require_sense()
    with importing():
        from party.envelopes import Answers
        from party.identity.enrolment import Enrolment
        from party.identity.keys import identity_key
        from party.monitoring import Status
        from party.prepared import Prepared

    if options.data is None:
        raise DataError("no data is named: --data")
    with at_home(options, called) as (name, home, screen):
        enrolment = Enrolment.load(home)
        if enrolment is not None:
            enrolment.require_valid(datetime.now(UTC))
        party = Prepared.of(options, name, home, screen, Status(), enrolment, trial=False)
        voters: list[Voter] = []

        def voter() -> Voter:
            voters.append(party.voter())
            return voters[-1]

        yield (
            party,
            Answers(
                name=name,
                identity=identity_key(home),
                home=home,
                ledger=party.ledger,
                pinned=party.pinned,
                voter=voter,
            ),
            voters,
            screen,
        )


def _say_ending(voters: list[Voter], screen: Screen) -> None:
    from party.voting.ending import ended_in_words

    for voter in voters:
        if voter.ending is not None:
            screen.say(ended_in_words(voter.ending), "warning" if voter.ending.cause else "info")
