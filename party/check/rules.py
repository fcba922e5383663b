"""Checks of what this site agrees to, and of what it has answered: its policy and its ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from party.check.asked import enrolment_of
from party.keys import identity_key
from party.ledger import LEDGER_FILE
from party.ledger_look import newest_books
from party.policy import POLICY_FILE
from party.policy_file import policy_of, read_policy
from pate.errors import RefusedError
from pate.runtime.preflight.finding import Finding
from pate.statement import rounded_up

if TYPE_CHECKING:
    from party.check.asked import Asked
    from party.enrolment import Enrolment
    from party.ledger import CampaignRecord, PartyLedger
    from party.policy import Policy
    from pate.runtime.preflight.meeting import Target


def books_of(asked: Asked) -> PartyLedger | None:
    """Return this party's ledger, to look at, None if it has none yet.

    Raises:
        LedgerError: if it does not hold, or a start would refuse it as gone or older than it was.
        StateError, DiskError: if it cannot be read.
    """
    return newest_books(asked.home / LEDGER_FILE)


def last_campaign(asked: Asked) -> CampaignRecord | None:
    """Return the campaign that was joined last and has not ended, None if there is none."""
    books = books_of(asked)
    open_ = [each for each in (books.campaigns() if books else ()) if each.ending is None]
    return open_[-1] if open_ else None


def check_books(asked: Asked) -> Finding:
    """Read this party's ledger from its first entry to its last."""
    books = books_of(asked)
    if books is None:
        return Finding.ok("none yet: nothing has left this machine")
    campaigns = books.campaigns()
    running = sum(each.ending is None for each in campaigns)
    return Finding.ok(
        f"holds, up to entry {books.head.partition(':')[0]}; {len(campaigns)} campaigns, {running} "
        "of them not ended"
    )


def policy_for(asked: Asked, target: Target | None) -> Policy:
    """Return the policy that a start would have.

    Raises:
        DataError: if it cannot be read.
        UsageError: if it cannot be understood.
    """
    # As at a start: who is enrolled is no trial, even if a tunnel begins on this machine.
    trial = (target is None or not target.tls) and enrolment_of(asked) is None
    if asked.policy is not None:
        return read_policy(asked.policy, loopback=trial)
    return policy_of(asked.home, loopback=trial)


def check_policy(asked: Asked, target: Target | None) -> Finding:
    """Say what the policy allows, and whether there is any campaign that it would not refuse."""
    policy, enrolment = policy_for(asked, target), enrolment_of(asked)
    for why, mend in _refuses_all(asked, policy, enrolment):
        return Finding.failed(RefusedError, f"it would refuse every campaign: {why}", mend)
    path = asked.policy or asked.home / POLICY_FILE
    source = str(path) if path.exists() else "the default one"
    text = f"{source}: {'; '.join(policy.in_words())}"
    if policy.campaigns == "enrolled" and enrolment is None:
        return Finding.warning(
            f"{text}; until this party is enrolled it would refuse every campaign",
            "`pate-party enroll` the coordinator's bundle",
        )
    if policy.hours is not None and asked.clock().astimezone() not in policy.hours:
        return Finding.ok(f"{text}; now is outside of these hours: requests wait")
    return Finding.ok(text)


def _refuses_all(
    asked: Asked, policy: Policy, enrolment: Enrolment | None
) -> list[tuple[str, str]]:
    """Return why no campaign at all could be answered, and what to do about each reason."""
    return [
        *_roster(asked, policy, enrolment),
        *_units(asked, policy),
        *_spent(asked, policy),
    ]


def _roster(asked: Asked, policy: Policy, enrolment: Enrolment | None) -> list[tuple[str, str]]:
    listed = policy.parties
    if listed is None:
        return []
    found = []
    name = enrolment.name if enrolment is not None else asked.name
    edit = "mend [parties], or leave it out: a campaign's roster has every party on it, us too"
    if name is not None and name not in listed:
        found.append((f"{name}, this party itself, is not in [parties]", edit))
    elif name is not None and (asked.home / "identity.key").exists():
        own = identity_key(asked.home).public_key().public_bytes_raw().hex()
        if listed[name] != own:
            found.append((f"[parties] has another key for {name} than this party's own", edit))
    for rule in ("least_roster", "least_survivors"):
        least = getattr(policy, rule)
        if least is not None and least > len(listed):
            found.append((f"{rule} is {least}, and [parties] has {len(listed)}", f"lower {rule}"))
    return found


def _units(asked: Asked, policy: Policy) -> list[tuple[str, str]]:
    if asked.data is not None and asked.group is None and set(policy.units) == {"patient"}:
        return [
            (
                "it wants patients protected, and nothing says which rows are one patient's",
                "name the column with --group, or allow other units",
            )
        ]
    return []


def _spent(asked: Asked, policy: Policy) -> list[tuple[str, str]]:
    books = books_of(asked)
    if books is None:
        return []
    found, totals = [], books.totals()
    figure, most = books.own_figure(policy.divided_delta), policy.largest_epsilon
    if most is not None and (totals or books.syntheses()) and figure.epsilon >= most:
        stands = (
            f"our own accountant has no figure ({figure.why_none})"
            if figure.why_none
            else f"our own accountant stands at {rounded_up(figure.epsilon)}"
        )
        mend = "raise largest_epsilon if you mean to give more from these data"
        found.append((f"{stands}, largest_epsilon is {most:g}", mend))
    answered, bound = sum(each.queries for each in totals), policy.max_queries_in_all
    if bound is not None and answered >= bound:
        mend = "raise max_queries_in_all if you mean to answer more"
        found.append((f"{answered} queries were answered, max_queries_in_all is {bound}", mend))
    return found
