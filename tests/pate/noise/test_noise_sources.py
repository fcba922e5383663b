"""Nothing that a release depends on draws from a generator that can be seeded or predicted.

A stream from a weak or public seed has the right law, so no audit of what comes out sees it
(docs/proofs/audits.md, section 5): it is looked for here, in the source and in a run.
"""

from __future__ import annotations

import ast
import os
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from pate.mechanisms import (
    MECHANISMS,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Mechanism,
    Neighbour,
    TeacherLabels,
)
from pate.noise.exact import SystemNoise
from pate.noise.lanes import Integers

ROOT = Path(__file__).resolve().parents[3]
GUARDED = (
    "aggregator_server", "party/synthesis", "pate/campaign", "pate/mechanisms", "pate/accounting",
    "pate/masking", "pate/noise/exact.py",
)  # fmt: skip

_TORCH_DRAWS = {
    "Generator", "bernoulli", "bernoulli_", "cauchy_", "distributions", "exponential_",
    "geometric_", "initial_seed", "log_normal_", "manual_seed", "multinomial", "normal",
    "normal_", "poisson", "seed", "uniform_",
}  # fmt: skip


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _forbidden(name: str) -> bool:
    first, _, rest = name.partition(".")
    second = rest.partition(".")[0]
    if first == "random" or second == "rvs" or name.endswith(".rvs"):
        return True
    if first in ("np", "numpy"):
        return second == "random"
    if first == "torch":
        return second.startswith("rand") or second in _TORCH_DRAWS
    return False


def draws_in(source: str) -> list[str]:
    """The names in ``source`` that stand for a generator other than the system's."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [_dotted(node)]
        found += [name for name in names if _forbidden(name)]
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import random", "from random import gauss", "from random import SystemRandom",
        "import numpy.random", "from numpy import random", "from numpy.random import default_rng",
        "import numpy as np\nnp.random.default_rng().normal()", "x = torch.randn(3)",
        "from torch import randint", "torch.manual_seed(0)", "torch.distributions.Normal(0, 1)",
        "from scipy.stats import norm\nnorm.rvs(3)",
    ],
)  # fmt: skip
def test_the_scan_sees_a_draw(source: str) -> None:
    assert draws_in(source)


@pytest.mark.parametrize(
    "source", ["import os\nos.urandom(3)", "import secrets", "from pate import noise", "x.random"]
)
def test_the_scan_lets_the_system_generator_pass(source: str) -> None:
    assert not draws_in(source)


def test_guarded_code_names_no_other_generator() -> None:
    files = [
        file
        for place in GUARDED
        for file in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
    ]
    assert len(files) > 10
    found = {
        str(file.relative_to(ROOT)): draws
        for file in files
        if (draws := draws_in(file.read_text(encoding="utf-8")))
    }
    assert not found


def _every_mechanism() -> list[Mechanism]:
    s = Fraction(5)
    made: list[Mechanism] = [
        LNMax(s, 1), GNMax(s, 1), ConfidentGNMax(10, s, s, 1),
        InteractiveGNMax(5, s, s, Fraction(1, 2), 1), Neighbour(3, s, 1),
        TeacherLabels(0, s, 1, code="each-60 labels-2-of-3"),
    ]  # fmt: skip
    # The others draw no noise at all.
    drawing = {name for name, kind in MECHANISMS.items() if not kind.noise_inside}
    assert {mechanism.name for mechanism in made} == drawing
    return made


def test_no_other_generator_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def boom(*args: object, **kwargs: object) -> NoReturn:
        raise AssertionError("a generator was called that a release must not depend on")

    torch_draws = [name for name in dir(torch) if name.startswith("rand")] + ["normal", "bernoulli"]
    for module, names in (
        (random, [*random.__all__]),
        (np.random, [*np.random.__all__]),
        (torch, torch_draws),
    ):
        for name in names:
            if callable(getattr(module, name)):
                monkeypatch.setattr(module, name, boom)
    with pytest.raises(AssertionError, match="must not depend"):
        np.random.default_rng()

    rows = np.array([[9, 5, 1], [5, 5, 5], [15, 0, 0]] * 20, dtype=np.int64)
    expected = np.full_like(rows, 5)
    for mechanism in _every_mechanism():
        assert len(mechanism.answer_all(rows, SystemNoise(), expected)) == len(rows)


def _imports(file: Path) -> set[str]:
    """The modules that a file imports, at any place in it, but for those of types only."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {f"{node.module}"}
    return names


