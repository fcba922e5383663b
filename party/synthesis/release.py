"""A release of synthetic rows: check, reserve, fit, write, spend; and more rows of a paid model.

The order is essential for privacy. The cost is durable in the party's ledger before any noise is
drawn, and it is never refunded: after a crash it is unknown what was seen. The file of rows gets
its name only when it is complete.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from party.identity.enrolment import Enrolment
from party.identity.keys import shard_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.file import policy_of
from party.policy.operator import bind
from party.synthesis.files import About, Source, to_bytes
from party.synthesis.network import Network
from party.synthesis.plan import (
    SEEDS,
    Wanted,
    budgets_of,
    check_size,
    entry_of_model,
    is_deniable,
    plan_of,
)
from party.synthesis.schema import read
from party.synthesis.seeds import release_seeded
from party.synthesis.table import decode, read_rows
from pate.data.cells import Reading
from pate.errors import DataError, RefusedError, UsageError
from pate.noise.exact import SystemNoise, require_production
from pate.runtime.failpoints import reach
from pate.runtime.home import sweep_drafts, write_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from party.ledger.accountant import Figure
    from party.ledger.synthesis import Synthesis
    from party.synthesis.options import SynthesisOptions
    from party.synthesis.plan import Plan
    from party.synthesis.schema import Domain
    from party.synthesis.table import PrivateRows
    from pate.noise.exact import Randomness
    from pate.noise.lanes import Lanes
    from pate.runtime.screen import Screen

#: Stands for the digest of data in a dry run, which writes no ledger entry.
_NO_DATA: Final = "00" * 32
#: Draws to find distinct rows.
_ROUNDS: Final = 20


@dataclass(frozen=True, kw_only=True)
class Places:
    """The new files of rows and, if stored, of their model; and whether rows have their label."""

    out: Path
    model_out: Path | None = None
    keep_label: bool = False

    def __post_init__(self) -> None:
        # Not resolve(), which raises another error for a link to itself.
        if self.model_out is not None and (
            os.path.realpath(self.out) == os.path.realpath(self.model_out)
        ):
            raise UsageError("--out and --model-out are the same file")
        for option, path in (("--out", self.out), ("--model-out", self.model_out)):
            if path is None:
                continue
            if path.exists():
                raise UsageError(f"{option}: {path} exists already; remove it, or name another")
            if not path.parent.is_dir():
                raise UsageError(f"{option}: there is no folder {path.parent}; create it")
        if self.out.suffix != ".parquet":
            raise UsageError(f"--out: {self.out} must end in .parquet")

    def columns(self, domain: Domain) -> list[int]:
        """Return the attributes that are written; UsageError if there is none."""
        found = domain.written(keep_label=self.keep_label)
        if not found:
            raise UsageError(
                f"the schema has only the label {domain.label!r}, and without --keep-label no "
                "column would be written"
            )
        return found


@dataclass(frozen=True, eq=False)
class Made:
    """A release: its entry, the written (n, attributes) codes with the label's, digests of its files."""

    entry: Synthesis
    rows: NDArray[np.intp]
    source: Source
    output: str
    model: str | None


def would_be(options: SynthesisOptions, screen: Screen) -> dict[str, Any]:
    """Check everything as :func:`make` does, and return the cost of a release; nothing is written."""
    domain = _domain(options, screen)
    if options.model is not None:
        raise UsageError(
            "rows of a paid model cost nothing: there is nothing to try with --dry-run"
        )
    if options.out is not None:
        places = Places(out=options.out, model_out=options.model_out, keep_label=options.keep_label)
        places.columns(domain)
    _rows(options, domain, screen)
    ledger = PartyLedger.newest(options.place / LEDGER_FILE)
    plan = plan_of(options.asked, domain)
    wanted = _wanted(plan, plan.entry(options.unit, _NO_DATA), ledger)
    policy = policy_of(options.place, loopback=False, file=options.policy)
    budgets = budgets_of(policy, options.max_epsilon, options.max_delta)
    wanted.check_allowed(policy, budgets)
    screen.say(plan.in_words)
    figure = wanted.figure(policy.divided_delta, wanted.entry)
    screen.say(f"cumulative guarantee of this home with these rows: {figure.in_words}")
    return _told(wanted.entry, figure) | {"dry_run": True}


def make(options: SynthesisOptions, screen: Screen) -> dict[str, Any]:
    """Make a release, and return its description."""
    if options.out is None:
        raise UsageError("--out names the file of rows")
    places = Places(out=options.out, model_out=options.model_out, keep_label=options.keep_label)
    for path in filter(None, (options.out, options.model_out)):
        sweep_drafts(path.parent, path.name)
    domain = _domain(options, screen)
    policy = policy_of(options.place, loopback=False, file=options.policy)
    source = SystemNoise()
    if options.model is not None:
        ledger = PartyLedger(options.place / LEDGER_FILE)
        made = release_again(
            options.asked.rows, options.model, domain, ledger=ledger, places=places, source=source
        )
    else:
        plan = plan_of(options.asked, domain)
        private = _rows(options, domain, screen)
        ledger = PartyLedger(options.place / LEDGER_FILE)
        entry = plan.entry(options.unit, private.digest(shard_key(options.place)))
        budgets = budgets_of(policy, options.max_epsilon, options.max_delta)
        _wanted(plan, entry, ledger).check_allowed(policy, budgets)
        for line in bind(ledger, policy):
            screen.say(line)
        screen.say(plan.in_words)
        made = release(plan, entry, private.codes, ledger=ledger, places=places, source=source)
    figure = ledger.cumulative_epsilon(policy.divided_delta)
    _tell(options, made, domain, figure, screen)
    return _told(made.entry, figure) | {
        "rows": len(made.rows),
        "out": str(places.out),
        "sha256": made.output,
        "model_sha256": made.model,
    }


