"""The training loop of all rivals that learn by gradients, and DP-SGD by Opacus on all records in one place.

Models are softmax regression, or a network of one hidden layer. What a private model says of public inputs is
post-processing, so it costs nothing: its labels of the public set may teach this project's student.
:func:`taught` shows how much of this project's figures of images is that of its student, a network that
learns from public images without labels, too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from benchmarks.methods.linear import MOMENTUM, Floats, of_curator
from benchmarks.methods.method import (
    FIRST_TRIAL,
    Fitted,
    Method,
    Setting,
    needed,
    product,
    sampled_multiplier,
)  # fmt: skip
from benchmarks.methods.standard import output
from benchmarks.problem import Problem, Rows
from pate.data.values import Images
from student.trainers.base import Effort, Lesson
from student.trainers.choose import train

#: By what the search for settings multiplies and divides them.
WIDENS = {"rate": 4, "clip": 5, "steps": 4}


@dataclass(frozen=True)
class Descent:
    """How a model is trained.

    Attributes:
        steps: number of them.
        share: of the records in a sample, each drawn independently (Poisson); 1: all of them.
        rate: of learning.
        clip: largest norm of one record's gradient.
        noise: over ``clip``; 0: no privacy, and nothing is clipped.
        seed: of samples and noise.
    """

    steps: int
    share: float
    rate: float
    clip: float
    noise: float
    seed: int


def private_descent(
    setting: Setting, epsilon: float | None, rounds: int, work: Path, seed: int
) -> Descent:
    """Return DP-SGD of a setting, whose noise pays for so many rounds of its steps."""
    steps, share, clip = int(setting["steps"]), float(setting["share"]), float(setting["clip"])
    noise = sampled_multiplier(needed(epsilon), share, rounds * steps, work / "multipliers.json")
    # One noise's worth of gradient is as long as the clipping norm, whatever that is.
    return Descent(steps, share, float(setting["rate"]) / clip, clip, noise, seed)


def build(model: str, width: int, classes: int, seed: int) -> nn.Sequential:
    """Return ``linear``, which begins at 0, or ``network-N`` with N hidden units.

    Hidden units are tanh, which clipped gradients suit better than ReLU (Papernot et al., AAAI 2021).
    """
    if model == "linear":
        line = nn.Linear(width, classes)
        nn.init.zeros_(line.weight)
        nn.init.zeros_(line.bias)
        return nn.Sequential(line)
    hidden = int(model.removeprefix("network-"))
    random = torch.Generator().manual_seed(seed)
    first, last = nn.Linear(width, hidden), nn.Linear(hidden, classes)
    # Rows have length 1 in root mean square, so that units begin with a spread of 1.
    nn.init.normal_(first.weight, generator=random)
    nn.init.zeros_(first.bias)
    nn.init.normal_(last.weight, std=hidden**-0.5, generator=random)
    nn.init.zeros_(last.bias)
    return nn.Sequential(first, nn.Tanh(), last)


def descend(model: nn.Sequential, rows: Floats, labels: NDArray[np.int64], how: Descent) -> None:
    """Train a model in place; afterwards it has the mean weights of the second half of the steps.

    With noise by Opacus: each record's gradient is clipped, and the sum has Gaussian noise.
    """
    inputs = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
    targets = torch.tensor(labels)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(
        model.parameters(), lr=how.rate, momentum=MOMENTUM
    )
    module: Any = model  # Opacus' wrapper has a method more
    loss_of: Any = functional.cross_entropy
    random = torch.Generator().manual_seed(how.seed)
    if how.noise:
        module, optimizer, loss_of = _clipped(model, optimizer, how, len(rows), random)
    total = [torch.zeros_like(each) for each in model.parameters()]
    first = how.steps // 2
    for step in range(how.steps):
        some, weight = _sample(inputs, targets, how.share, random)
        loss = loss_of(module(some[0]), some[1]) * weight
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step >= first:
            for mean, each in zip(total, model.parameters(), strict=True):
                mean.add_(each.detach(), alpha=1 / (how.steps - first))
    if how.noise:
        module.remove_hooks()
    with torch.no_grad():
        for each, mean in zip(model.parameters(), total, strict=True):
            each.copy_(mean)


def _clipped(
    model: nn.Sequential,
    optimizer: torch.optim.Optimizer,
    how: Descent,
    count: int,
    random: torch.Generator,
) -> tuple[Any, Any, Any]:
    """Return Opacus' module, optimizer and loss.

    Norms of the gradients come from a first pass, and the clipped sum from a second one (ghost clipping):
    the same sum as from the gradients of each record, without their memory.
    """
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    module = GradSampleModuleFastGradientClipping(
        model, max_grad_norm=how.clip, use_ghost_clipping=True
    )
    private = DPOptimizerFastGradientClipping(
        optimizer, noise_multiplier=how.noise, max_grad_norm=how.clip,
        expected_batch_size=max(1, round(how.share * count)), generator=random,
    )  # fmt: skip
    return module, private, DPLossFastGradientClipping(module, private, nn.CrossEntropyLoss())


def _sample(
    inputs: torch.Tensor, targets: torch.Tensor, share: float, random: torch.Generator
) -> tuple[tuple[torch.Tensor, torch.Tensor], float]:
    """Return sampled rows, their classes and a weight; an empty sample is one row of no weight."""
    if share == 1:
        return (inputs, targets), 1.0
    some = torch.nonzero(torch.rand(len(inputs), generator=random) < share)[:, 0]
    if not len(some):
        return (inputs[:1], targets[:1]), 0.0
    return (inputs[some], targets[some]), 1.0


def of_both(model: nn.Sequential, rows: Rows) -> tuple[Floats, Floats]:
    """Return the probabilities of the validation and the test records."""

    def scores(part: Floats) -> Floats:
        with torch.no_grad():
            logits = model(torch.from_numpy(np.ascontiguousarray(part, dtype=np.float32)))
            made: Floats = torch.softmax(logits.double(), dim=1).numpy()
            return made

    return scores(rows.validation), scores(rows.test)


def arrays(model: nn.Sequential) -> list[Floats]:
    """Return copies of a model's weights."""
    return [each.detach().numpy().copy() for each in model.parameters()]


