"""A site's policy: ``policy.toml`` in the party's home, enforced before any vote is computed.

The server cannot influence it. Every rule reads a signed :class:`~pate.campaign.offer.Offer` and the
party's own ledger, and refuses if the offer lacks something that the rule needs. The reason of a
refusal is for the party's own screen; the server learns only that it was refused.
"""

from __future__ import annotations

import hmac
import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from party.ledger.accountant import Bound, LedgerView, cumulative_epsilon
from party.policy.hours import Hours
from party.policy.promise import check_cap, check_promise
from pate.accounting.events import GeometricHistogram, LaplaceMax, NoisyCounts
from pate.accounting.filters import FAILING, SITE_DELTA, Delta
from pate.answers import ANSWERS
from pate.campaign.choices import AGGREGATIONS, NOISES, UNITS
from pate.campaign.offer import Offer
from pate.codes import AXES, CODES, EACH, code_of
from pate.data.embeddings import encoder_in
from pate.errors import RefusedError, UsageError
from pate.formats.privacy_statement import rounded_up
from pate.masking.context import threshold_for
from pate.mechanisms import MatrixMechanism

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from pate.accounting.events import Event
    from pate.mechanisms import Mechanism

__all__ = ["POLICY_FILE", "Allowed", "Hours", "LedgerView", "Offer", "Policy"]

#: Name of the file in a party's home.
POLICY_FILE: Final = "policy.toml"

#: Ways to choose campaigns by a word; the alternative is a list of :class:`Allowed`.
BY_WORD: Final = ("enrolled", "any", "ask")
REPEATS: Final = ("never", "allow")


class OutsideHoursError(RefusedError):
    """A refusal outside the policy's hours: the server may ask again."""


