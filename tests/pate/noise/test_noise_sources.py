"""Nothing that a release depends on draws from a generator that can be seeded or predicted."""

from __future__ import annotations

import ast
import os
import random
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

ROOT = Path(__file__).resolve().parents[3]
GUARDED = (
    "aggregator_server", "pate/campaign", "pate/mechanisms", "pate/accounting", "pate/noise/exact.py",
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
        "import random",
        "from random import gauss",
        "from random import SystemRandom",
        "import numpy.random",
        "from numpy import random",
        "from numpy.random import default_rng",
        "import numpy as np\nnp.random.default_rng().normal()",
        "x = torch.randn(3)",
        "from torch import randint",
        "torch.manual_seed(0)",
        "torch.distributions.Normal(0, 1)",
        "from scipy.stats import norm\nnorm.rvs(3)",
    ],
)
def test_the_scan_sees_a_draw(source: str) -> None:
    assert draws_in(source)


@pytest.mark.parametrize(
    "source", ["import os\nos.urandom(3)", "import secrets", "from pate import noise", "x.random"]
)
def test_the_scan_lets_the_system_generator_pass(source: str) -> None:
    assert not draws_in(source)


@pytest.mark.slow
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
        LNMax(s, 1),
        GNMax(s, 1),
        ConfidentGNMax(10, s, s, 1),
        InteractiveGNMax(5, s, s, Fraction(1, 2), 1),
        Neighbour(3, s, 1),
        TeacherLabels(0, s, 1, code="each-60 labels-2-of-3"),
    ]
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


def test_system_noise_is_made_of_system_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = os.urandom

    def counted(size: int) -> bytes:
        asked.append(size)
        return real(size)

    monkeypatch.setattr(os, "urandom", counted)
    SystemNoise().gaussian(Fraction(40), 10)
    # No draw can be made from less: the entropy of N(0, 40^2) is above 7 bits.
    assert sum(asked) * 8 > 7 * 10
    so_far = len(asked)
    SystemNoise().laplace(Fraction(20), 10)
    assert len(asked) > so_far


# Newer Pythons warn of forks where threads are; the child does nothing but draw and leave.
@pytest.mark.e2e
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
