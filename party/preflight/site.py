"""Checks of the site: its enrolment, keys and admission, its policy and its ledger."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import httpx
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from party.identity.keys import identity_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.file import policy_of, source_of
from party.policy.operator import rules_in_words
from party.preflight.network import enrolment_of
from pate.errors import RefusedError, StateError
from pate.foreign import json_value
from pate.formats.privacy_statement import rounded_up
from pate.preflight import Finding
from pate.preflight.checks import days_left
from pate.preflight.machine import open_to_others
from pate.printable import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from party.flower.supernode import Server
    from party.identity.enrolment import Enrolment
    from party.ledger.state import Campaign
    from party.options import CheckOptions
    from party.policy.policy import Policy
    from party.preflight.network import Handshake

#: The header with a node's public key (PEM, in base64), and the route that admits a node.
KEY_HEADER: Final = "flwr-public-key"
_ROUTE: Final = "/v1/fleet/activate-node"
_LARGEST_REFUSAL: Final = 4096
#: Files that only this party may read; each may be absent before it is needed.
_SECRET: Final = (
    "identity.key", "shard.key", "noise.db", "ledger.db", "enrolments/*/node.key",
    "enrolments/*/identity.new", "enrolments/*/sealing.new", "sealing.key", "bundles.db",
)  # fmt: skip


def check_enrolment(options: CheckOptions, server: Server | None) -> Finding:
    """Report whether this party is enrolled, with which server, and until when."""
    found, now = enrolment_of(options), options.clock()
    if found is None:
        if options.bundle is not None:
            return Finding.ok(f"not yet; {options.bundle} can be used: `pate-party enroll` it")
        if server is not None and server.in_clear:
            return Finding.ok("none, and none is needed for a trial on this machine")
        return Finding.warning(
            f"there is none in {options.place}",
            "ask the coordinator for a bundle, and `pate-party enroll` it; on this machine alone a "
            "trial needs none",
        )
    found.require_valid(now)
    text = (
        f"as {found.name} with {found.server}; its authority ends {found.ends:%Y-%m-%d} "
        f"({days_left(found.ends, now)})"
    )
    if warnings := found.warnings(now):
        return Finding.warning(text, "; ".join(warnings))
    return Finding.ok(text)


def check_keys(options: CheckOptions) -> Finding:
    """Check that no other user may read this party's private files."""
    home = options.place
    files = [path for pattern in _SECRET for path in sorted(home.glob(pattern)) if path.is_file()]
    if not files:
        return Finding.ok("none yet: they are made by `pate-party enroll`, or at the first start")
    open_ = open_to_others(files)
    if not open_:
        return Finding.ok("for their owner alone")
    names = ", ".join(str(path.relative_to(home)) for path in open_)
    to_do = f"chmod 600 {' '.join(str(path) for path in open_)}"
    if not open_to_others([home]):
        return Finding.warning(f"others could read {names} if they could enter {home}", to_do)
    return Finding.failed(
        StateError,
        f"others on this machine may read {names}",
        f"{to_do}; if somebody may have read a key: `pate-server revoke`, then enrol anew",
    )


