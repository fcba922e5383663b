"""The deployment: starts and supervises everything that parties need to take part.

A :class:`Deployment` has the SuperLink (a child process on loopback), the gateway (its public
interface) and the run that carries the campaign, and provides one carrier to the parties that survives
the loss of any of them. If this process is killed, its child ends with it. With identities, only
enrolled parties are admitted, and the list is monitored: a party that is revoked in another
terminal is disconnected at once.

The SuperLink's interface for operators has no authentication on this machine, so admission by it
proves nothing: the carrier offers only nodes of enrolled parties, and others are removed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
from typing import TYPE_CHECKING, Final, Self

import httpx

from aggregator_server.flower.carrier import DEFAULT_TTL_S, GridCarrier, SwitchableCarrier
from aggregator_server.flower.gateway import Gateway
from aggregator_server.flower.grid import Session
from aggregator_server.flower.internals import LINK_ERRORS
from aggregator_server.flower.node_sessions import Sessions
from aggregator_server.flower.superlink import (
    MOST_MEMORY,
    SuperLink,
    let_in,
    pem,
    trust_in,
)
from aggregator_server.identities import require_identities
from aggregator_server.identities.enrolment_service import EnrolmentService
from pate.errors import PateError, ProcessError
from pate.listening.bounded_listener import raise_file_limit
from pate.printable import listed
from pate.runtime.child import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from aggregator_server.exchange.carrier import Carrier
    from aggregator_server.identities import Identities, Member
    from aggregator_server.identities.registry import Stamp

_WATCH_S: Final = 0.2
#: Seconds between checks of the nodes that the SuperLink admits, if the list of parties is
#: unchanged.
_NODES_S: Final = 2.0
#: Failed starts in a row before the deployment gives up.
_ATTEMPTS: Final = 4
#: A SuperLink's answers for a run that was stopped or is gone.
_RUN_IS_OVER: Final = frozenset({401, 403, 404})
#: Least time between two polls for arrivals, in seconds.
_BREATH_S: Final = 0.02
#: Seconds between two checks of the connected nodes, without arrivals.
_LOOK_S: Final = 1.0
#: Seconds for which a party that asks for admission counts as reconnecting: it has to be admitted,
#: describe itself, and be asked.
_RETURNING_S: Final = 15.0


class Deployment:
    """SuperLink, gateway and run of one campaign; use it as a context manager."""

    def __init__(
        self,
        home: Path,  # directory for the SuperLink's log and secret
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        # the server's; with them it uses TLS and serves only enrolled parties. None: clear text,
        # open to everyone on this machine; ``host`` must be loopback
        identities: Identities | None = None,
        # returns the time, by which certificates and one-time codes expire
        clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        # how long a message to a party and its answer are valid, in seconds
        ttl: float = DEFAULT_TTL_S,
        # called with one line for the operator on each start, end or failure, from any thread
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take the public port."""
        require_identities(host, identities)
        self._identities = identities
        enrolment = trust = certificate = None
        if identities is not None:
            identities.require_valid(clock())
            enrolment = EnrolmentService(identities, clock=clock, on_event=on_event)
            trust = trust_in(identities)
            certificate = identities.certificate, identities.certificate_key
        self._home = home / "superlink"
        self._ttl = ttl
        self._on_event = on_event
        self._carrier = SwitchableCarrier(self._suspected, self._returning, self._pause)
        self._news = threading.Event()
        self._asking: dict[str, float] = {}
        self._name_of: dict[bytes, str] = {}
        self._gateway = Gateway(
            host,
            port,
            certificate=certificate,
            trust=trust,
            enrolment=enrolment,
            sessions=Sessions(
                on_asking=self._asks, on_arrived=self._carrier.renew, on_news=self._news.set
            ),
        )
        self.address = joined(host, self._gateway.port)  # for parties to connect to
        self._superlink: SuperLink | None = None
        self._session: Session | None = None
        self._names: Mapping[int, str] = {}
        self._members: Mapping[str, Member] = {}
        self._seen: Stamp | None = None
        self._looked = 0.0
        self._trouble = ""
        self._closing = threading.Event()
        self._suspicion: str | None = None
        self._times_outgrown = 0
        self._watcher = threading.Thread(target=self._watch, name="superlink-watch", daemon=True)

    @property
    def carrier(self) -> Carrier:
        """The carrier to the parties; it stays valid when a SuperLink is replaced."""
        return self._carrier

    @property
    def names(self) -> Mapping[int, str]:
        """The enrolled party of each node of the carrier; empty without identities.

        A node has proved possession of that party's node key, so a claim to be another party is
        false.
        """
        return self._names

    def _returning(self) -> frozenset[str]:
        """Return the enrolled parties that asked for admission a moment ago."""
        since = time.monotonic() - _RETURNING_S
        return frozenset(name for name, when in dict(self._asking).items() if when > since)

    def _pause(self, seconds: float) -> None:
        """Wait until a party may have sent something new, or for a while.

        ``seconds``: how long the caller would wait without notifications; here it is longer, since
        everything but a silent disconnection is noticed at once.
        """
        time.sleep(_BREATH_S)
        self._news.wait(max(seconds, _LOOK_S))
        self._news.clear()

    def _asks(self, key: bytes) -> None:
        """Record that the holder of a node key (PEM) asks for admission. From the gateway's thread."""
        if (name := self._name_of.get(key)) is not None:
            self._asking[name] = time.monotonic()
            self._news.set()

    @property
    def superlink_pid(self) -> int | None:
        """Process id of the SuperLink, None if there is none."""
        superlink = self._superlink
        return None if superlink is None else superlink.child.pid

    def __enter__(self) -> Self:
        """Start everything; see :meth:`start`."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self.close()

    def start(self) -> None:
        """Start everything, and return when parties can connect."""
        raise_file_limit()
        try:
            # First, so that early parties get the answer that it is not ready yet.
            self._gateway.start()
            self._bring_up()
        except LINK_ERRORS as error:
            self.close()
            raise ProcessError(f"the SuperLink started and then failed: {error}") from error
        except BaseException:
            self.close()
            raise
        self._watcher.start()

    def close(self) -> None:
        """Stop everything, in order. Idempotent."""
        self._closing.set()
        if self._watcher.is_alive():
            self._watcher.join()
        self._carrier.close()
        self._gateway.stop()
        self._tear_down()

    def _bring_up(self) -> None:
        """Start a SuperLink and a run on it, and connect the carrier and the gateway to them."""
        self._superlink = SuperLink(
            self._home, identities=self._identities, cancelled=self._closing.is_set
        )
        address, trust = self._superlink.address, self._superlink.trust
        self._session = Session(
            address, self._superlink.secret, trust=trust, on_taken=self._gateway.taken
        )
        # Before it is reachable: an enrolled party would be refused without a reason.
        self._let_in(self._superlink)
        self._session.grid.on_fetched = self._news.set
        self._carrier.attach(
            GridCarrier(
                self._session.grid,
                ttl=self._ttl,
                admits=self._admits,
                on_sent=self._gateway.pulls.wake,
            )
        )
        self._gateway.point_at(address, self._session.grid.run.run_id)

    def _tear_down(self) -> int:
        """Stop the SuperLink, or reap it. Returns the number of lost messages."""
        self._gateway.point_at(None)
        lost = self._carrier.detach()
        self._names, self._members = {}, {}
        session, self._session = self._session, None
        if session is not None:
            session.close()
        superlink, self._superlink = self._superlink, None
        if superlink is not None:
            superlink.stop()
        return lost

    def _let_in(self, superlink: SuperLink) -> None:
        """Update the enrolled parties at a SuperLink."""
        if self._identities is None:
            return
        # The stamp first: later changes are then detected.
        stamp, self._looked = self._identities.registry.stamp(), time.monotonic()
        members = self._identities.enrolled()
        # Revoked parties are excluded here even if the SuperLink cannot be updated now.
        self._name_of = {pem(member.node): member.name for member in members.values()}
        self._gateway.keep_in(self._name_of)
        known = self._names
        self._names = {
            node: name for node, name in known.items() if members.get(name) == self._members[name]
        }
        changed = let_in(superlink.address, superlink.trust, members)
        self._names, self._members = changed.names, members
        self._gateway.let_in(changed.keys)
        self._seen = stamp
        if went := sorted(known[node] for node in changed.went if node in known):
            self._on_event(f"excluded: {listed(went)}")
        if strange := sum(node not in known for node in changed.went):
            self._on_event(
                f"excluded: {strange} that belong to no enrolled party; someone on this machine "
                "admitted them, and they were sent nothing"
            )

    def _admits(self, node: int) -> bool:
        """Return whether a node may take part: with identities, if it is an enrolled party's."""
        return self._identities is None or node in self._names

    def _look_at_registry(self, superlink: SuperLink) -> None:
        """Apply enrolments and revocations, and exclude nodes that are not enrolled."""
        if self._identities is None:
            return
        changed = self._identities.registry.stamp() != self._seen
        if not changed and time.monotonic() - self._looked < _NODES_S:
            return
        try:
            self._let_in(superlink)
        except (PateError, *LINK_ERRORS) as error:
            # Tried again at the next check; reported once.
            trouble = f"cannot apply the list of parties: {error}"
            if changed and trouble != self._trouble:
                self._on_event(trouble)
                self._trouble = trouble
        else:
            self._trouble = ""

    def _suspected(self, error: BaseException) -> None:
        """Record an error of the carrier for the supervisor thread. Called while the carrier is locked."""
        over = isinstance(error, httpx.HTTPStatusError) and (
            error.response.status_code in _RUN_IS_OVER
        )
        if over:
            self._suspicion = "the SuperLink no longer knows the run"

    def _watch(self) -> None:
        """Start a new SuperLink whenever the old one has ended, until :meth:`close`."""
        while not self._closing.wait(_WATCH_S):
            superlink = self._superlink
            if superlink is None or not superlink.child.running:
                code = None if superlink is None else superlink.child.exit_code
                self._renew(f"the SuperLink ended (exit code {code})")
            elif self._suspicion is not None:
                self._renew(self._suspicion)
            elif (memory := superlink.memory() or 0) > MOST_MEMORY:
                self._outgrown(memory)
            else:
                self._look_at_registry(superlink)
                self._forget_what_nobody_fetches()

    def _forget_what_nobody_fetches(self) -> None:
        """Let the SuperLink delete the replies whose messages have expired."""
        if self._session is not None:
            for reply in self._gateway.left():
                with contextlib.suppress(*LINK_ERRORS):  # then the link is down: see `_suspected`
                    self._session.grid.forget(reply)

    def _outgrown(self, memory: int) -> None:
        """Restart a SuperLink that uses too much memory; give up if that does not help."""
        why = f"the SuperLink uses {memory >> 20} MiB of memory, more than {MOST_MEMORY >> 20}"
        if (most := self._gateway.traffic.most()) is not None:
            names = {pem(member.node): name for name, member in self._members.items()}
            who = names.get(most[0], "a node without a name")
            why += (
                f". Most was sent by {who} ({most[1] >> 20} MiB): if its data do not explain that, "
                "revoke it with `pate-server revoke`"
            )
        self._times_outgrown += 1
        if self._times_outgrown < _ATTEMPTS:
            self._renew(why)
            return
        self._on_event(why)
        self._tear_down()
        self._carrier.fail(ProcessError(f"{why}; it was already restarted {_ATTEMPTS - 1} times"))
        self._closing.set()

    def _renew(self, why: str) -> None:
        began = time.monotonic()
        self._on_event(f"{why}; restarting it")
        lost = self._tear_down()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._bring_up()
            except (PateError, *LINK_ERRORS) as error:
                self._tear_down()
                if self._closing.is_set():
                    return
                self._on_event(f"attempt {attempt} of {_ATTEMPTS} to start it failed: {error}")
                if attempt == _ATTEMPTS:
                    self._give_up(error)
                    return
                self._closing.wait(2.0**attempt)
            else:
                self._suspicion = None
                self._on_event(
                    f"the SuperLink is running again after {time.monotonic() - began:.1f} s; "
                    f"{lost} messages will be sent again"
                )
                return

    def _give_up(self, error: BaseException) -> None:
        self._carrier.fail(
            ProcessError(f"the SuperLink cannot be kept running ({_ATTEMPTS} attempts): {error}")
        )
        self._closing.set()
