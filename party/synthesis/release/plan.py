"""The plan of a release of synthetic rows and its cost, computed from public values.

Nothing here reads data: a cost that depended on them would leak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from party.synthesis.generators.registry import generator_named
from party.synthesis.seeds.composition import TotalCost, check_attempts, total_cost
from party.synthesis.seeds.deniability import RandomizedTest, Seeds, coin, least_seeds
from party.synthesis.seeds.mechanism import SeededRelease
from party.synthesis.seeds.plausible_rows import bucket_width, check_resampled
from party.synthesis.table.rounding import round_up
from pate.accounting.conversion import epsilon_from_rho, float_up
from pate.data.limits import MAX_BYTES
from pate.errors import UsageError

if TYPE_CHECKING:
    from party.synthesis.choices import Method, Release
    from party.synthesis.generators.protocol import Generator, Price
    from party.synthesis.table.domain import Domain

#: Most rows in one file.
MOST_ROWS: Final = 10**7
#: Most rows times columns that the readers of this project accept.
MOST_CELLS: Final = 10**8
#: Share of the rows that are seeds in a seeded release; the model is learned from the others.
SEEDS: Final = Fraction(1, 2)
#: Share of delta for the event that there are fewer seeds than the cost assumes.
_FOR_THE_SPLIT: Final = Fraction(1, 100)
#: Attempts per wanted row.
_ATTEMPTS: Final = Fraction(5, 4)


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest:
    """A request for a release of synthetic rows.

    Attributes:
        rows: number of rows.
        epsilon: of the model, and so of a seedless release.
        method: name of the generator.
        release: ``seedless``, or ``seeded``.
        delta: of a seeded release, all attempts together.
        k: of the privacy test; a seedless release satisfies every k and gamma.
        gamma: of the privacy test.
        epsilon0: of the noise of the test.
        resampled: numbers of attributes to redraw, one of which is chosen per attempt; None for all
            numbers.
        attempts: T, all of which are charged; None for a quarter more than rows.

    Raises:
        UsageError: for invalid or inconsistent values.
    """

    rows: int
    epsilon: Fraction = Fraction(1)
    method: Method = "l1"
    release: Release = "seedless"
    delta: Fraction = Fraction(1, 10**6)
    k: int = 50
    gamma: Fraction = Fraction(4)
    epsilon0: Fraction = Fraction(1)
    resampled: tuple[int, ...] | None = None
    attempts: int | None = None

    def __post_init__(self) -> None:
        if type(self.rows) is not int or not 1 <= self.rows <= MOST_ROWS:
            raise UsageError(
                f"--rows must be a whole number from 1 to {MOST_ROWS}, got {self.rows}"
            )
        for name, value in (("epsilon", self.epsilon), ("eps0", self.epsilon0)):
            if not 0 < value <= 10**6:
                raise UsageError(f"--{name} must be a number above 0, got {float(value):g}")
        if not 0 < self.delta < 1:
            raise UsageError(f"--delta must be between 0 and 1, got {float(self.delta):g}")
        generator_named(self.method, self.delta)
        if self.release == "seedless":
            for option, given in (
                ("--attempts", self.attempts is not None),
                ("--omega", self.resampled is not None),
            ):
                if given:
                    raise UsageError(
                        f"{option} is for seeds: a seedless release makes as many rows as it is "
                        "asked for; leave it out, or ask for --release seeded"
                    )
        else:
            self._check_seeded()

    def _check_seeded(self) -> None:
        if self.method != "cfs":
            raise UsageError(f"--release seeded goes with --method cfs, not {self.method}")
        if self.attempts is not None and self.attempts < 1:
            raise UsageError(
                f"--attempts must be a whole number of at least 1, got {self.attempts}"
            )

    @property
    def tries(self) -> int:
        """T, attempts of a seeded release."""
        return math.ceil(_ATTEMPTS * self.rows) if self.attempts is None else self.attempts


@dataclass(frozen=True)
class Plan:
    """A release and its cost.

    Attributes:
        asked: the request.
        generator: that learns the model.
        price: of the model.
        epsilon: pure epsilon of the whole, or None.
        rho: of the whole, per row: the larger of model and seeds, since a row is in one of them.
        delta: of the whole, likewise.
        seeded: the release from seeds, or None.
        total: cost of its attempts, or None.
    """

    asked: ReleaseRequest
    generator: Generator
    price: Price
    epsilon: Fraction | None
    rho: Fraction
    delta: Fraction
    seeded: SeededRelease | None = None
    total: TotalCost | None = None

    @property
    def figure(self) -> tuple[float, float]:
        """(epsilon, delta) of the whole, by itself."""
        if self.epsilon is not None:
            return float_up(self.epsilon), 0.0
        delta = self.asked.delta
        # A generator without a pure epsilon states (epsilon, delta), though its rho may convert to
        # less.
        left = math.nextafter(float(delta - self.price.delta), 0.0)
        model = min(
            float_up(
                self.asked.epsilon if self.price.epsilon_pure is None else self.price.epsilon_pure
            ),
            epsilon_from_rho(self.price.rho, left),
        )
        seeds = 0.0 if self.total is None else float_up(self.total.epsilon)
        return max(model, seeds), float(delta)

    @property
    def in_words(self) -> str:
        """The release and its cost in one line."""
        asked = self.asked
        if self.total is not None:
            return (
                f"{asked.tries} attempts with k={asked.k} gamma={_plain(asked.gamma)} "
                f"eps0={_plain(asked.epsilon0)} cost eps={float(self.total.epsilon):.4g} "
                f"(delta {float(asked.delta):g})"
            )
        figure = self.epsilon if self.epsilon is not None else asked.epsilon
        return f"seedless rows by {asked.method} cost eps={_plain(figure)}, whatever their number"


def plan_of(asked: ReleaseRequest, domain: Domain) -> Plan:
    """Return the plan of a release.

    Args:
        asked: the request.
        domain: the public schema.

    Raises:
        UsageError: for values that do not fit the schema, or would make the release fail.
        InfeasibleError: if no cost can be stated for such a test, or so few rows.
    """
    check_size(asked, domain)
    generator = generator_named(asked.method, asked.delta)
    price = generator.price(domain, asked.epsilon)
    if asked.release == "seedless":
        return Plan(
            asked,
            generator,
            price,
            price.epsilon_pure,
            round_up(price.rho),
            round_up(price.delta),
        )
    resampled = resampled_of(asked, domain)
    check_attempts(asked.tries)
    test = RandomizedTest(asked.k, asked.gamma, asked.epsilon0)
    if len(resampled) > 1:
        bucket_width(asked.gamma)
    failure = asked.delta * _FOR_THE_SPLIT
    seeds = least_seeds(domain.min_rows, SEEDS, failure)
    known = Seeds(seeds, fixed=len(resampled) == 1)
    total = total_cost(test, asked.tries, asked.delta - failure, known)
    release = SeededRelease(
        test=test,
        resampled=resampled,
        attempts=asked.tries,
        rows=asked.rows,
        coin=coin(total.attempt.epsilon, seeds),
        least_seeds=seeds,
    )
    return Plan(
        asked,
        generator,
        price,
        None,
        max(round_up(price.rho), total.rho),
        max(round_up(price.delta), round_up(total.rho_delta + failure)),
        release,
        total,
    )


def check_size(asked: ReleaseRequest, domain: Domain) -> None:
    """Check the size of the rows before anything is paid for them.

    Raises:
        UsageError: if they are too many for their columns.
    """
    # A text takes as much memory as the longest code of its column.
    width = sum(
        8 if each.edges is not None else 4 * max(map(len, each.codes)) for each in domain.attributes
    )
    most = min(MOST_CELLS // len(domain), MAX_BYTES // width)
    if asked.rows > most:
        raise UsageError(
            f"--rows {asked.rows}: with the {len(domain)} columns of this schema at most {most} "
            "rows fit in one file; ask for fewer"
        )


def resampled_of(asked: ReleaseRequest, domain: Domain) -> tuple[int, ...]:
    """Return the numbers of attributes to redraw.

    Raises:
        UsageError: for a number outside 1..m.
    """
    m = len(domain)
    wanted = (m,) if asked.resampled is None else asked.resampled
    if any(not 1 <= each <= m for each in wanted):
        raise UsageError(f"--omega must be between 1 and the {m} columns of the schema")
    return check_resampled(wanted, m)


def _plain(value: Fraction) -> str:
    return f"{float(value):.6g}"
