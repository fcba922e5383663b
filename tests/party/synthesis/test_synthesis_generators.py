"""The generators: what they cost, that the noise drawn is the noise priced, and what they learn."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

from party.synthesis.generators import counts, exponential, structure
from party.synthesis.generators.cfs import Cfs, _entropies, _resolution
from party.synthesis.generators.l1 import L1
from party.synthesis.seeds.composition import largest_each
from party.synthesis.table import schema
from party.synthesis.table.coding import encode
from party.synthesis.table.domain import Attribute, Domain
from party.synthesis.table.network import Network
from party.synthesis.table.randomness import SimulatedRandomness, SystemRandomness
from pate.errors import SchemaError, UsageError
from pate.noise.exact import LARGEST_TERM, SystemNoise
from pate.noise.simulated import SimulatedNoise
from tests.support.party.domains import SCHEMAS, adult, everything, network, small

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from party.synthesis.generators.protocol import Generator
    from pate.noise.lanes import Integers

ALL: tuple[Generator, ...] = (L1(), Cfs())
ONE = Fraction(1)
FALSE_ALARM = 1e-6


class Recorder(SystemNoise):
    """Noise of a scale and number that are noted, and none at all."""

    production: ClassVar[bool] = False

    def __init__(self) -> None:
        self.calls: list[tuple[Fraction, int]] = []

    def laplace(self, scale: Fraction, count: int) -> Integers:
        self.calls.append((scale, count))
        return np.zeros(count, dtype=np.int64)


def rows(count: int = 3000, seed: int = 0) -> tuple[Domain, NDArray[np.intp]]:
    """Rows of four attributes, each leaning on the two before it."""
    domain = small()
    return domain, network(domain, seed).sample(count, SimulatedRandomness(seed))


def table_cells(domain: Domain, parents: tuple[tuple[int, ...], ...]) -> int:
    return sum(
        math.prod(domain.bucket_counts[p] for p in found) * size
        for found, size in zip(parents, domain.sizes, strict=True)
    )


def test_the_price_of_l1_is_the_sum_of_its_parts() -> None:
    price = L1().price(small((2,) * 13), ONE)
    assert round(float(price.rho), 4) == 0.0196
    # 13 and 12 mechanisms, and 13 tables.
    assert price.rho == (
        13 * Fraction(1, 130) ** 2 / 2
        + 12 * Fraction(2, 120) ** 2 / 8
        + 13 * Fraction(7, 130) ** 2 / 2
    )
    assert (price.epsilon_pure, price.delta) == (ONE, Fraction())
    assert L1().price(small((2,)), ONE).rho == Fraction(1, 200) + Fraction(49, 200)


def test_a_price_is_never_above_what_was_asked() -> None:
    for m in (1, 2, 11, 40):
        for epsilon in (Fraction(1, 10), ONE, Fraction(3)):
            domain = small((3,) * m)
            assert L1().price(domain, epsilon).rho <= epsilon**2 / 2
            # The zCDP curve at its best order lies below the (epsilon, delta) that was asked for.
            price = Cfs().price(domain, epsilon)
            rest = Fraction(1, 10**6) - price.delta
            rho = float(price.rho)
            assert rho + 2 * math.sqrt(rho * math.log(1 / rest)) < 1.3 * float(epsilon) + 0.05 or (
                rho <= float(epsilon) ** 2 / 2
            )


def test_l1_draws_the_noise_that_it_prices() -> None:
    domain, codes = rows()
    m = len(domain)
    noise = Recorder()
    fitted = L1().fit(codes, domain, ONE, noise, SystemRandomness())
    assert noise.calls == [
        (m / Fraction(1, 10), sum(domain.sizes)),
        (m / Fraction(7, 10), table_cells(domain, fitted.network.parents)),
    ]


def test_cfs_draws_the_noise_that_it_prices() -> None:
    domain, codes = rows(20_000)
    m = len(domain)
    noise = Recorder()
    fitted = Cfs().fit(codes, domain, ONE, noise, SystemRandomness())
    (count, one), (entropy, number), (cell, cells) = noise.calls
    assert one == 1
    assert number == m * (m + 1)
    assert cells == table_cells(domain, fitted.network.parents)
    price = fitted.price
    # Half of the rows, give or take, less the margin of 14.5/0.05 rows: the sensitivity there.
    part = 10_000 - 290
    change = (math.log2(part) + 1 / math.log(2)) / part * 2**20
    each = change / float(entropy)
    assert each == pytest.approx(
        float(largest_each(Fraction(19, 20), 20, Fraction(1, 2 * 10**6))), rel=0.06
    )
    learnt = float(1 / count) ** 2 / 2 + m * (m + 1) * each**2 / 2
    assert float(price.rho) == pytest.approx(max(learnt, m / 2 / float(cell) ** 2), rel=0.03)
    assert price.rho >= m / (2 * cell**2)
    assert (price.epsilon_pure, price.delta) == (None, Fraction(1, 2 * 10**6))
    # With fewer rows than the margin they may be two: entropies then change most.
    few = Recorder()
    Cfs().fit(codes[:400], domain, ONE, few, SystemRandomness())
    share = largest_each(Fraction(19, 20), m * (m + 1), price.delta)
    assert few.calls[1][0] == _resolution(2, share)[1]


def test_every_choice_of_l1_is_made_at_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []
    real = exponential.choose

    def noted(scores: list[int], rate: Fraction, randomness: SystemRandomness) -> int:
        rates.append(rate)
        return real(scores, rate, randomness)

    monkeypatch.setattr("party.synthesis.generators.l1.choose", noted)
    domain, codes = rows()
    L1().fit(codes, domain, ONE, SystemNoise(), SystemRandomness())
    # epsilon / (2 sensitivity), and a row changes a score by 2 units at most.
    assert rates == [Fraction(2, 10) / 3 / (2 * 2 * counts.UNIT)] * 3


def test_one_row_changes_a_score_by_its_sensitivity_at_most() -> None:
    domain, codes = rows(60)
    rng = np.random.default_rng(0)
    worst = 0
    for _ in range(200):
        law = counts.in_units(rng.integers(-3, 40, 4))
        extra = rng.integers(0, domain.sizes)[None, :].astype(np.intp)
        for parents in ((), (0,), (0, 1)):
            score = L1._score(codes, domain, 2, parents, law, 1.5)
            other = L1._score(np.vstack([codes, extra]), domain, 2, parents, law, 1.5)
            worst = max(worst, abs(score - other))
    assert counts.UNIT < worst <= 2 * counts.UNIT


def test_one_row_changes_an_entropy_by_its_sensitivity_at_most() -> None:
    domain = small((8, 2))
    rng = np.random.default_rng(1)
    worst = 0.0
    for n in (1, 2, 3, 10, 200):
        for _ in range(60):
            codes = rng.integers(0, [int(rng.integers(1, 9)), 2], (n, 2)).astype(np.intp)
            before = np.array(_entropies(codes[1:], domain))
            after = np.array(_entropies(codes, domain))
            allowed = (math.log2(n) + 1 / math.log(2)) / n
            worst = max(worst, float(np.abs(after - before).max() / allowed))
    assert 0.6 < worst <= 1
    # A scale covers this change and the rounding of two entropies.
    for n in (2, 100, 10**6):
        unit, scale = _resolution(n, Fraction(1, 100))
        assert scale / 100 >= (math.log2(n) + 1 / math.log(2)) / n * unit + 1


def test_entropies_are_those_of_the_text_book() -> None:
    domain = small((2, 4))
    codes = everything(domain)
    quarter = -0.25 * math.log2(0.25) - 0.75 * math.log2(0.75)
    #: H(x0), H(x1), H(b0), H(b1), H(x0, b1), H(x1, b0)
    assert _entropies(codes, domain) == pytest.approx([1, 2, 1, quarter, 1 + quarter, 3])


def test_structure_without_noise_finds_what_depends_on_what() -> None:
    # b is a copy of a, c is neither's business.
    su = structure.correlations(
        np.array([1.0, 1.0, 1.0]),
        np.array([1.0, 1.0, 1.0]),
        np.array([[0, 1.0, 2.0], [1.0, 0, 2.0], [2.0, 2.0, 0]]),
    )
    assert su.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    limits = {"most_parents": 4, "most_configurations": 500, "most_cells": 2**17}
    assert structure.grow(su, (2, 2, 2), (2, 2, 2), **limits) == ((1,), (), ())
    assert structure.order(((1,), (), ())) == (1, 0, 2)


def test_a_grown_graph_has_no_circle_and_keeps_its_limits() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        m = 12
        su = rng.random((m, m))
        buckets = rng.integers(2, 6, m).tolist()
        parents = structure.grow(
            su, buckets, [5] * m, most_parents=3, most_configurations=30, most_cells=100
        )
        place = {i: at for at, i in enumerate(structure.order(parents))}
        assert sorted(place) == list(range(m))
        assert any(parents)
        for child, found in enumerate(parents):
            assert len(found) <= 3
            assert math.prod(buckets[p] for p in found) <= 20
            assert all(place[p] < place[child] for p in found)


def test_laws_in_units_sum_to_one_exactly() -> None:
    rng = np.random.default_rng(3)
    for held in (
        *rng.integers(-50, 10**6, (50, 7)),
        np.array([-1, -2]),
        np.array([2**61, 1, 2**61]),
    ):
        law = counts.in_units(np.asarray(held, dtype=np.int64))
        assert law.sum() == counts.UNIT
        assert law.min() >= 0
    assert counts.in_units(np.array([-1, -5])).tolist() == [counts.UNIT // 2] * 2


@pytest.mark.parametrize("generator", ALL, ids=lambda g: g.name)
def test_any_data_at_any_epsilon_give_a_network(generator: Generator) -> None:
    source = SystemRandomness()
    wide = Domain(tuple(Attribute(f"x{at}", tuple("abc"), (0, 1, 2)) for at in range(60)), 1, "x3")
    for domain, codes in (
        rows(3),
        (small(), np.zeros((0, 4), dtype=np.intp)),
        (small((1,)), np.zeros((5, 1), dtype=np.intp)),
        (wide, np.zeros((5, 60), dtype=np.intp)),
    ):
        for epsilon in (Fraction(1, 50), Fraction(7, 3), Fraction(20)):
            fitted = generator.fit(codes, domain, epsilon, SystemNoise(), source)
            assert fitted.price == generator.price(domain, epsilon)
            assert fitted.network.sample(50, source).shape == (50, len(domain))


def test_with_little_noise_l1_and_cfs_learn_a_chain() -> None:
    codes = ("a", "b", "c")
    domain = Domain(tuple(Attribute(n, codes, (0, 1, 2)) for n in "uvwx"), 1, None)
    step = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    chain = Network(
        domain, (0, 1, 2, 3), ((), (0,), (1,), (2,)), (np.full((1, 3), 1 / 3), step, step, step)
    )
    law = chain.conditionals(everything(domain)).prod(axis=1)
    held = chain.sample(40_000, SystemRandomness())
    apart = {}
    for generator in ALL:
        found = generator.fit(held, domain, Fraction(100), SystemNoise(), SystemRandomness())
        columns = found.network.conditionals(everything(domain))
        apart[generator.name] = float(np.abs(columns.prod(axis=1) - law).sum() / 2)
    assert np.abs(law - 1 / len(law)).sum() / 2 > 0.5  # each column by itself is uniform
    assert apart["l1"] < 0.04
    assert apart["cfs"] < 0.06


@pytest.mark.parametrize("generator", ALL, ids=lambda g: g.name)
def test_two_fits_of_the_same_rows_differ_in_their_noise(generator: Generator) -> None:
    domain, codes = rows()
    first, second = (
        generator.fit(codes, domain, ONE, SystemNoise(), SystemRandomness()).network.to_bytes()
        for _ in range(2)
    )
    assert first != second
    first, second = (
        generator.fit(
            codes, domain, ONE, SimulatedNoise(1), SimulatedRandomness(1)
        ).network.to_bytes()
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("epsilon", [Fraction(0.7), Fraction(10**20, 3 * 10**20 + 1)])
@pytest.mark.parametrize("generator", ALL, ids=lambda g: g.name)
def test_an_epsilon_of_many_digits_gets_a_little_more_noise(
    generator: Generator, epsilon: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = []

    def noted(scores: list[int], rate: Fraction, randomness: SystemRandomness) -> int:
        rates.append(rate)
        return exponential.choose(scores, rate, randomness)

    monkeypatch.setattr("party.synthesis.generators.l1.choose", noted)
    domain, codes = rows()
    exactly, nearly = Recorder(), Recorder()
    wanted = Fraction(round(epsilon * 1000), 1000)
    generator.fit(codes, domain, wanted, exactly, SystemRandomness())
    share = [rate / wanted for rate in rates]
    rates.clear()
    generator.fit(codes, domain, epsilon, nearly, SystemRandomness())
    # The noise of an entropy depends on how many rows the coins gave it.
    near = 0.3 if generator.name == "cfs" else 0.002
    for (scale, _), (other, _) in zip(exactly.calls, nearly.calls, strict=True):
        assert max(other.numerator, other.denominator) <= LARGEST_TERM
        assert float(other / scale) == pytest.approx(float(wanted / epsilon), rel=near)
    if generator.name != "cfs":
        assert all(
            other * epsilon >= scale * wanted
            for (scale, _), (other, _) in zip(exactly.calls, nearly.calls, strict=True)
        )
    assert all(rate <= part * epsilon for rate, part in zip(rates, share, strict=True))


@pytest.mark.parametrize("generator", ALL, ids=lambda g: g.name)
def test_what_makes_no_sense_is_refused(generator: Generator) -> None:
    domain, codes = rows(5)
    # The last two: noise that could not be drawn must be found out before it is paid for.
    for epsilon in (Fraction(0), Fraction(-1), Fraction(1, 10**9), Fraction(10**9)):
        with pytest.raises(UsageError):
            generator.price(domain, epsilon)
    outside = codes.copy()
    outside[3, 2] = 4
    with pytest.raises(SchemaError, match=r"row 4, column x2: code 4 outside 0\.\.3"):
        generator.fit(outside, domain, ONE, SystemNoise(), SystemRandomness())


def test_the_integer_noise_of_a_table_is_the_two_sided_geometric_law() -> None:
    from scipy import stats

    scale = Fraction(130, 7)  # a cell of 13 attributes at epsilon 1
    draws = 1_000_000
    drawn = counts.noisy([np.zeros((1000, 1000), dtype=np.int64)], scale, SystemNoise())[0].ravel()
    decay = math.exp(-1 / float(scale))
    reach = 150  # beyond: some 150 draws on either side
    inside = (1 - decay) / (1 + decay) * decay ** np.abs(np.arange(-reach, reach + 1))
    tail = (1 - inside.sum()) / 2
    seen = np.bincount(np.clip(drawn, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    law = np.concatenate([[tail], inside, [tail]])
    assert stats.chisquare(seen, law * draws).pvalue > FALSE_ALARM


def two_way(first: NDArray[np.intp], second: NDArray[np.intp], domain: Domain) -> float:
    """Return the mean total variation distance over all pairs of attributes."""
    found = []
    for i, j in combinations(range(len(domain)), 2):
        shape = (domain.sizes[i], domain.sizes[j])
        one, other = (
            np.bincount(np.ravel_multi_index((t[:, i], t[:, j]), shape), minlength=math.prod(shape))
            / len(t)
            for t in (first, second)
        )
        found.append(np.abs(one - other).sum() / 2)
    return float(np.mean(found))


@pytest.mark.slow
def test_l1_keeps_more_of_adult_than_columns_by_themselves(test_data: Path, tmp_path: Path) -> None:
    domain = schema.read(SCHEMAS / "adult_schema.json")
    codes = encode(adult(test_data, tmp_path), domain, "adult")
    source = SystemRandomness()
    income = domain.names.index("income")

    def shuffled(held: NDArray[np.intp]) -> NDArray[np.intp]:
        rng = np.random.default_rng(1)
        return np.stack([rng.permutation(column) for column in held.T], axis=1)[:8000]

    def apart(epsilon: int | None) -> tuple[float, float]:
        distances, lifts = [], []
        for part in range(8):
            held = codes[part::4]  # 8,140 rows: one of four hospitals
            if epsilon is None:
                made = shuffled(held)
            else:
                fitted = L1().fit(held, domain, Fraction(epsilon), SystemNoise(), source)
                made = fitted.network.sample(8000, source)
            distances.append(two_way(made, codes, domain))
            married = made[:, domain.names.index("marital-status")] == 0
            lifts.append(float(made[married, income].mean() - made[~married, income].mean()))
        return float(np.mean(distances)), float(np.mean(lifts))

    near, lift = apart(1)
    alone, none = apart(None)
    # A mean of eight fits, one of which has a standard deviation of 0.004.
    assert near < 0.078
    assert near < alone
    # What a label depends on is what queries are for: 0.45 against 0.06 in the data.
    assert lift > 0.2
    assert abs(none) < 0.02
    assert apart(3)[0] < near


def test_cfs_learns_structure_and_tables_from_rows_that_do_not_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    domain = small((8, 8))
    codes = everything(domain)  # 64 rows, all different
    seen: dict[str, set[tuple[int, ...]]] = {"structure": set(), "tables": set()}

    def entropies(held: NDArray[np.intp], of: Domain) -> list[float]:
        seen["structure"] |= set(map(tuple, held.tolist()))
        return _entropies(held, of)

    real = counts.table

    def table(
        held: NDArray[np.intp], of: Domain, child: int, parents: tuple[int, ...]
    ) -> NDArray[np.int64]:
        seen["tables"] |= set(map(tuple, held.tolist()))
        return real(held, of, child, parents)

    monkeypatch.setattr("party.synthesis.generators.cfs._entropies", entropies)
    monkeypatch.setattr(counts, "table", table)
    sizes = set()
    for _ in range(20):
        for part in seen.values():
            part.clear()
        Cfs().fit(codes, domain, ONE, SystemNoise(), SystemRandomness())
        assert not seen["structure"] & seen["tables"]
        assert len(seen["structure"] | seen["tables"]) == 64
        sizes.add(len(seen["structure"]))
    assert len(sizes) > 2  # coins of each row, not halves: a row more moves no other
