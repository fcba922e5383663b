"""The network of ``--model prior``: made-up tables, and its training on them.

    python -m benchmarks.prior train --out FOLDER
    python -m benchmarks.prior export FOLDER/step-NNNNNN.pt

Training runs in one thread and needs no data. It may be interrupted and resumed (``--resume``): the tables of
a step depend on the seed and the step only. ``export`` writes the weights into the package and prints their
digest, which belongs into party/teachers/by_records.py. On another processor or version of PyTorch the
rounding differs, and so does the digest.

A table has latent causes, columns that depend on them, and two classes. Either the class comes first and
shifts causes and columns, as a disease shifts findings; or a score of causes or columns decides it:
linear, a small network, or a few thresholds. From table to table vary the number of causes and how
strongly columns hang together, noise, separability (up to no noise at all), class shares, and the kinds
of columns: plain, skewed, rounded, with many zeros, binary, or a category as one column per value.
Cells are missing at random, or by value, or by class; in some tables the queries come from a shifted
population, or lack columns.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

import party.teachers
from party.teachers.by_records import NAME
from party.teachers.prior_network import PriorNetwork

Rates: TypeAlias = tuple[tuple[int, float], ...]

#: What the weights in the package were made with: the seed, and the learning rate as steps, and shares of the
#: largest rate at each, with straight lines between. The last step ends the training.
SEED: Final = 1
RATES: Final = ((-1, 0.0), (299, 1.0), (2_000, 1.0), (4_000, 0.6), (5_500, 0.0))
#: The largest learning rate, and the decay of weights.
_RATE: Final = 2e-3
_DECAY: Final = 0.02
_REPORT: Final = 250
_SAVE: Final = 500
#: Latent causes, hidden units of a score, thresholds of a score.
_CAUSES: Final = 6
_UNITS: Final = 8
_SPLITS: Final = 4
#: Fewest and most columns, and labelled rows; drawn evenly in their logarithm.
COLUMNS: Final = (3, 40)
KNOWN: Final = (5, 64)
#: Rows to answer for in each table.
ASKED: Final = 24
#: Cells of a batch, which bounds its number of tables between these two.
_CELLS: Final = 30_000
_TABLES: Final = (12, 64)


@dataclass(frozen=True)
class Batch:
    """Tables of one size: values (b, n + q, c) with NaN for missing cells, labels (b, n) of the first rows,
    and (b, q) the chance of class 1 of the others, which is 0 or 1 where the class came first."""

    values: Tensor
    labels: Tensor
    chances: Tensor


def draw(generator: torch.Generator) -> Batch:
    """Return a batch; its size is drawn, too."""
    known, columns = _between(KNOWN, generator), _between(COLUMNS, generator)
    rows = known + ASKED
    tables = min(max(_CELLS // (rows * columns), _TABLES[0]), _TABLES[1])
    return _Maker(tables, known, columns, generator).batch()


def _between(bounds: tuple[int, int], generator: torch.Generator) -> int:
    low, high = (math.log(bound) for bound in (bounds[0], bounds[1] + 1))
    return int(math.exp(low + (high - low) * float(torch.rand((), generator=generator))))


class _Maker:
    """Draws one batch: b tables of n known rows and c columns."""

    def __init__(self, tables: int, known: int, columns: int, generator: torch.Generator) -> None:
        self._b, self._n, self._c, self._t = tables, known, columns, known + ASKED
        self._generator = generator

    def batch(self) -> Batch:
        first = self._rand(self._b, 1) < 0.4
        share = torch.sigmoid(0.9 * self._normal(self._b, 1))
        drawn = (self._rand(self._b, self._t) < share).float()
        sign = torch.where(first, 2 * drawn - 1, 0.0)[:, :, None]

        causes = self._causes(sign)
        columns = self._columns(causes)
        strength = torch.exp(0.8 * self._normal(self._b, 1, 1) - 1) * self._flag(0.6)
        own = self._normal(self._b, 1, self._c) * self._some(self._c)
        columns = columns + sign * own * strength

        chances = torch.where(first, drawn, self._chances(causes, columns))
        labels = (self._rand(self._b, self._t) < chances).long()
        # Labels that are simply wrong, in some tables, among those to learn from.
        wrong = self._rand(self._b, self._t) < 0.15 * self._rand(self._b, 1) * self._flag(0.3)[:, 0]
        learnt = torch.where(wrong, 1 - labels, labels)
        values = self._holes(self._kinds(columns), labels)
        return Batch(values, learnt[:, : self._n], chances[:, self._n :])

    def _causes(self, sign: Tensor) -> Tensor:
        """Return (b, t, r) latent causes, shifted by the class where it came first."""
        decay = torch.exp(-1.5 * self._rand(self._b, 1, 1) * torch.arange(_CAUSES))
        plain = self._normal(self._b, self._t, _CAUSES)
        centres = 1.5 * self._normal(self._b, 5, _CAUSES)
        which = torch.randint(0, 5, (self._b, self._t, 1), generator=self._generator)
        grouped = 0.6 * plain + torch.gather(centres, 1, which.expand(-1, -1, _CAUSES))
        causes = torch.where(self._flag(0.15) > 0, grouped, plain)
        # Classes may spread differently, and some populations have outliers.
        causes = causes * torch.exp(0.4 * sign * self._normal(self._b, 1, 1) * self._flag(0.4))
        tails = torch.exp(0.5 * self._normal(self._b, self._t, 1) * self._flag(0.2))
        towards = self._normal(self._b, 1, _CAUSES) * self._some(_CAUSES)
        length: Tensor = towards.norm(dim=2, keepdim=True)
        towards = towards / length.clamp(min=0.1)
        strength = torch.exp(0.8 * self._normal(self._b, 1, 1) + 0.2)
        causes = causes * tails + sign * towards * strength
        moved = 0.7 * self._normal(self._b, 1, _CAUSES) * self._flag(0.2)
        asked = (torch.arange(self._t) >= self._n).float()[None, :, None]
        return (causes + moved * asked) * decay

    def _columns(self, causes: Tensor) -> Tensor:
        """Return (b, t, c) columns before they are rounded, skewed and so on."""
        loads = self._normal(self._b, _CAUSES, self._c) * self._some(_CAUSES, self._c)
        loads = torch.where(self._flag(0.3) > 0, loads.abs(), loads)
        signal = causes @ loads
        bent = torch.tanh(signal * 1.5 + self._normal(self._b, 1, self._c))
        signal = torch.where(self._flag(0.25) > 0, bent, signal)
        signal = signal / signal.std(dim=1, keepdim=True).clamp(min=0.3)
        level = 3.5 * self._rand(self._b, 1, 1) - 2.5
        noise = torch.exp(level + 0.7 * self._normal(self._b, 1, self._c))
        return signal + noise * self._normal(self._b, self._t, self._c)

    def _chances(self, causes: Tensor, columns: Tensor) -> Tensor:
        """Return (b, t) the chance of class 1 by a score."""
        scaled = _scaled(columns)
        weights = self._normal(self._b, self._c, 1) * self._some(self._c).transpose(1, 2)
        weights = weights * torch.exp(0.8 * self._normal(self._b, self._c, 1))
        linear = _scaled(scaled @ weights)
        by_cause = _scaled(causes @ self._normal(self._b, _CAUSES, 1))
        into = self._normal(self._b, self._c, _UNITS) * self._some(self._c).transpose(1, 2)
        inner = torch.tanh(_scaled(scaled @ into) * 1.5 + self._normal(self._b, 1, _UNITS))
        network = _scaled(inner @ self._normal(self._b, _UNITS, 1))
        of = torch.randint(0, self._c, (self._b, 1, _SPLITS), generator=self._generator)
        cut = torch.gather(scaled, 2, of.expand(-1, self._t, -1))
        above = (cut > 0.7 * self._normal(self._b, 1, _SPLITS)).float()
        both = torch.cat([above[:, :, :2], above[:, :, 2:3] * above[:, :, 3:4]], dim=2)
        splits = _scaled(both @ self._normal(self._b, 3, 1))

        pick = self._rand(self._b, 1, 1)
        score = torch.where(pick < 0.4, linear, torch.where(pick < 0.65, by_cause, network))
        score = torch.where(pick > 0.85, splits, score)[:, :, 0]
        score = score + 0.5 * by_cause[:, :, 0] * self._flag(0.3)[:, 0]
        gain = torch.exp(0.9 * self._normal(self._b, 1) + 0.9)
        gain = torch.where(self._flag(0.12)[:, 0] > 0, 60.0, gain)
        threshold = self._normal(self._b, 1) * torch.where(self._flag(0.2)[:, 0] > 0, 1.2, 0.5)
        return torch.sigmoid(gain * (score - threshold))

    def _kinds(self, columns: Tensor) -> Tensor:
        """Return (b, t, c) columns rounded, skewed and so on; each table has its own mixture."""
        x = _scaled(columns)
        mixture = torch.softmax(2 * self._normal(self._b, 5, 1), dim=1).cumsum(dim=1)
        kind = (self._rand(self._b, 1, self._c) > mixture).sum(dim=1, keepdim=True)
        cut = 0.9 * self._normal(self._b, 1, self._c)
        step = torch.exp(0.7 * self._normal(self._b, 1, self._c))
        bend = 1.5 * self._rand(self._b, 1, self._c)
        x = torch.where(kind == 1, (x > cut).float(), x)
        x = torch.where(kind == 2, (x / step + cut).round().clamp(-4, 4), x)
        x = torch.where(kind == 3, torch.exp(bend * x.clamp(max=5)), x)
        x = torch.where(kind == 4, (x - cut.clamp(max=1.5)).clamp(min=0), x)
        start = 0
        for width in (2, 3, 4, 3, 5, 8):
            if start + width > self._c:
                break
            group = slice(start, start + width)
            spread = columns[:, :, group] + self._normal(self._b, 1, width)
            chosen = torch.nn.functional.one_hot(spread.argmax(dim=2), width).float()
            x[:, :, group] = torch.where(self._flag(0.3) > 0, chosen, x[:, :, group])
            start += width
        fewest = min(self._c, COLUMNS[0])
        used = fewest + (self._c + 1 - fewest) * self._rand(self._b, 1, 1)
        used = torch.where(self._flag(0.5) > 0, used, float(self._c))
        return torch.where(torch.arange(self._c) < used, x, 0.0)

    def _holes(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the columns with NaN for missing cells."""
        rate = 0.5 * self._rand(self._b, 1, 1).square() * self._flag(0.5)
        rate = rate * torch.exp(self._normal(self._b, 1, self._c))
        rate = torch.where(self._rand(self._b, 1, self._c) < 0.08 * self._flag(0.3), 1.0, rate)
        by_value = torch.sigmoid(2 * _scaled(x) * self._normal(self._b, 1, self._c))
        rate = torch.where(self._flag(0.2) > 0, 2 * rate * by_value, rate)
        by_class = torch.exp((labels[:, :, None] - 0.5) * self._normal(self._b, 1, self._c))
        rate = torch.where(self._flag(0.15) > 0, rate * by_class, rate)
        asked = (torch.arange(self._t) >= self._n)[None, :, None]
        absent = (self._rand(self._b, 1, self._c) < 0.25) & (self._flag(0.1) > 0) & asked
        gone = (self._rand(self._b, self._t, self._c) < rate) | absent
        return torch.where(gone, math.nan, x)

    def _some(self, *shape: int) -> Tensor:
        """Return (b, ..., k) zeros and ones, with another density in each table."""
        sizes = shape if len(shape) > 1 else (1, *shape)
        density = 0.1 + 0.9 * self._rand(self._b, 1, 1)
        return (self._rand(self._b, *sizes) < density).float()

    def _flag(self, chance: float) -> Tensor:
        """Return (b, 1, 1) one for a share of the tables, else zero."""
        return (self._rand(self._b, 1, 1) < chance).float()

    def _rand(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self._generator)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator)


