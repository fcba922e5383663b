"""A site's policy in words, for its own screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from party.policy.policy import plain
from pate.answers import ANSWERS, LABELS
from pate.codes import CODES

if TYPE_CHECKING:
    from party.policy.policy import Policy


def rules_in_words(policy: Policy) -> tuple[str, ...]:
    """Return the rules as lines whose subject is the policy."""
    by_word = {
        "enrolled": "campaigns signed by the key that was pinned at enrolment",
        "any": "any campaign",
        "ask": "campaigns that the operator accepts, on the screen or the party's page",
    }
    campaigns = (
        by_word[policy.campaigns]
        if isinstance(policy.campaigns, str)
        else f"{len(policy.campaigns)} campaigns by key"
    )
    lines = [
        f"joins {campaigns}",
        f"accepts {' or '.join(policy.aggregation)} votes, with {' or '.join(policy.noise)} noise",
        f"accepts guarantees per {' or '.join(policy.units)}",
    ]
    if policy.codes != CODES:
        lines.append(f"accepts neighbour votes by the code {' or '.join(policy.codes)} only")
    if policy.answers != ANSWERS:
        teachers = "" if LABELS in policy.answers else ", and no teachers' votes for several labels"
        lines.append(
            f"accepts neighbour votes only with the answer {' or '.join(policy.answers)}{teachers}"
        )
    if policy.encoders != ():
        named = " or ".join(each[:8] for each in policy.encoders or ())
        by = "any public encoder" if policy.encoders is None else f"the public encoder {named}"
        lines.append(f"accepts inputs made by {by}")
    for value, text in (
        (policy.max_queries, "answers at most {} queries per campaign"),
        (policy.max_queries_in_all, "answers at most {} queries in all"),
        (policy.least_sigma, "needs noise of a standard deviation of at least {} votes"),
        (
            policy.least_noise_multiplier,
            "needs noise of at least {} times what one unit can move",
        ),
        (policy.least_roster, "needs at least {} parties"),
    ):
        if value is not None:
            lines.append(text.format(plain(value)))
    lines.append(
        "sets no largest epsilon for this party's own accountant"
        if policy.largest_epsilon is None
        else f"stops when this party's own accountant reaches {policy.bound.in_words}, over all campaigns"
    )
    if policy.parties is not None:
        lines.append(f"takes part with {', '.join(sorted(policy.parties))} only, by their keys")
    if policy.hours is not None:
        lines.append(f"votes only {policy.hours}, local time")
    lines.append(
        "lets queries of one campaign be unmasked in another with other parties, or get other votes"
        if policy.allow_other
        else "lets no query be unmasked twice with different parties, or get two different votes"
    )
    return tuple(lines)
