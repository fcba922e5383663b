"""A release of synthetic rows: reserve, fit, write, spend.

The order is essential for privacy. The cost is durable in the party's ledger before any noise is
drawn, and it is never refunded: after a crash it is unknown what was seen. The file of rows gets
its name only when it is complete.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from party.synthesis.release.ledger_entry import entry_of_model, source_of
from party.synthesis.release.parquet import About, to_bytes
from party.synthesis.release.plan import SEEDS, check_size
from party.synthesis.seeds.mechanism import release_seeded
from party.synthesis.table.coding import decode
from party.synthesis.table.network import Network
from party.synthesis.table.randomness import require_production as require_random
from pate.errors import AccountingError, DataError, RefusedError, UsageError
from pate.noise.exact import require_production
from pate.runtime.failpoints import reach
from pate.runtime.home import write_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from party.ledger.ledger import PartyLedger
    from party.ledger.synthesis import Synthesis
    from party.synthesis.release.plan import Plan, ReleaseRequest
    from party.synthesis.table.domain import Domain
    from party.synthesis.table.randomness import Randomness
    from pate.noise.exact import Noise

#: Draws to find distinct rows.
_ROUNDS: Final = 20


@dataclass(frozen=True, kw_only=True)
class Places:
    """Output files of a release.

    Attributes:
        out: the file of rows.
        model_out: the file of the model, or None if it is not kept.
        keep_label: whether the label's column is written, too.

    Raises:
        UsageError: if a file exists already, or a folder is missing, before anything is paid for.
    """

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

    def check_columns(self, domain: Domain) -> None:
        """Check that at least one column of this schema would be written.

        Raises:
            UsageError: if none is.
        """
        if not _columns(domain, keep_label=self.keep_label):
            raise UsageError(
                f"the schema has only the label {domain.label!r}, and without --keep-label no "
                "column would be written"
            )


@dataclass(frozen=True, eq=False)
class Made:
    """The result of a release.

    Attributes:
        entry: of the release in the ledger.
        rows: (n, attributes) written codes, the label's included.
        about: metadata of the file.
        output: SHA-256 of the file, hex.
        model: SHA-256 of the model's file, hex, or None if it was not stored.
    """

    entry: Synthesis
    rows: NDArray[np.intp]
    about: About
    output: str
    model: str | None


def release(
    plan: Plan,
    entry: Synthesis,
    codes: NDArray[np.intp],
    domain: Domain,
    *,
    ledger: PartyLedger,
    places: Places,
    noise: Noise,
    randomness: Randomness,
) -> Made:
    """Reserve the cost, learn a model of the rows, and write synthetic ones.

    Args:
        plan: of the release, with its cost.
        entry: for the ledger, from :func:`~party.synthesis.release.ledger_entry.entry_of`; allowed
            by the site's policy.
        codes: (n, attributes) the site's rows, checked.
        domain: the public schema.
        ledger: the site's ledger.
        places: of the files.
        noise: of the operating system.
        randomness: of the operating system.

    Raises:
        UsageError: for seeded noise or randomness, or if no column would be written.
        DataError: if no row came out of a seeded release.
        DiskError: if the cost cannot be recorded, or a file not written.
    """
    require_production(noise)
    require_random(randomness)
    domain.check_codes(codes)
    places.check_columns(domain)
    ledger.reserve(entry)
    reach("party-synthesis-reserved")
    is_seed = np.zeros(len(codes), dtype=np.bool_)
    if plan.asked.release == "seeded":
        # Rows are assigned independently.
        is_seed = randomness.below(SEEDS.denominator, len(codes)) < SEEDS.numerator
    fitted = plan.generator.fit(codes[~is_seed], domain, plan.asked.epsilon, noise, randomness)
    if fitted.price != plan.price:
        raise AccountingError("the model's cost differs from the reserved one: nothing leaves")
    network, seeds, rows = fitted.network, codes[is_seed], plan.asked.rows
    if plan.seeded is not None:
        made = release_seeded(seeds, network, plan.seeded, noise, randomness)
    else:
        made = _drawn(network, rows, randomness, keep_label=places.keep_label)
    return _write(made, entry, domain, ledger, places, network)


def release_again(
    asked: ReleaseRequest,
    model: Path,
    domain: Domain,
    *,
    ledger: PartyLedger,
    places: Places,
    randomness: Randomness,
) -> Made:
    """Write more rows of a paid model: no data is read, and nothing charged.

    Args:
        asked: only its number of rows is used.
        model: its file.
        domain: the public schema.
        ledger: the site's ledger, with the release that paid.
        places: of the files.
        randomness: of the operating system.

    Raises:
        UsageError: if no column would be written, or too many rows.
        RefusedError: if the model was not paid for here.
        StateError: if it is damaged.
        SchemaError: if it is one of another schema.
        DiskError: if it cannot be recorded or written.
    """
    require_random(randomness)
    places.check_columns(domain)
    check_size(asked, domain)
    network = Network.load(model, domain)
    digest = hashlib.sha256(network.to_bytes()).hexdigest()
    paid = ledger.paid_model(digest)
    if paid is None:
        raise RefusedError(
            f"refused: {model} was not paid for in this party's ledger, so the cost of its rows "
            "is unknown (an interrupted release has paid, but for no model)"
        )
    entry = entry_of_model(asked, paid.synthesis, digest)
    ledger.reserve(entry)
    reach("party-synthesis-reserved")
    made = _drawn(network, asked.rows, randomness, keep_label=places.keep_label)
    return _write(made, entry, domain, ledger, places, None)


def _drawn(
    network: Network, rows: int, randomness: Randomness, *, keep_label: bool
) -> NDArray[np.intp]:
    """Return rows of a model: all rows if they have labels, distinct rows without.

    A repeated query is not informative, and a campaign with noise shares refuses it.
    """
    if keep_label:
        return network.sample(rows, randomness)
    kept = _columns(network.domain, keep_label=False)
    found = network.sample(rows, randomness)
    for _ in range(_ROUNDS):
        found = found[_first_of_each(found[:, kept])]
        if len(found) >= rows:
            break
        found = np.concatenate([found, network.sample(rows, randomness)])
    return found[_first_of_each(found[:, kept])][:rows]


def _first_of_each(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.sort(np.unique(rows, axis=0, return_index=True)[1])


def _columns(domain: Domain, *, keep_label: bool) -> list[int]:
    return [at for at, name in enumerate(domain.names) if keep_label or name != domain.label]


def _write(
    rows: NDArray[np.intp],
    entry: Synthesis,
    domain: Domain,
    ledger: PartyLedger,
    places: Places,
    network: Network | None,
) -> Made:
    """Write model and rows, and record them."""
    if not places.keep_label and len(rows):
        rows = rows[_first_of_each(rows[:, _columns(domain, keep_label=False)])]
    model = None
    if places.model_out is not None and network is not None:
        # The model first: others wait only for the rows.
        content = network.to_bytes()
        write_file(places.model_out, content)
        model = hashlib.sha256(content).hexdigest()
    if not len(rows):
        raise DataError(
            "no candidate passed the test, so there is no row to write; the attempts are "
            "charged all the same. A seedless release always has rows"
        )
    without = () if places.keep_label or domain.label is None else (domain.label,)
    about = About(domain.digest.hex(), (source_of(entry, len(rows)),))
    content = to_bytes(decode(rows, domain, without), about)
    write_file(places.out, content, mode=0o644)
    reach("party-synthesis-written")
    output = hashlib.sha256(content).hexdigest()
    ledger.spend(entry.id, output=output, model=model)
    return Made(entry, rows, about, output, model)
