"""The way to the parties of a campaign: a port, two folders for envelopes, or both."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aggregator_server.exchange.folders import IN, OUT, Both
from aggregator_server.flower.deployment import Deployment
from pate.printable import listed
from pate.runtime.child import LOCAL_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from aggregator_server.exchange.attendance import Keyring
    from aggregator_server.exchange.by_envelope import ByEnvelope
    from aggregator_server.exchange.carrier import Carrier
    from aggregator_server.exchange.presence import Out
    from aggregator_server.identities import Identities
    from aggregator_server.monitoring.serving import PageServer
    from pate.campaign.spec import CampaignSpec
    from pate.runtime.screen import Screen


_ANSWER: Final = "pate-party answer FILE --data PATH"


@dataclass(frozen=True)
class Listening:
    """Listening addresses and waiting times of the server."""

    host: str
    port: int
    student_port: int
    patience: float  # seconds to wait for the last parties once enough have voted
    # seconds to serve labels after the end; negative: until Ctrl-C or the student has all
    linger: float
    # created by `pate-server init`, with the enrolled parties; None: a trial on loopback, without
    # TLS, open to anyone who can reach the port
    identities: Identities | None = None
    page: PageServer | None = None
    by_envelope: ByEnvelope | None = None  # who takes part by envelope; None: nobody


@dataclass(frozen=True)
class Reached:
    """How parties are reached, once it is open."""

    carrier: Carrier
    address: str
    listens: str  # that of this machine, or the folder of the envelopes
    alive: Callable[[], bool]
    command: str  # of a party that is connected, or answers by envelope
    for_parties: tuple[str, ...]


@contextlib.contextmanager
def reaching(
    folder: Path,
    spec: CampaignSpec,
    listening: Listening,
    keys: Keyring,
    screen: Screen,
    show: Callable[[Sequence[Out]], None] = lambda _: None,
) -> Iterator[Reached]:
    """Open the way to the parties: a port, two folders, or both.

    ``show`` is called with the last envelope for each party by envelope whenever one has changed.
    """
    identities, chosen = listening.identities, listening.by_envelope
    files = None if chosen is None else chosen.carrier(folder, spec, keys, screen.say, show)
    how: tuple[str, ...] = ()
    if chosen is not None:
        how = (
            f"by envelope: {listed(chosen.names(spec))}; files for them appear in {chosen.folder / OUT}",
            f"put their answers into {chosen.folder / IN}",
            f"for each of them: {_ANSWER}",
        )
    if files is not None and chosen is not None and chosen.all_of(spec):
        place = str(chosen.folder)
        yield Reached(files, "", place, lambda: True, _ANSWER, how)
        files.close()
        return
    with Deployment(
        folder,
        host=listening.host,
        port=listening.port,
        identities=identities,
        on_event=screen.say,
    ) as deployment:
        is_usual = identities or deployment.address == LOCAL_SERVER
        server = "" if is_usual else f" --server {deployment.address}"
        group = " --group COLUMN" if spec.unit == "patient" else ""
        command = f"pate-party start --data PATH{group}{server}"
        yield Reached(
            deployment.carrier if files is None else Both(files, deployment.carrier),
            deployment.address if identities is None else identities.address,
            deployment.address,
            lambda: deployment.superlink_pid is not None,
            command,
            (*how, f"for each {'other ' if how else ''}party: {command}"),
        )
        if files is not None:
            files.close()


def enrolled_of(identities: Identities | None) -> Callable[[], dict[str, bytes]] | None:
    """Return what looks up the identity keys of enrolled parties; None: any party."""
    if identities is None:
        return None
    return lambda: {name: member.identity for name, member in identities.enrolled().items()}
