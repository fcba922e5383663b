"""DP-SGD on all parties' records in one place, by Opacus."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.versus.calibrate import sampled_multiplier
from benchmarks.versus.method import Cost, Fitted, Method, Setting, needed, product

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.versus.problem import Problem


def settings(problem: Problem) -> list[Setting]:
    """Return what is tried first: large samples, small norms, as DP-SGD is best known to be used."""
    whole = product(
        model=("linear",), kind=problem.kinds, steps=(60,), share=(1.0,), rate=(0.06, 0.25, 1.0), clip=(0.1,)
    )  # fmt: skip
    samples = product(
        model=("linear", "network-64"), kind=problem.kinds[-1:], steps=(240,), share=(0.125,),
        rate=(0.06, 0.25), clip=(0.1,),
    )  # fmt: skip
    return whole + samples


def method(work: Path) -> Method:
    """Return the method, with a folder for noise multipliers."""
    from benchmarks.versus.methods.networks import Descent, build, descend, of_both

    def fit(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        rows = problem.rows(str(setting["kind"]))
        steps, share = int(setting["steps"]), float(setting["share"])
        noise = sampled_multiplier(needed(epsilon), share, steps, work / "multipliers.json")
        model = build(str(setting["model"]), rows.private.shape[1], problem.classes, seed)
        # One noise's worth of gradient is as long as the clipping norm, whatever that is.
        rate = float(setting["rate"]) / float(setting["clip"])
        began = time.process_time()
        how = Descent(steps, share, rate, float(setting["clip"]), noise, seed)
        descend(model, rows.private, problem.split.private.labels, how)
        waiting = time.process_time() - began
        largest = max(len(part) for part in problem.parts(0))
        numbers = sum(each.numel() for each in model.parameters())
        up = largest * (rows.private.shape[1] + 1) * rows.private.itemsize
        return Fitted(*of_both(model, rows), Cost(1, up, 0, 0.0, waiting, numbers, steps))

    return Method(
        name="dp-sgd",
        settings=settings,
        fit=fit,
        widens={"rate": 4, "clip": 5, "steps": 4},
    )