def test_all_modules_behind_production_noise_are_known() -> None:
    """From the sampler on: what it imports of ours, and what of others: nothing that has a generator."""
    ours, others = {"pate.noise.exact"}, set[str]()
    left = list(ours)
    while left:
        for name in _imports(ROOT / (left.pop().replace(".", "/") + ".py")):
            if not name.startswith("pate."):
                others.add(name.partition(".")[0])
            elif (ROOT / (name.replace(".", "/") + ".py")).is_file() and name not in ours:
                ours.add(name)
                left.append(name)
    assert {"pate.noise.exact", "pate.noise.lanes", "pate.errors"} <= ours
    assert others <= {
        "__future__", "os", "fractions", "typing", "collections", "dataclasses", "numpy",
    } | {"enum"}  # fmt: skip
    for module in ours:
        assert draws_in((ROOT / (module.replace(".", "/") + ".py")).read_text("utf-8")) == []


def test_masking_reaches_for_no_randomness_clock_file_or_network_of_its_own() -> None:
    """Equal bytes of the given source make equal messages."""
    forbidden = {
        "random", "secrets", "os", "time", "datetime", "uuid", "tempfile", "pathlib", "io", "socket",
        "ssl", "asyncio", "threading", "subprocess", "pickle",
    }  # fmt: skip
    files = [*(ROOT / "pate" / "masking").rglob("*.py")]
    assert len(files) > 5
    for file in files:
        names = {
            node.id for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Name)
        }
        assert not names & {"open", "__import__", "eval", "exec"}, file
        assert not {name.partition(".")[0] for name in _imports(file)} & forbidden, file


_DRAWS: list[Callable[[SystemNoise], Integers]] = [
    lambda noise: noise.gaussian(Fraction(40), 500),
    lambda noise: noise.laplace(Fraction(20), 500),
    lambda noise: noise.laplace_share(Fraction(20), 4, 500),
]


@pytest.mark.parametrize("draw", _DRAWS, ids=["gaussian", "laplace", "share"])
def test_every_bit_of_system_noise_is_one_of_the_system(
    draw: Callable[[SystemNoise], Integers], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise is a function of the system's bytes: the same from the same, and other from others.

    False alarm: two series of 500 draws are equal with probability below 2^-500.
    """
    real, given = os.urandom, list[bytes]()

    def recorded(size: int) -> bytes:
        given.append(real(size))
        return given[-1]

    monkeypatch.setattr(os, "urandom", recorded)
    first = draw(SystemNoise())
    tape = list(given)
    # No draw can be made from less: the entropy of each is above 2 bits.
    assert 8 * sum(map(len, tape)) > 2 * 500
    assert draw(SystemNoise()).tolist() != first.tolist()  # from other bytes

    # Were there another source of bits, the same bytes would give other noise.
    played = iter(tape)
    monkeypatch.setattr(os, "urandom", lambda size: _of_size(next(played), size))
    np.testing.assert_array_equal(draw(SystemNoise()), first)
    assert next(played, None) is None, "all bytes were asked for again"


def _of_size(block: bytes, size: int) -> bytes:
    assert len(block) == size
    return block


# Newer Pythons warn of forks where threads are; the child does nothing but draw and leave.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_shares_no_noise() -> None:
    # Bits kept back by the parent would be handed out again by its child.
    noise = SystemNoise()
    noise.gaussian(Fraction(10**6), 4)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, noise.gaussian(Fraction(10**6), 4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(read, 32), dtype=np.int64)
    os.close(read)
    os.close(write)
    # Equal by chance with probability below 1e-24.
    assert theirs.tolist() != noise.gaussian(Fraction(10**6), 4).tolist()
