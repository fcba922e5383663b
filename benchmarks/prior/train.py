"""Training of the network on made-up tables."""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import torch
from torch import nn

import party.teachers.prior
from benchmarks.prior import RATES, SEED
from benchmarks.prior.tables import draw
from party.teachers.prior.network import PriorNetwork
from party.teachers.prior.teacher import NAME

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.prior.tables import Batch

Rates: TypeAlias = tuple[tuple[int, float], ...]

#: The largest learning rate, and the decay of weights.
_RATE: Final = 2e-3
_DECAY: Final = 0.02
_REPORT: Final = 250
_SAVE: Final = 500


def rate(step: int, rates: Rates) -> float:
    """Return the share of the largest learning rate at a step."""
    steps, shares = ([each[at] for each in rates] for at in (0, 1))
    return float(np.interp(step, steps, shares))


def train(
    folder: Path, *, seed: int = SEED, rates: Rates = RATES, resume: Path | None = None
) -> PriorNetwork:
    """Return the network after some steps.

    The tables of a step depend on the seed and the step's number only, so that a run that goes on
    from a checkpoint sees the same ones.

    Args:
        folder: for checkpoints, ``step-NNNNNN.pt``, and ``log.jsonl``.
        seed: of the weights and the tables.
        rates: learning rates by step, as :data:`benchmarks.prior.RATES`.
        resume: a checkpoint to go on from.
    """
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    network = PriorNetwork()
    optimiser = torch.optim.AdamW(
        network.parameters(), _RATE, betas=(0.9, 0.98), weight_decay=_DECAY
    )
    start, steps = 0, rates[-1][0]
    if resume is not None:
        found = torch.load(resume, weights_only=True)
        network.load_state_dict(found["network"])
        optimiser.load_state_dict(found["optimiser"])
        start = found["step"]
    begun, losses = time.monotonic(), list[float]()
    for step in range(start, steps):
        generator = torch.Generator().manual_seed((seed << 32) + step)
        for group in optimiser.param_groups:
            group["lr"] = _RATE * rate(step, rates)
        loss = _loss(network, draw(generator))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        done = step + 1
        if done % _REPORT == 0:
            mean, seconds = sum(losses) / len(losses), round(time.monotonic() - begun)
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps({"step": done, "loss": round(mean, 4), "s": seconds}) + "\n")
            losses.clear()
        if done % _SAVE == 0 or done == steps:
            recipe = {"seed": seed, "steps": done, "rates": [list(each) for each in rates]}
            state = {"network": network.state_dict(), "optimiser": optimiser.state_dict()}
            target = folder / f"step-{done:06d}.pt"
            torch.save({**state, "step": done, "recipe": recipe}, target.with_suffix(".new"))
            target.with_suffix(".new").replace(target)
    return network


def _loss(network: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy, over tables whose labelled rows have both classes."""
    each = nn.functional.binary_cross_entropy_with_logits(
        network(batch.values, batch.labels), batch.chances, reduction="none"
    )
    mixed = batch.labels.min(dim=1).values != batch.labels.max(dim=1).values
    loss: torch.Tensor = (each.mean(dim=1) * mixed).sum() / mixed.sum().clamp(min=1)
    return loss


def export(checkpoint: Path) -> str:
    """Write the weights of a checkpoint into the package, with the recipe; return their SHA-256."""
    from pathlib import Path

    from safetensors.torch import save

    found = torch.load(checkpoint, weights_only=True)
    # One entry: the order of several would not be the same each time.
    facts = {"recipe": json.dumps({"program": "python -m benchmarks.prior", **found["recipe"]})}
    content = save(found["network"], metadata=facts)
    Path(party.teachers.prior.__path__[0], NAME).write_bytes(content)
    return hashlib.sha256(content).hexdigest()