def _scaled(x: Tensor) -> Tensor:
    """Return the columns with mean 0 and spread 1 over a table's rows."""
    centred: Tensor = x - x.mean(dim=1, keepdim=True)
    return centred / x.std(dim=1, keepdim=True).clamp(min=1e-3)


def rate(step: int, rates: Rates) -> float:
    """Return the share of the largest learning rate at a step."""
    steps, shares = ([each[at] for each in rates] for at in (0, 1))
    return float(np.interp(step, steps, shares))


def train(
    folder: Path, *, seed: int = SEED, rates: Rates = RATES, resume: Path | None = None
) -> PriorNetwork:
    """Return the network after some steps; a folder has ``log.jsonl`` and checkpoints ``step-NNNNNN.pt``."""
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
    from safetensors.torch import save

    found = torch.load(checkpoint, weights_only=True)
    # One entry: the order of several would not be the same each time.
    facts = {"recipe": json.dumps({"program": "python -m benchmarks.prior", **found["recipe"]})}
    content = save(found["network"], metadata=facts)
    Path(party.teachers.__path__[0], NAME).write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.prior",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="what", required=True)
    learn = verbs.add_parser("train", help="train the network on made-up tables")
    learn.add_argument("--out", type=Path, required=True, help="folder of checkpoints and log")
    learn.add_argument("--seed", type=int, default=SEED)
    learn.add_argument("--resume", type=Path, help="a checkpoint")
    write = verbs.add_parser("export", help="write a checkpoint's weights into the package")
    write.add_argument("checkpoint", type=Path)
    asked = parser.parse_args()
    if asked.what == "train":
        train(asked.out, seed=asked.seed, resume=asked.resume)
    else:
        print(export(asked.checkpoint))


if __name__ == "__main__":
    main()