def fill(model: nn.Sequential, values: Sequence[Floats]) -> None:
    """Set a model's weights."""
    with torch.no_grad():
        for each, value in zip(model.parameters(), values, strict=True):
            each.copy_(torch.from_numpy(np.asarray(value, dtype=np.float32)))


def pooled_sgd(work: Path) -> Method:
    """Return DP-SGD on pooled records, with a folder for noise multipliers."""

    def settings(problem: Problem) -> list[Setting]:
        # Large samples, small norms, as DP-SGD is best known to be used.
        whole = product(
            model=("linear",), kind=problem.kinds, steps=(60,), share=(1.0,),
            rate=(0.06, 0.25, 1.0), clip=(0.1,),
        )  # fmt: skip
        samples = product(
            model=("linear", "network-64"), kind=problem.kinds[-1:], steps=(240,), share=(0.125,),
            rate=(0.06, 0.25), clip=(0.1,),
        )  # fmt: skip
        return whole + samples

    def fit(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        rows = problem.rows(str(setting["kind"]))
        how = private_descent(setting, epsilon, 1, work, seed)
        model = build(str(setting["model"]), rows.private.shape[1], problem.classes, seed)
        began = time.process_time()
        descend(model, rows.private, problem.split.private.labels, how)
        numbers = sum(each.numel() for each in model.parameters())
        cost = of_curator(problem, rows, time.process_time() - began, numbers, how.steps)
        return Fitted(*of_both(model, rows), cost)

    return Method(name="dp-sgd", settings=settings, fit=fit, widens=WIDENS)


def taught(base: Method) -> Method:
    """Return a private method of images with a student of its labels of the public set."""

    def fit(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        if seed >= FIRST_TRIAL:  # settings are chosen by the private model itself: it takes seconds
            return base.fit(problem, setting, epsilon, seed)
        split = problem.split
        asked = replace(problem, split=replace(split, test=split.public), _kinds={}, _whole={})
        said = base.fit(asked, setting, epsilon, seed)
        labels = said.test.argmax(axis=1).astype(np.int64)
        queries = np.arange(len(split.queries))
        lesson = Lesson(split.queries, queries, labels, split.private.classes)
        student = train(lesson, seed=seed, effort=Effort(None))
        return Fitted(output(student, problem.validation), output(student, split.test), said.cost)

    return replace(
        base,
        name=f"{base.name}-taught",
        fit=fit,
        fits=lambda problem: isinstance(problem.split.private.inputs, Images),
    )
