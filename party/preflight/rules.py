"""Checks of this site's policy and its ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from party.identity.keys import identity_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.file import policy_of, source_of
from party.policy.words import rules_in_words
from party.preflight.handshake import enrolment_of
from pate.errors import RefusedError
from pate.formats.privacy_statement import rounded_up
from pate.preflight import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from party.flower.supernode import Server
    from party.identity.enrolment import Enrolment
    from party.ledger.campaigns import CampaignRecord
    from party.options import CheckOptions
    from party.policy.policy import Policy


def last_campaign(options: CheckOptions) -> CampaignRecord | None:
    """Return the latest joined campaign that has not ended, or None."""
    ledger = PartyLedger.newest(options.place / LEDGER_FILE)
    open_ = [each for each in (ledger.campaigns() if ledger else ()) if each.ending is None]
    return open_[-1] if open_ else None


def check_ledger(options: CheckOptions) -> Finding:
    """Verify this party's ledger from the first entry to the last."""
    ledger = PartyLedger.newest(options.place / LEDGER_FILE)
    if ledger is None:
        return Finding.ok("none yet: nothing has left this machine")
    campaigns = ledger.campaigns()
    running = sum(each.ending is None for each in campaigns)
    return Finding.ok(
        f"holds, up to entry {ledger.head.partition(':')[0]}; {len(campaigns)} campaigns, {running} "
        "of them not ended"
    )


def policy_at(options: CheckOptions, server: Server | None) -> Policy:
    """Return the policy of a start with these options.

    Raises:
        UsageError, StateError: as :func:`party.policy.file.policy_of`.
    """
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
        return Finding.ok(f"{text}; now is outside of these hours: requests wait")
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
