"""Checks of a campaign: its public set, its settings, its budget, its ledger, and the ledger's database."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from aggregator_server.campaign.sums import BATCH_COUNTS
from aggregator_server.identities import require_lasting_key
from aggregator_server.ledger import verify as audit
from aggregator_server.ledger.store import stores
from aggregator_server.ledger.store.place import ANCHOR_FILE, InDatabase, place_of
from aggregator_server.preflight.identity import identities_of
from aggregator_server.results.statement import promised
from pate.campaign.choices import TEACHERS_EACH
from pate.campaign.settings import of_gated_delta, spec_of
from pate.campaign.terms import budget, composition_of, resolve
from pate.codes import code_of
from pate.data.embeddings import Embeddings
from pate.data.read import read_inputs
from pate.data.values import Images, Table
from pate.encoders.reading import Reader
from pate.errors import StateError
from pate.planning.forecast import expected, teachers_wanted
from pate.preflight import Finding, Skipped
from pate.printable import number_of
from protos.bounds import MAX_PUBLIC_SET, PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aggregator_server.options import CheckOptions
    from pate.campaign.spec import CampaignSpec
    from pate.data.values import Inputs


def read_public(options: CheckOptions, say: Callable[[str], None]) -> Inputs:
    """Read the public set.

    ``say``: as of :func:`pate.data.read.read_inputs`.
    """
    if options.public is None:
        raise Skipped("no public set is named: --public")
    return read_inputs(
        options.public,
        drop=options.dropped,
        window=options.window,
        say=say,
        encoder=Reader.open(options.encoder),
        text=options.text,
    )


def specification(options: CheckOptions, inputs: Inputs) -> CampaignSpec:
    """Return the specification that a start would make of the options; nothing is stored.

    The representatives of neighbour votes are only counted: choosing them would take long.
    """
    require_lasting_key(options.series, identities_of(options))
    return spec_of(
        options,
        inputs,
        chosen=lambda inputs, number, _: tuple(range(min(number, len(inputs)))),
    )


def check_public(inputs: Inputs, notes: Sequence[str]) -> Finding:
    """Describe the public set and its transfer, and say what was noted while it was read."""
    size = _bytes(inputs)
    what = f"{len(inputs.names)} columns" if isinstance(inputs, Table) else inputs.schema()
    text = f"{len(inputs)} inputs, {what}"
    if size >= MAX_PUBLIC_SET:
        return Finding.warning(
            f"{text}; {size / 2**30:.1f} GiB are too large to be sent to a party that has no copy",
            "use fewer inputs, or give every party its own copy (--public there)",
        )
    text += f"; sent in {number_of(max(1, math.ceil(size / PIECE_BYTES)), 'piece')}"
    text = "; ".join([text, *notes])
    if copies := len(inputs) - len(set(inputs.row_hashes())):
        return Finding.warning(
            f"{text}; {number_of(copies, 'input')} {'is' if copies == 1 else 'are'} there more than once",
            "leave the copies out: to teachers each is a query with a cost of its own, and with --noise "
            "distributed a campaign in several batches refuses them",
        )
    if notes:
        return Finding.warning(text, "see whether it is read as it is meant, or continue")
    return Finding.ok(text)


def _bytes(inputs: Inputs) -> int:
    """Return the approximate size of the serialised public set, in bytes."""
    if isinstance(inputs, Images):
        return inputs.pixels.nbytes
    if isinstance(inputs, Embeddings):
        return inputs.values.nbytes
    return sum(
        8 * len(column) if column.dtype.kind == "f" else sum(map(len, column.tolist()))
        for column in inputs.columns
    )


def check_settings(spec: CampaignSpec) -> Finding:
    """Describe the settings, which were found consistent."""
    batches = ""
    if spec.classes is not None and not spec.one_release:
        number = math.ceil(spec.queries / max(1, BATCH_COUNTS // len(spec.classes)))
        batches = f", {number_of(number, 'batch', 'batches')}"
    sums = spec.sums
    votes = (
        f"{sums.aggregation} sums of {sums.min_parties} of {spec.wanted_parties} parties or more"
    )
    rounds = number_of(spec.rounds, "round")
    if spec.in_rounds:
        rounds = code_of(spec.code).rounds_in_words(spec.rounds)
    return Finding.ok(
        f"{spec.aggregator}, {rounds}{batches}; {votes}, {sums.noise} noise, {spec.publish}"
    )


def check_budget(options: CheckOptions, spec: CampaignSpec) -> Finding:
    """Report what to expect of the budget, independent of the votes.

    The figures are public: they follow from the settings and from a guessed number of teachers or records.
    """
    wanted = teachers_wanted(spec)
    teachers = options.expected_teachers or (wanted or TEACHERS_EACH) * spec.wanted_parties
    each = -(-teachers // spec.wanted_parties)
    votes = each if spec.unit == "party" else 1
    if spec.votes_per_patient is not None:
        votes = spec.votes_per_patient
    mechanisms = resolve(spec, teachers, votes)
    composition = composition_of(spec, mechanisms)
    cap = budget(spec, mechanisms, composition)
    promise = promised(spec, composition.epsilon(cap, spec.delta))
    found = expected(spec, replace(options.guess, teachers=options.expected_teachers))
    text = f"{promise}: {found.text}"
    if found.noise:
        text += f"; {found.noise}"
    helps = [found.advice] if found.advice else []
    if line := of_gated_delta(spec.publish, spec.delta):
        helps.append(line)
    return Finding.warning(text, "; ".join(helps)) if helps else Finding.ok(text)


def check_ledger(options: CheckOptions, spec: CampaignSpec | None) -> Finding:
    """Verify the campaign's ledger, if there is one, and report its state."""
    place = place_of(options.folder, options.ledger)
    if not stores.exists(place):
        return Finding.ok(f"none yet of {options.campaign!r}: a start will make it")
    state = audit.verify(place)
    text = (
        f"of {options.campaign!r}: holds, {state.head.seq} entries; the campaign is "
        f"{state.phase}, {len(state.labels)} labels released"
    )
    if state.roster:
        text += f", {100 * float(state.spent / state.cap):.0f} % of the budget charged"
    campaign = state.spec
    # The representatives of neighbour votes are chosen only at a start.
    if spec is not None and not (campaign.records_vote and spec.records_vote):
        try:
            campaign.require_same(spec)
        except StateError as error:
            raise StateError(f"{error}; or `pate-server resume` without them") from error
    if state.phase == "finished":
        return Finding.warning(
            text, "`pate-server export` its labels; name a new campaign with --campaign"
        )
    return Finding.ok(f"{text}; `pate-server resume` goes on with it")


