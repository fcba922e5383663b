"""The way to the parties of a campaign: a port, two folders for envelopes, or both."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from aggregator_server.envelopes.wire import IN, OUT, MixedWire
from aggregator_server.flower.deployment import Deployment
from pate.printable import listed
from pate.runtime.child import LOCAL_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aggregator_server.envelopes.out import Out
    from aggregator_server.envelopes.session import ByEnvelope
    from aggregator_server.envelopes.wire import EnvelopeWire
    from aggregator_server.exchange.wire import Wire
    from aggregator_server.identities import Identities
    from aggregator_server.monitoring.serving import PageServer
    from pate.campaign.spec import CampaignSpec
    from pate.runtime.screen import Screen


_ANSWER: Final = "pate-party answer FILE --data PATH"


@dataclass(frozen=True)
class Listening:
    """Listening addresses and waiting times of the server.

    Attributes:
        patience: seconds to wait for the last parties once enough have voted.
        linger: seconds to serve labels after the end; negative: until Ctrl-C or the student has
            all.
        identities: created by `pate-server init`, with the enrolled parties; None: a trial on
            loopback, without TLS, open to anyone who can reach the port.
        by_envelope: who takes part by envelope; None: nobody.
    """

    host: str
    port: int
    student_port: int
    patience: float
    linger: float
    identities: Identities | None = None
    page: PageServer | None = None
    by_envelope: ByEnvelope | None = None


@dataclass(frozen=True)
class Reached:
    """How parties are reached, once it is open.

    Attributes:
        courier: of those by envelope, if there are some.
        listens: that of this machine, or the folder of the envelopes.
        command: of a party that is connected, or answers by envelope.
        returning: names of the parties that are reconnecting.
        pause: waits that many seconds, or less if a message may have arrived.
    """

    wire: Wire
    courier: EnvelopeWire | None
    address: str
    listens: str
    alive: Callable[[], bool]
    command: str
    for_parties: tuple[str, ...]
    returning: Callable[[], Collection[str]]
    pause: Callable[[float], None]


@contextlib.contextmanager
def reaching(
    folder: Path,
    spec: CampaignSpec,
    listening: Listening,
    signing_key: Ed25519PrivateKey,
    screen: Screen,
    show: Callable[[Sequence[Out]], None] = lambda _: None,
) -> Iterator[Reached]:
    """Open the way to the parties: a port, two folders, or both.

    ``show`` is called with the last envelope for each party by envelope whenever one has changed.
    """
    identities, chosen = listening.identities, listening.by_envelope
    files: EnvelopeWire | None = None
    how: tuple[str, ...] = ()
    if chosen is not None:
        names = chosen.names(spec)
        files = chosen.wire(
            folder,
            spec,
            signing_key=signing_key,
            enrolled=enrolled_of(identities),
            identities=identities,
            say=screen.say,
            show=show,
        )
        how = (
            f"by envelope: {listed(names)}; files for them appear in {chosen.folder / OUT}",
            f"put their answers into {chosen.folder / IN}",
            f"for each of them: {_ANSWER}",
        )
    if files is not None and chosen is not None and chosen.all_of(spec):
        place = str(chosen.folder)
        yield Reached(files, files, "", place, lambda: True, _ANSWER, how, frozenset, time.sleep)
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
        command = f"pate-party start --data PATH{server}"
        yield Reached(
            deployment.wire if files is None else MixedWire(files, deployment.wire),
            files,
            deployment.address if identities is None else identities.address,
            deployment.address,
            lambda: deployment.superlink_pid is not None,
            command,
            (*how, f"for each {'other ' if how else ''}party: {command}"),
            deployment.returning,
            deployment.pause,
        )
        if files is not None:
            files.close()


def enrolled_of(identities: Identities | None) -> Callable[[], dict[str, bytes]] | None:
    """Return what looks up the identity keys of enrolled parties; None: any party."""
    return None if identities is None else partial(_enrolled, identities)


def _enrolled(identities: Identities) -> dict[str, bytes]:
    return {name: member.identity for name, member in identities.enrolled().items()}
