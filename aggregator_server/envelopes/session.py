"""What a run of the server needs for parties by envelope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aggregator_server.envelopes.known_keys import KnownKeys
from aggregator_server.envelopes.store import FILE, Store
from aggregator_server.envelopes.wire import EnvelopeWire
from pate.errors import PateError, UsageError
from pate.formats.enrolment import check_name
from pate.runtime.home import kept_secret, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aggregator_server.envelopes.out import Out
    from aggregator_server.identities import Identities
    from pate.campaign.spec import CampaignSpec

#: File with the secret of a campaign's envelopes, in its folder.
_KEY_FILE: Final = "envelopes.key"


@dataclass(frozen=True)
class ByEnvelope:
    """Who takes part by envelope, and where.

    Attributes:
        folder: for the folders ``out`` and ``in``.
        parties: their names; None: all.
        days: how long an envelope may be answered; None: no end.
    """

    folder: Path
    parties: tuple[str, ...] | None = None
    days: float | None = None

    def names(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return the names of the parties by envelope in a campaign.

        Raises:
            UsageError: if they are not known, or not of the campaign, or its votes cannot be summed
                by envelope.
        """
        if spec.vote_proofs:
            raise UsageError(
                "proofs of votes need a connection: leave out --vote-proofs, or --envelopes"
            )
        named = spec.parties if isinstance(spec.parties, tuple) else None
        found = named if self.parties is None else self.parties
        if found is None:
            raise UsageError(
                "by envelope each party must be named: give --parties a,b,c, or --by-envelope a,b "
                "for those that are not online"
            )
        try:
            for name in found:  # it is in the names of files
                check_name(name)
        except PateError as error:
            raise UsageError(f"by envelope: {error}") from error
        if self.parties is None:
            return found
        if named is not None and (strange := sorted(set(self.parties) - set(named))):
            raise UsageError(f"--by-envelope names {', '.join(strange)}, not in --parties")
        return found

    def all_of(self, spec: CampaignSpec) -> bool:
        """Return whether no party is online."""
        wanted = spec.parties if isinstance(spec.parties, int) else len(spec.parties)
        return len(self.names(spec)) >= wanted

    def wire(
        self,
        folder: Path,
        spec: CampaignSpec,
        *,
        signing_key: Ed25519PrivateKey,
        enrolled: Callable[[], Mapping[str, bytes]] | None,
        identities: Identities | None,
        say: Callable[[str], None],
        show: Callable[[Sequence[Out]], None] = lambda _: None,
    ) -> EnvelopeWire:
        """Return the wire to these parties.

        Args:
            folder: of the campaign.
            spec: of the campaign.
            signing_key: the campaign's.
            enrolled: identity keys by name; None: any party.
            identities: of the server; None: a trial.
            say: one line for the server's screen.
            show: called with the last envelope for each party whenever one has changed.
        """
        return EnvelopeWire(
            Store(folder / FILE, days=self.days),
            self.folder,
            campaign=spec.id,
            parties=self.names(spec),
            signing_key=signing_key,
            secret=kept_secret(folder / _KEY_FILE),
            enrolled=enrolled,
            say=say,
            show=show,
            keys=None if identities is None else KnownKeys(folder, spec, identities, say),
            sums=spec.rounds if spec.in_rounds else 1,
        )


def check_goes_by_envelope(folder: Path, given: ByEnvelope | None) -> None:
    """Check that a campaign that began with envelopes goes on with them.

    Raises:
        UsageError: if their folder is not named.
    """
    if given is None and (folder / FILE).exists():
        raise UsageError(
            "parties of this campaign take part by envelope: name the folder of its files with "
            "--envelopes DIR (and --by-envelope, if others are online)"
        )


def last_envelopes(folder: Path) -> list[Out]:
    """Return the last envelope for each party of a campaign, to be shown; none if they cannot be read."""
    if not (folder / FILE).exists():
        return []
    try:
        return Store(folder / FILE, read_only=True).newest()
    except PateError:
        return []


def forget_key(folder: Path) -> None:
    """Delete the key that opens answers: nobody can read the ones that couriers have kept.

    Call it once the end is outside: no answer is read after it.
    """
    (folder / _KEY_FILE).unlink(missing_ok=True)
    sync(folder)
