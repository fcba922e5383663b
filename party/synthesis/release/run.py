"""The run of ``pate-party synthesize``: check, apply the policy, release, report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from party.identity.enrolment import Enrolment
from party.identity.keys import shard_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.binding import bind
from party.policy.file import policy_of
from party.synthesis.release import report
from party.synthesis.release.ledger_entry import entry_of, is_deniable, source_of
from party.synthesis.release.plan import plan_of
from party.synthesis.release.policy import NothingYet, budgets_of, check_allowed
from party.synthesis.release.release import Places, release, release_again
from party.synthesis.table.private_rows import read_rows
from party.synthesis.table.randomness import SystemRandomness
from party.synthesis.table.schema import read, read_signed, warnings
from pate.data.cells import Reading
from pate.errors import PateError, UsageError
from pate.noise.exact import SystemNoise
from pate.runtime.home import sweep_drafts

if TYPE_CHECKING:
    from party.ledger.accountant import Figure
    from party.ledger.synthesis import Synthesis
    from party.synthesis.release.options import SynthesisOptions
    from party.synthesis.release.release import Made
    from party.synthesis.table.domain import Domain
    from party.synthesis.table.private_rows import PrivateRows
    from pate.runtime.screen import Screen

#: In a home: reports of releases, by id.
REPORTS: Final = "synthesis"
#: Stands for the digest of data in a dry run, which writes no ledger entry.
_NO_DATA: Final = "00" * 32


def would_be(options: SynthesisOptions, screen: Screen) -> dict[str, Any]:
    """Check everything, and return the cost of a release; nothing is written.

    Raises:
        PateError: as :func:`make` would.
    """
    domain = _domain(options, screen)
    if options.model is not None:
        raise UsageError(
            "rows of a paid model cost nothing: there is nothing to try with --dry-run"
        )
    if options.out is not None:
        Places(
            out=options.out, model_out=options.model_out, keep_label=options.keep_label
        ).check_columns(domain)
    _rows(options, domain, screen)
    file = options.place / LEDGER_FILE
    ledger = PartyLedger.newest(file) or NothingYet()
    plan = plan_of(options.asked, domain)
    entry = entry_of(plan, domain, options.unit, _NO_DATA)
    policy = policy_of(options.place, loopback=False, file=options.policy)
    budgets = budgets_of(policy, options.max_epsilon, options.max_delta)
    check_allowed(plan, entry, domain, ledger, policy, budgets)
    screen.say(plan.in_words)
    figure = ledger.cumulative_epsilon(policy.divided_delta, entry)
    screen.say(f"cumulative guarantee of this home with these rows: {figure.in_words}")
    return _told(entry, figure) | {"dry_run": True}


def make(options: SynthesisOptions, screen: Screen) -> dict[str, Any]:
    """Make a release, and return its description.

    Raises:
        PateError: if schema, data, policy, budget or disk do not allow it.
    """
    if options.out is None:
        raise UsageError("--out names the file of rows")
    places = Places(out=options.out, model_out=options.model_out, keep_label=options.keep_label)
    for path in filter(None, (options.out, options.model_out)):
        sweep_drafts(path.parent, path.name)
    domain = _domain(options, screen)
    policy = policy_of(options.place, loopback=False, file=options.policy)
    if options.model is not None:
        ledger = PartyLedger(options.place / LEDGER_FILE)
        made = release_again(
            options.asked,
            options.model,
            domain,
            ledger=ledger,
            places=places,
            randomness=SystemRandomness(),
        )
    else:
        plan = plan_of(options.asked, domain)
        private = _rows(options, domain, screen)
        ledger = PartyLedger(options.place / LEDGER_FILE)
        entry = entry_of(plan, domain, options.unit, private.digest(shard_key(options.place)))
        budgets = budgets_of(policy, options.max_epsilon, options.max_delta)
        check_allowed(plan, entry, domain, ledger, policy, budgets)
        for line in bind(ledger, policy):
            screen.say(line)
        screen.say(plan.in_words)
        made = release(
            plan,
            entry,
            private.codes,
            domain,
            ledger=ledger,
            places=places,
            noise=SystemNoise(),
            randomness=SystemRandomness(),
        )
    figure = ledger.cumulative_epsilon(policy.divided_delta)
    _tell(options, made, domain, figure, screen)
    return _told(made.entry, figure) | {
        "rows": len(made.rows),
        "out": str(places.out),
        "sha256": made.output,
        "model_sha256": made.model,
    }


def _domain(options: SynthesisOptions, screen: Screen) -> Domain:
    """Return the schema; an enrolled party requires the signature of its campaign's key."""
    enrolment = Enrolment.load(options.place)
    if enrolment is None:
        domain = read(options.schema)
    else:
        domain = read_signed(options.schema, enrolment.campaign_key)
    for line in warnings(domain):
        screen.say(line, "warning")
    return domain


def _rows(options: SynthesisOptions, domain: Domain, screen: Screen) -> PrivateRows:
    if options.data is None:
        raise UsageError("--data names the table that the rows are modelled on")
    found = read_rows(
        options.data,
        domain,
        group=options.group,
        drop=tuple(options.drop or ()),
        columns_of_schema=options.columns_of_schema,
        strict=options.strict,
        reading=Reading.of(options.decimal, options.missing, options.thousands),
    )
    for line in found.odd.lines(len(found.codes)):
        screen.say(line, "warning")
    return found


def _tell(
    options: SynthesisOptions, made: Made, domain: Domain, figure: Figure, screen: Screen
) -> None:
    (source,) = made.about.sources
    screen.say(f"{options.out}: {source.in_words}")
    if len(made.rows) < options.asked.rows and options.asked.release == "seedless":
        screen.say(
            f"only {len(made.rows)} distinct rows were found: the schema is coarse",
            "warning",
        )
    if options.asked.release == "seedless":
        screen.say(
            f"plausible deniability with k={options.asked.k} holds automatically: no row has a seed"
            if is_deniable(options.asked, domain)
            else "no row has a seed, so every record is equally plausible; no k is stated, "
            f"since min_rows is {domain.min_rows}"
        )
    if options.keep_label:
        screen.say(
            "these rows have labels: try first whether a model trained only on them is good enough"
        )
    folder = options.place / REPORTS / made.entry.id
    try:
        report.write(folder, domain, made.rows, source.in_words)
        screen.say(f"report on the rows, for you only: {folder}")
    except PateError as error:  # the rows are written and paid for: a failed picture undoes nothing
        screen.say(f"no report: {error}", "warning")
    screen.say(f"cumulative guarantee of this home: {figure.in_words}")


def _told(entry: Synthesis, figure: Figure) -> dict[str, Any]:
    source = source_of(entry, entry.rows)
    return {
        "id": entry.id,
        "method": entry.method,
        "release": entry.release,
        "unit": entry.unit,
        "epsilon": source.epsilon,
        "delta": source.delta,
        "rho": str(entry.rho),
        "parent": entry.parent,
        "own_figure": {
            "epsilon": None if figure.why_none else figure.epsilon,
            "delta": figure.delta,
            "unit": figure.unit,
            "observer": figure.observer,
            "neighbours": figure.neighbours,
        },
    }
