"""``python -m benchmarks.costs.record_votes [--out DIR] [--quick]``: what records' votes cost.

Three tables. The first has masked sums of votes by each code, for 25 parties: bytes, and CPU seconds of
noise, masking and unmasking. The second has a party's own step over 50,000 records of a table, before its
votes are masked: hashes of its records, and its votes, the features of the table included; in a series also
the hashes of the votes of its units. The third has the same over 60,000 embeddings of 1,280 coordinates;
how long an encoder takes to make them, `benchmarks.encoders --time` measures. Parties run one after another
in one process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np

from benchmarks.costs import main_of
from benchmarks.costs.masking import Size, masked_sum
from party.voting.neighbour import NeighbourVotes
from party.voting.series import series_voters
from pate.campaign.neighbour_terms import MOST_VOTES
from pate.campaign.offer import Offer
from pate.campaign.representatives import choose
from pate.codes import DENSE, Code, code_of
from pate.data.embeddings import UNIT, Embeddings
from pate.data.values import Dataset, Inputs, Table
from pate.masking.context import threshold_for
from pate.masking.ring import ring_bits
from pate.mechanisms.least_noise import least_noise
from pate.noise.exact import SystemNoise
from pate.noise.share_laws import Shares
from pate.votes import Counts

PARTIES: Final = 25
EPSILON: Final = 1.0
#: Of Gaussian noise; that of nearest votes is geometric, at delta 0.
DELTA: Final = 1e-5
RECORDS, PUBLIC = 50_000, 10_000
#: Embedded records, public rows, and coordinates.
EMBEDDED, ROWS, WIDTH = 60_000, 4_000, 1_280
#: A party's own step, processor seconds; many directions of kernel features take longer.
PROMISED: Final = 2.0
#: Code, rows and columns of the sums.
SUMS: Final = (
    ("nearest", 353, 10),
    ("nearest", 128, 77),
    ("dense-128", 128, 77),
)
#: Code and representatives of the step.
STEPS: Final = (
    ("nearest", 400),
    ("dense-64", 64),
    ("dense-128", 128),
    ("dense-512", 512),
)
#: The same over embeddings.
EMBEDDED_STEPS: Final = (("nearest", 400), ("dense-128", 128), ("dense-512", 512))
_CLASSES: Final = ("no", "yes")


@dataclass(frozen=True)
class Matrix(Size):
    """The size of a sum of records' votes, with noise.

    Attributes:
        code: of the votes.
    """

    code: str = "nearest"

    @property
    def shares(self) -> Shares:
        """The law of each party's noise."""
        threshold, colluders = threshold_for(self.parties)
        delta = 0.0 if self.code == "nearest" else DELTA
        return least_noise(EPSILON, delta, threshold - colluders, 1, self.code)

    @property
    def bits(self) -> int:
        """Width of the ring, as for a campaign with these terms."""
        most = code_of(self.code).bounds(self.parties * MOST_VOTES)[1]
        return ring_bits(most + self.shares.reach(self.parties, self.queries * self.classes))

    def votes(self, number: int) -> Counts:
        """(queries, classes) int64 of a party: counts as large as may be."""
        low, high = code_of(self.code).bounds(MOST_VOTES)
        rng = np.random.default_rng([self.queries, number])
        return rng.integers(low, high, (self.queries, self.classes), endpoint=True)


def sum_of(code: str, rows: int, columns: int, parties: int = PARTIES) -> dict[str, Any]:
    """Return bits, bytes and CPU seconds of one sum."""
    size = Matrix(parties, rows, classes=columns, code=code)
    shares, noise = size.shares, SystemNoise()
    _, drawing = _timed(lambda: shares.draw(noise, rows * columns))
    costs = masked_sum(size).costs()
    server = costs["server_seconds"]
    return {
        "code": code, "rows": rows, "columns": columns, "bits": size.bits,
        "vote_bytes": costs["bytes_up"]["votes"],
        "noise_seconds": drawing,
        "mask_seconds": costs["party_seconds"]["votes"],
        "add_seconds": server["votes"],
        "unmask_seconds": server["unmask"],
    }  # fmt: skip