@dataclass(frozen=True)
class Allowed:
    """A campaign named by a policy."""

    key: bytes  # (32,) bytes, the campaign's signing key
    id: str | None = None  # hex, or None for every campaign of that key


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A site's rules; None means no bound. The defaults are those for a server on another machine."""

    # ``enrolled`` (signed by the key that was pinned at enrolment), ``any``, ``ask`` (the
    # operator, once per campaign), or the campaigns themselves
    campaigns: str | tuple[Allowed, ...] = "enrolled"
    max_queries: int | None = None  # most distinct queries answered for one campaign
    max_queries_in_all: int | None = None  # the same, for all campaigns together
    # least standard deviation of the noise of every step, in votes
    least_sigma: Fraction | None = None
    # least ratio of noise to the l2 distance of neighbours, of every step: sigma / (sqrt(2)
    # votes_per_unit) for a label. A step costs 1 / (2 ratio^2) of rho
    least_noise_multiplier: Fraction | None = None
    least_roster: int | None = 3
    # fewest parties in a masked sum; None: more than two thirds of the roster
    least_survivors: int | None = None
    # least number of colluding parties that the masks of a campaign must tolerate; None: as many as
    # possible, just below a third. Ledgers keep sums of two campaigns with different survivors
    # apart only if both tolerate the actual number of colluders
    least_colluders: int | None = None
    # identity keys (hex) by name, of all parties allowed on a roster with this one. A coordinator
    # could enrol fake parties, and then subtract their votes from the sum
    parties: Mapping[str, str] | None = None
    aggregation: tuple[str, ...] = ("masked",)
    noise: tuple[str, ...] = NOISES
    # bound on :func:`~party.ledger.accountant.cumulative_epsilon` over all campaigns on this home's
    # data
    largest_epsilon: float | None = 10.0
    delta: float = SITE_DELTA
    # part of ``delta`` for campaigns and releases that may fail outright: gated ones, and synthetic
    # rows with a delta
    failing_share: Fraction = FAILING
    units: tuple[str, ...] = UNITS
    codes: tuple[str, ...] = CODES
    # allowed answers of neighbour votes, and of teachers in one release
    answers: tuple[str, ...] = ANSWERS
    # digests of the public encoders of a campaign's inputs that are accepted; None: any
    encoders: tuple[str, ...] | None = ()
    hours: Hours | None = None  # when votes may be computed, local time
    # ``never`` or ``allow``: whether queries of one campaign may get other votes in another, and
    # may be unmasked with other survivors
    repeat_queries: str = "never"

    def __post_init__(self) -> None:
        if isinstance(self.campaigns, str) and self.campaigns not in BY_WORD:
            raise UsageError(f"campaigns is one of {', '.join(BY_WORD)}, or a list of them")
        for name in ("max_queries", "max_queries_in_all", "least_roster"):
            whole = getattr(self, name)
            if whole is not None and (type(whole) is not int or whole < 1):
                raise UsageError(f"{name} must be a whole number of at least 1, got {whole!r}")
        for name in ("least_survivors", "least_colluders"):
            whole = getattr(self, name)
            if whole is not None and (type(whole) is not int or whole < 0):
                raise UsageError(f"{name} must be a whole number of at least 0, got {whole!r}")
        for name in ("least_sigma", "least_noise_multiplier"):
            exact = getattr(self, name)
            if exact is not None and (type(exact) is not Fraction or exact <= 0):
                raise UsageError(f"{name} must be a number above 0, got {exact!r}")
        if self.largest_epsilon is not None and not 0 < self.largest_epsilon < math.inf:
            raise UsageError(
                f"largest_epsilon must be a number above 0, got {self.largest_epsilon!r}"
            )
        if not 0 < self.delta < 1:
            raise UsageError(f"delta must be between 0 and 1, got {self.delta!r}")
        if type(self.failing_share) is not Fraction or not 0 <= self.failing_share <= 1:
            raise UsageError(f"failing_share must be between 0 and 1, got {self.failing_share!r}")
        for name, known in (
            ("aggregation", AGGREGATIONS), ("noise", NOISES), ("units", UNITS), ("codes", CODES),
            ("answers", ANSWERS),
        ):  # fmt: skip
            given = getattr(self, name)
            if not given or not set(given) <= set(known):
                raise UsageError(f"{name} is a list of one or more of {', '.join(known)}")
        if not all(re.fullmatch("[0-9a-f]{64}", each) for each in self.encoders or ()):
            raise UsageError(
                'encoders is a list of digests of 64 hexadecimal digits, [] for none, or "any"'
            )
        if self.repeat_queries not in REPEATS:
            raise UsageError(f"repeat_queries is one of {', '.join(REPEATS)}")

    @classmethod
    def default(cls, *, loopback: bool) -> Policy:
        """Return the rules of a party without a policy file.

        On ``loopback`` the server is on the same machine, so this user can read its files anyway:
        any campaign, plain votes included, no least roster and no largest epsilon.
        """
        strict = cls()
        if not loopback:
            return strict
        return replace(
            strict,
            campaigns="any",
            aggregation=AGGREGATIONS,
            least_roster=None,
            least_survivors=0,
            least_colluders=0,
            largest_epsilon=None,
            encoders=None,
        )

    @property
    def allow_other(self) -> bool:
        """Whether queries of another campaign may get other votes or other survivors."""
        return self.repeat_queries == "allow"

    @property
    def divided_delta(self) -> Delta:
        """The delta of the party's accountant, with its parts."""
        return Delta(self.delta, self.failing_share)

    @property
    def bound(self) -> Bound:
        """The bound of the party's accountant, as recorded in the ledger."""
        most = self.largest_epsilon
        return Bound(None if most is None else float(most), self.divided_delta)

    def admit(
        self,
        offer: Offer,  # of the request, with all known terms of its campaign
        # of this offer, from :meth:`~party.ledger.ledger.PartyLedger.view`: the totals after this
        # request
        ledger_view: LedgerView,
        now: datetime,
        pinned_key: bytes | None = None,  # the campaign key of this party's enrolment
        ask: Callable[[Offer], bool] | None = None,
    ) -> None:
        """Return if this party may join or answer; to be called before either."""
        if ledger_view.of_request != (offer.campaign, offer.queries):
            raise UsageError("the view of the ledger is for another request")
        check_promise(offer)
        check_cap(offer, ledger_view)
        self._check_modes(offer)
        self._check_encoder(offer)
        if offer.queries:
            self._check_hours(now)
        self._check_roster(offer)
        self._check_threshold(offer)
        for mechanism in () if offer.settled is None else offer.settled.mechanisms:
            self._check_noise(mechanism)
        if offer.queries and offer.settled is None:
            for name in ("least_sigma", "least_noise_multiplier"):
                if getattr(self, name) is not None:
                    raise _no(name, plain(getattr(self, name)), "the request names no noise")
        self._check_queries(offer, ledger_view)
        self._check_epsilon(offer, ledger_view)
        self._check_campaign(offer, ledger_view.joined, pinned_key, ask)

    def _check_modes(self, offer: Offer) -> None:
        announced = offer.announced
        for rule, value, allowed in (
            ("aggregation", announced.sums.aggregation, self.aggregation),
            ("noise", announced.sums.noise, self.noise),
            ("units", announced.unit, self.units),
            # Teachers' votes have no code.
            (
                "codes",
                code_of(announced.code).name,
                self.codes if announced.records_vote else (*CODES, EACH, AXES),
            ),
            # Of teachers that vote for several labels it is the answer that is new.
            (
                "answers",
                code_of(announced.code).answer.permission,
                self.answers if announced.one_release else ANSWERS,
            ),
        ):
            if value not in allowed:
                raise _no(rule, ", ".join(allowed), f"the campaign has {value!r}")

    def _check_encoder(self, offer: Offer) -> None:
        if self.encoders is None or not offer.announced.schema.startswith("embeddings"):
            return
        encoder = encoder_in(offer.announced.schema)
        if encoder not in self.encoders:
            raise _no(
                "encoders",
                ", ".join(each[:8] for each in self.encoders) or "none",
                f"the campaign's inputs are made by the encoder {encoder}; add it if you trust it",
            )

    def _check_hours(self, now: datetime) -> None:
        if self.hours is not None and now not in self.hours:
            raise OutsideHoursError(str(_no("hours", str(self.hours), f"it is {now:%a %H:%M}")))

    def _check_roster(self, offer: Offer) -> None:
        found = None if offer.settled is None else offer.settled.identities
        if self.parties is not None and (found is not None or offer.queries):
            for name, key in (found or {"": ""}).items():
                if name not in self.parties:
                    raise _no(
                        "parties", "a list", f"{name or 'no party of the roster'} is not on it"
                    )
                if key != self.parties[name]:
                    raise _no("parties", "a list", f"{name} has another key than it has there")
        if self.least_roster is None:
            return
        if found is None:
            if offer.queries:
                raise _no("least_roster", self.least_roster, "the request has no roster")
        elif len(found) < self.least_roster:
            raise _no("least_roster", self.least_roster, f"the roster has {len(found)}")

    def _check_threshold(self, offer: Offer) -> None:
        if not offer.announced.sums.masked or offer.settled is None:
            return
        most, colluders = threshold_for(len(offer.settled.roster))
        for rule, own, default, found in (
            ("least_survivors", self.least_survivors, most, offer.announced.sums.min_parties),
            ("least_colluders", self.least_colluders, colluders, offer.announced.sums.colluders),
        ):
            least = default if own is None else own
            if found is None or found < least:
                raise _no(rule, least, f"the campaign's is {found}")

    def _check_noise(self, mechanism: Mechanism) -> None:
        for event in mechanism.worst:
            if self.least_sigma is not None:
                squared = _variance(event) / _grid(mechanism) ** 2
                if squared < self.least_sigma**2:
                    raise _no(
                        "least_sigma",
                        plain(self.least_sigma),
                        f"{mechanism.name} adds {math.sqrt(squared):.6g} votes",
                    )
            least = self.least_noise_multiplier
            if least is not None and 2 * event.rho * least**2 > 1:
                raise _no(
                    "least_noise_multiplier",
                    plain(least),
                    f"{mechanism.name} has {1 / math.sqrt(2 * event.rho):.6g}",
                )

    def _check_queries(self, offer: Offer, view: LedgerView) -> None:
        here = view.of(offer.campaign).queries
        # All of them before the first: a campaign that stops halfway has no use.
        if offer.announced.in_rounds:
            here = max(here, offer.announced.rounds * code_of(offer.announced.code).places)
        if self.max_queries is not None and here > self.max_queries:
            raise _no("max_queries", self.max_queries, f"this campaign would have {here}")
        total = sum(each.queries for each in view.campaigns)
        if self.max_queries_in_all is not None and total > self.max_queries_in_all:
            raise _no(
                "max_queries_in_all", self.max_queries_in_all, f"all campaigns would have {total}"
            )

    def _check_epsilon(self, offer: Offer, view: LedgerView) -> None:
        most = self.largest_epsilon
        if most is None:
            return
        # Before the terms are known there is only the announced budget.
        if offer.settled is None and offer.announced.epsilon > most:
            raise _no(
                "largest_epsilon",
                f"{most:g}",
                f"the campaign announces {offer.announced.epsilon:g}",
            )
        figure = cumulative_epsilon(view.campaigns, self.divided_delta, view.syntheses)
        if figure.epsilon > most:
            found = (
                figure.why_none or f"our cumulative epsilon would be {rounded_up(figure.epsilon)}"
            )
            raise _no("largest_epsilon", f"{most:g} at delta {self.delta:g}", found)

    def _check_campaign(
        self,
        offer: Offer,
        joined: bool,
        pinned_key: bytes | None,
        ask: Callable[[Offer], bool] | None,
    ) -> None:
        signed = f"it is signed by {offer.key.hex()}"
        if self.campaigns == "any":
            return
        if self.campaigns == "enrolled":
            if pinned_key is None:
                raise _no("campaigns", "enrolled", "this party is not enrolled with a server")
            if not hmac.compare_digest(pinned_key, offer.key):
                raise _no("campaigns", "enrolled", f"{signed}, not by the key of the enrolment")
        elif self.campaigns == "ask":
            if joined:
                return  # already accepted
            if ask is None:
                raise _no("campaigns", "ask", "there is no operator to ask")
            if not ask(offer):
                raise _no("campaigns", "ask", "the answer was no")
        elif not any(
            hmac.compare_digest(each.key, offer.key) and each.id in (None, offer.campaign)
            for each in self.campaigns
            if isinstance(each, Allowed)
        ):
            raise _no("campaigns", "a list", f"campaign {offer.campaign} is not on it; {signed}")


def _no(rule: str, value: object, found: str) -> RefusedError:
    return RefusedError(f"our policy refuses it: {rule} is {value}, and {found}")


def _variance(event: Event) -> Fraction:
    """Return the variance of the continuous law with the noise's parameters, in squared units."""
    if isinstance(event, LaplaceMax | GeometricHistogram):
        return 2 * event.scale**2
    return event.variance if isinstance(event, NoisyCounts) else event.sigma**2


def _grid(mechanism: Mechanism) -> int:
    """Return the units of its counts that are one vote."""
    return code_of(mechanism.code).grid if isinstance(mechanism, MatrixMechanism) else 1


def plain(value: int | Fraction) -> str:
    """Return a number as it is written on a screen."""
    return f"{float(value):.10g}"