def release(
    plan: Plan,
    entry: Synthesis,
    codes: NDArray[np.intp],
    *,
    ledger: PartyLedger,
    places: Places,
    source: Randomness,
) -> Made:
    """Reserve the cost of ``entry``, learn a model, and write rows; DataError if none came out."""
    require_production(source)
    plan.domain.check_codes(codes)
    kept, lanes = places.columns(plan.domain), source.lanes
    ledger.reserve(entry)
    reach("party-synthesis-reserved")
    is_seed = np.zeros(len(codes), dtype=np.bool_)
    if plan.seeded is not None:
        # Rows are assigned independently.
        is_seed = lanes.below(SEEDS.denominator, len(codes)) < SEEDS.numerator
    network = plan.generator.fit(codes[~is_seed], plan.domain, plan.asked.epsilon, source)
    if plan.seeded is not None:
        made = release_seeded(codes[is_seed], network, plan.seeded, source)
    else:
        made = _drawn(network, plan.asked.rows, lanes, places, kept)
    return _write(made, entry, network, ledger, places, new=True)


def release_again(
    rows: int,
    model: Path,
    domain: Domain,
    *,
    ledger: PartyLedger,
    places: Places,
    source: Randomness,
) -> Made:
    """Write more rows of a model that was paid for here: no data is read, and nothing charged."""
    require_production(source)
    kept = places.columns(domain)
    check_size(rows, domain)
    network = Network.load(model, domain)
    digest = hashlib.sha256(network.to_bytes()).hexdigest()
    paid = ledger.paid_model(digest)
    if paid is None:
        raise RefusedError(
            f"refused: {model} was not paid for in this party's ledger, so the cost of its rows "
            "is unknown (an interrupted release has paid, but for no model)"
        )
    entry = entry_of_model(rows, paid.synthesis, digest)
    ledger.reserve(entry)
    reach("party-synthesis-reserved")
    made = _drawn(network, rows, source.lanes, places, kept)
    return _write(made, entry, network, ledger, places, new=False)


def _wanted(plan: Plan, entry: Synthesis, ledger: PartyLedger | None) -> Wanted:
    if ledger is None:
        return Wanted(plan, entry)
    return Wanted(plan, entry, ledger.totals(), [each.synthesis for each in ledger.syntheses()])


def _domain(options: SynthesisOptions, screen: Screen) -> Domain:
    """Return the schema; an enrolled party requires the signature of its campaign's key."""
    enrolment = Enrolment.load(options.place)
    domain = read(options.schema, None if enrolment is None else enrolment.campaign_key)
    for each in domain.attributes:
        if len(each.codes) == 1:
            screen.say(f"column {each.name!r} has one code: it carries no information", "warning")
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


def _drawn(
    network: Network, rows: int, lanes: Lanes, places: Places, kept: list[int]
) -> NDArray[np.intp]:
    """Return rows of a model, distinct ones if they have no label: campaigns refuse repeated queries."""
    found = network.sample(rows, lanes)
    if places.keep_label:
        return found
    for _ in range(_ROUNDS):
        found = _first_of_each(found, kept)
        if len(found) >= rows:
            break
        found = np.concatenate([found, network.sample(rows, lanes)])
    return _first_of_each(found, kept)[:rows]


def _first_of_each(rows: NDArray[np.intp], columns: list[int]) -> NDArray[np.intp]:
    return rows[np.sort(np.unique(rows[:, columns], axis=0, return_index=True)[1])]


def _write(
    rows: NDArray[np.intp],
    entry: Synthesis,
    network: Network,
    ledger: PartyLedger,
    places: Places,
    *,
    new: bool,
) -> Made:
    """Write the rows, and the model if it is new, and record them."""
    domain = network.domain
    if not places.keep_label and len(rows):
        rows = _first_of_each(rows, places.columns(domain))
    model = None
    if places.model_out is not None and new:
        # The model first: others wait only for the rows.
        content = network.to_bytes()
        write_file(places.model_out, content)
        model = hashlib.sha256(content).hexdigest()
    if not len(rows):
        raise DataError(
            "no candidate passed the test, so there is no row to write; the attempts are "
            "charged all the same. A seedless release always has rows"
        )
    source = Source.of(entry, len(rows))
    table = decode(rows, domain, keep_label=places.keep_label)
    content = to_bytes(table, About(domain.digest.hex(), (source,)))
    write_file(places.out, content, mode=0o644)
    reach("party-synthesis-written")
    output = hashlib.sha256(content).hexdigest()
    ledger.spend(entry.id, output=output, model=model)
    return Made(entry, rows, source, output, model)


def _tell(
    options: SynthesisOptions, made: Made, domain: Domain, figure: Figure, screen: Screen
) -> None:
    asked, what = options.asked, made.source.in_words
    screen.say(f"{options.out}: {what}")
    if asked.release == "seedless":
        if len(made.rows) < asked.rows:
            screen.say(
                f"only {len(made.rows)} distinct rows were found: the schema is coarse", "warning"
            )
        screen.say(
            f"plausible deniability with k={asked.k} holds automatically: no row has a seed"
            if is_deniable(asked, domain)
            else "no row has a seed, so every record is equally plausible; no k is stated, "
            f"since min_rows is {domain.min_rows}"
        )
    if options.keep_label:
        screen.say(
            "these rows have labels: try first whether a model trained only on them is good enough"
        )
    screen.say(f"cumulative guarantee of this home: {figure.in_words}")


def _told(entry: Synthesis, figure: Figure) -> dict[str, Any]:
    source = Source.of(entry, entry.rows)
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