def check_admission(options: CheckOptions, server: Server, handshake: Handshake) -> Finding:
    """Check that the server still knows this party's node key; the unsigned request changes nothing."""
    from party.flower.internals import KEY_NEEDED, KEY_REFUSED

    enrolment = enrolment_of(options)
    if enrolment is None:
        return Finding.skipped("not enrolled yet")
    if handshake.error is not None or handshake.status != httpx.codes.OK:
        return Finding.skipped("the server could not be asked")
    key = load_ssh_private_key(enrolment.node_key.read_bytes(), None).public_key()
    named = base64.b64encode(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    headers = {KEY_HEADER: named.decode(), "content-type": "application/protobuf"}
    try:
        with (
            server.client(options.timeout) as client,
            client.stream("POST", server.url + _ROUTE, content=b"", headers=headers) as reply,
        ):
            status, code = reply.status_code, _code(reply)
    except httpx.HTTPError as error:
        return Finding.skipped(f"the server did not answer: {error}")
    if status == httpx.codes.PRECONDITION_FAILED and code in (KEY_NEEDED, KEY_REFUSED):
        return Finding.failed(
            RefusedError,
            f"{server.address} does not know the key of this enrolment: revoked, or replaced by a "
            "newer one",
            "ask the coordinator (`pate-server parties`) for a new bundle, and `pate-party enroll` it",
        )
    if status == httpx.codes.UNAUTHORIZED:
        return Finding.ok(f"{server.address} knows the key of this enrolment")
    return Finding.skipped(f"the server did not say (HTTP {status})")


def _code(reply: httpx.Response) -> object:
    """Return the code in a refusal; only as many bytes are read as a valid one can have."""
    try:
        found = json_value(next(reply.iter_raw(_LARGEST_REFUSAL), b""))
    except ValueError:
        return None
    return found.get("code") if isinstance(found, dict) else None


def last_campaign(options: CheckOptions) -> Campaign | None:
    """Return the latest joined campaign that has not ended, or None."""
    return _last_open(PartyLedger.newest(options.place / LEDGER_FILE))


def _last_open(ledger: PartyLedger | None) -> Campaign | None:
    campaigns = () if ledger is None else ledger.campaigns()
    return next((each for each in reversed(campaigns) if each.ending is None), None)


def check_ledger(options: CheckOptions) -> Finding:
    """Verify this party's ledger from the first entry to the last."""
    ledger = PartyLedger.newest(options.place / LEDGER_FILE)
    if ledger is None:
        return Finding.ok("none yet: nothing has left this machine")
    campaigns = ledger.campaigns()
    running = sum(each.ending is None for each in campaigns)
    return Finding.ok(
        f"verified, up to entry {ledger.head.partition(':')[0]}; "
        f"{number_of(len(campaigns), 'campaign')}, {running} of them not ended"
    )


def policy_at(options: CheckOptions, server: Server | None) -> Policy:
    """Return the policy of a start with these options."""
    # As at a start: an enrolled party is not a trial, even if its server is reached through a local tunnel.
    trial = (server is None or server.in_clear) and enrolment_of(options) is None
    return policy_of(options.place, loopback=trial, file=options.policy)


def check_policy(options: CheckOptions, server: Server | None) -> Finding:
    """Report what the policy allows, and whether it would refuse every campaign."""
    enrolment, policy = enrolment_of(options), policy_at(options, server)
    for why, to_do in _refuses_all(options, policy, enrolment):
        return Finding.failed(RefusedError, f"it would refuse every campaign: {why}", to_do)
    text = f"{source_of(options.place, options.policy)}: {'; '.join(rules_in_words(policy))}"
    if policy.campaigns == "enrolled" and enrolment is None:
        return Finding.warning(
            f"{text}; until this party is enrolled it would refuse every campaign",
            "`pate-party enroll` the coordinator's bundle",
        )
    if policy.hours is not None and options.clock().astimezone() not in policy.hours:
        text += "; now is outside of these hours: requests wait"
    ledger = PartyLedger.newest(options.place / LEDGER_FILE)
    last = _last_open(ledger)
    if ledger is None or last is None:
        return Finding.ok(f"{text}; the terms of a campaign are compared with it at a start")
    try:
        pinned = None if enrolment is None else enrolment.campaign_key
        policy.admit(last.offer, ledger.view(last.offer, None, None), options.clock(), pinned)
    except RefusedError as error:
        return Finding.warning(
            f"{text}; it refuses campaign {last.offer.campaign[:8]}, which we joined: {error}",
            "change the policy if that campaign still runs",
        )
    return Finding.ok(text)


def _refuses_all(
    options: CheckOptions, policy: Policy, enrolment: Enrolment | None
) -> Iterator[tuple[str, str]]:
    """Yield the reasons for which every campaign would be refused, and what to do about each."""
    listed = policy.parties
    name = enrolment.name if enrolment is not None else options.name
    if listed is not None and name is not None:
        edit = "mend [parties], or leave it out: a campaign's roster has every party on it, us too"
        if name not in listed:
            yield f"{name}, this party itself, is not in [parties]", edit
        elif (options.place / "identity.key").exists():
            own = identity_key(options.place).public_key().public_bytes_raw().hex()
            if listed[name] != own:
                yield f"[parties] has another key for {name} than this party's own", edit
    for rule in ("least_roster", "least_survivors"):
        least = getattr(policy, rule)
        if listed is not None and least is not None and least > len(listed):
            yield f"{rule} is {least}, and [parties] has {len(listed)}", f"lower {rule}"
    if options.data is not None and options.group is None and set(policy.units) == {"patient"}:
        yield (
            "it wants patients protected, and nothing says which rows are one patient's",
            "name the column with --group, or allow other units",
        )
    ledger = PartyLedger.newest(options.place / LEDGER_FILE)
    if ledger is None:
        return
    totals, most, bound = ledger.totals(), policy.largest_epsilon, policy.max_queries_in_all
    figure = ledger.cumulative_epsilon(policy.divided_delta)
    if most is not None and (totals or ledger.syntheses()) and figure.epsilon >= most:
        stands = (
            f"our own accountant has no figure ({figure.why_none})"
            if figure.why_none
            else f"our own accountant stands at {rounded_up(figure.epsilon)}"
        )
        to_do = "raise largest_epsilon if you mean to give more from these data"
        yield f"{stands}, largest_epsilon is {most:g}", to_do
    answered = sum(each.queries for each in totals)
    if bound is not None and answered >= bound:
        to_do = "raise max_queries_in_all if you mean to answer more"
        yield f"{answered} queries were answered, max_queries_in_all is {bound}", to_do