def step_of(
    code: Code, representatives: tuple[int, ...], public: Inputs, records: Dataset
) -> dict[str, Any]:
    """Return the CPU seconds of a party's step, by part."""
    votes = NeighbourVotes(records, os.urandom(32))
    _, hashing = _timed(lambda: votes.fingerprint)
    _, voting = _timed(
        lambda: votes.vote(
            public, representatives, _CLASSES, votes_per_patient=None, most_votes=MOST_VOTES,
            code=code,
        )
    )  # fmt: skip
    units = 0.0
    if isinstance(public, Table):  # of embeddings there are no series without identifiers
        # The hashes need no more of the terms than these.
        offer = cast("Offer", SimpleNamespace(key=bytes(32), series="monthly"))
        _, units = _timed(lambda: series_voters(votes, offer, os.urandom(32), _none, None))
    return {
        "code": str(code), "representatives": len(representatives), "hash_seconds": hashing,
        "vote_seconds": voting, "series_seconds": units, "seconds": hashing + voting + units,
    }  # fmt: skip


def table(rows: int, seed: int) -> Table:
    """Return made-up rows of five columns of numbers and seven of 2 to 40 categories."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(0)
    hidden = rng.normal(size=(rows, 4))
    numbers = [np.round(20 * hidden @ fixed.normal(size=4)) for _ in range(5)]
    texts = [
        np.array([f"category {at}" for at in range(size)])[
            np.digitize(hidden @ fixed.normal(size=4), np.linspace(-2, 2, size - 1))
        ]
        for size in (2, 5, 6, 7, 8, 14, 40)
    ]
    return Table(tuple(f"column {at}" for at in range(12)), (*numbers, *texts))


def embedded(rows: int, seed: int, width: int = WIDTH) -> Dataset:
    """Return made-up embeddings around two directions, and which of them each is near."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, rows)
    middles = np.random.default_rng(0).normal(size=(2, width)).astype(np.float32)
    points = middles[labels] + 2 * rng.normal(size=(rows, width)).astype(np.float32)
    points /= np.sqrt(np.square(points).sum(axis=1, keepdims=True))
    whole = np.round(points * UNIT).astype(np.int16)
    return Dataset(Embeddings(whole, "images", "0" * 64), labels.astype(np.int64), _CLASSES)


def _records() -> Dataset:
    inputs = table(RECORDS, 2)
    labels = (np.asarray(inputs.columns[0], dtype=np.float64) > 0).astype(np.int64)
    return Dataset(inputs, labels, _CLASSES)


def _none(_: object) -> frozenset[bytes]:
    return frozenset()


def _timed(what: Callable[[], object]) -> tuple[object, float]:
    began = time.process_time()
    found = what()
    return found, time.process_time() - began


def run(*, quick: bool = False) -> dict[str, Any]:
    """Return all figures, and whether each code keeps the promise."""
    sums = [sum_of(*each, parties=5 if quick else PARTIES) for each in SUMS]
    tables = table(PUBLIC, 1), _records()
    images = embedded(ROWS, 1).inputs, embedded(EMBEDDED, 2)
    steps, of_embeddings = (
        [
            step_of(code_of(code), choose(public, number, lambda _: None), public, records)
            for code, number in (some[:1] if quick else some)
        ]
        for some, (public, records) in ((STEPS, tables), (EMBEDDED_STEPS, images))
    )
    checks = {
        f"a party's step over {RECORDS:,} records, {each['code']}": {
            "found": each["seconds"],
            "promised": f"< {PROMISED:g} s",
            "holds": each["seconds"] < PROMISED,
        }
        for each in steps
        if code_of(each["code"]).name != DENSE
    }
    return {
        "cores": os.cpu_count(),
        "parties": PARTIES,
        "sums": sums,
        "steps": steps,
        "steps_over_embeddings": of_embeddings,
        "checks": checks,
    }


if __name__ == "__main__":
    main_of(__doc__, "record_votes", run)