def wants_database(folder: Path, ledger: str | None) -> bool:
    """Return whether the ledger of the campaign in ``folder`` is, or will be, in a database."""
    return ledger is not None or (folder / ANCHOR_FILE).exists()


def check_database(folder: Path, ledger: str | None) -> Finding:
    """Connect as a start would, and check a ledger's requirements; nothing is written.

    Raises: PateError: as a start would.
    """
    place = place_of(folder, ledger)
    if not isinstance(place, InDatabase):
        return Finding.skipped("the ledger of this campaign is a file")
    from aggregator_server.ledger.store.session import facts_of

    facts = facts_of(place)
    if not facts.may_create and not stores.exists(place):
        return Finding.failed(
            StateError,
            f"the role {facts.role} may not make a schema in {place.address}",
            "as the database's owner: GRANT CREATE ON DATABASE … TO …",
        )
    text = (
        f"PostgreSQL {facts.version} {facts.way}: fsync and full_page_writes on, "
        f"synchronous_commit={facts.synchronous_commit}, schema {place.schema}"
    )
    if facts.logs_values:
        return Finding.warning(
            f"{text}; its log would hold what is written, sums of votes too",
            f"as the database's owner: ALTER ROLE {facts.role} SET log_parameter_max_length = 0, and "
            "leave log_parameter_max_length_on_error at 0",
        )
    return Finding.ok(f"{text}; a server has it open" if facts.in_use else text)
