"""A network that reads a whole labelled table and answers for further rows, without training.

Every row has a state, and every column. In each of a few rounds a column takes up the sum of the
labelled rows' states, weighted by its cells; columns attend to one another; a row takes up the sum of
the columns' states, weighted by its cells; and rows attend to the labelled rows. One round can compute
what one step of gradient descent on a linear model computes, so that the network begins with
something like a regression and learns what small tables need besides.

The order of rows and of columns does not matter, nor does their number. A query's state enters neither
a column nor another row: the answer to it depends on the labelled rows and on itself.

Sources: Müller, Hollmann, Pineda Arango, Grabocka and Hutter, "Transformers can do Bayesian
inference", ICLR 2022; Hollmann et al., "Accurate predictions on small data with a tabular foundation
model", Nature 637, 2025; von Oswald et al., "Transformers learn in-context by gradient descent",
ICML 2023.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

#: Width of a state, heads of attention, width of the inner layers, rounds.
WIDTH: Final = 48
_HEADS: Final = 3
_INNER: Final = 96
ROUNDS: Final = 3
#: Numbers that describe a cell, a column and a table; see :func:`describe`.
_CELL: Final = 5
_COLUMN: Final = 6
_TABLE: Final = 3
#: A number counts as at most this many spreads from the labelled rows' mean.
_FARTHEST: Final = 3.0


class _Attention(nn.Module):
    """Attention over a set, whose members have no order."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.both = nn.Linear(WIDTH, 2 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, states: torch.Tensor, seen: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return (b, t, d) what each of (b, t, d) states takes from (b, n, d) seen ones."""
        query = self.query(states).unflatten(2, (_HEADS, -1)).transpose(1, 2)
        key, value = self.both(seen).unflatten(2, (2, _HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        result: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return result


def _inner() -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, _INNER), nn.GELU(), nn.Linear(_INNER, WIDTH)
    )


class _Round(nn.Module):
    """One exchange between rows and columns."""

    def __init__(self) -> None:
        super().__init__()
        self.row_norm, self.column_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.into_columns = nn.Linear(_CELL * WIDTH, WIDTH)
        self.into_rows = nn.Linear(WIDTH, _CELL * WIDTH)
        self.among_columns, self.among_rows = _Attention(), _Attention()
        self.column_before, self.row_before = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.column_inner, self.row_inner = _inner(), _inner()

    def forward(
        self,
        rows: torch.Tensor,
        columns: torch.Tensor,
        cells: torch.Tensor,
        live: torch.Tensor,
        known: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both states after one round; shapes as in :meth:`PriorNetwork.forward`."""
        batch, count, width, parts = cells.shape
        flat = cells.reshape(batch, count, width * parts)
        summed = flat[:, :known].transpose(1, 2) @ self.row_norm(rows[:, :known]) / known**0.5
        columns = columns + self.into_columns(summed.reshape(batch, width, parts * WIDTH))
        normed = self.column_before(columns)
        columns = columns + self.among_columns(normed, normed, live[:, None, None, :])
        columns = columns + self.column_inner(columns)
        spread = self.into_rows(self.column_norm(columns)).reshape(batch, width * parts, WIDTH)
        scale = live.sum(dim=1).clamp(min=1).to(rows.dtype).rsqrt()
        rows = rows + flat @ spread * scale[:, None, None]
        normed = self.row_before(rows)
        rows = rows + self.among_rows(normed, normed[:, :known])
        return rows + self.row_inner(rows), columns


class PriorNetwork(nn.Module):
    """The network."""

    def __init__(self) -> None:
        super().__init__()
        self.label = nn.Embedding(3, WIDTH)  # of class 0, of class 1, unknown
        self.table = nn.Linear(_TABLE, WIDTH)
        self.column = nn.Linear(_COLUMN, WIDTH)
        self.rounds = nn.ModuleList(_Round() for _ in range(ROUNDS))
        self.answer = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1))

    def forward(self, values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return (b, t - n) the logit of class 1 for each row after the n labelled ones."""
        known = labels.shape[1]
        cells, facts, live = describe(values, known)
        share = labels.to(values.dtype).mean(dim=1)
        size = torch.full_like(share, known).log()
        table = torch.stack(
            [size - 3, share - 0.5, live.sum(dim=1).to(values.dtype).log1p() - 2], dim=1
        )
        start = self.table(table)[:, None]
        unknown = labels.new_full((labels.shape[0], values.shape[1] - known), 2)
        rows = self.label(torch.cat([labels, unknown], dim=1)) + start
        columns = self.column(facts) + start
        # Attention to no column at all would be NaN; the cells of a table without live columns are zero.
        heard = live | ~live.any(dim=1, keepdim=True)
        for each in self.rounds:
            rows, columns = each(rows, columns, cells, heard, known)
        logits: torch.Tensor = self.answer(rows[:, known:]).squeeze(2)
        return logits


def describe(values: torch.Tensor, known: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what the network sees of some tables; scales come from their labelled rows only.

    ``values``: (b, t, c) float32; NaN is a missing cell; ``known``: n, the number of labelled rows,
    the first ones.

    Returns (b, t, c, 5) of each cell the distance from the mean in spreads, that distance squashed,
    the rank among the labelled rows from -1 to 1, its square, and whether it is missing; (b, c, 6)
    facts of each column; (b, c) bool, whether a column differs among the labelled rows. One that
    does not has cells of zero.
    """
    missing = values.isnan()
    present = (~missing[:, :known]).to(values.dtype)
    filled = values.nan_to_num(nan=0.0)
    count = present.sum(dim=1).clamp(min=1)
    mean = (filled[:, :known] * present).sum(dim=1) / count
    centred = filled - mean[:, None]
    spread = ((centred[:, :known].square() * present).sum(dim=1) / count).sqrt()
    share = present.mean(dim=1)
    # Relative to the values' size: what rounding leaves of a constant column does not count.
    varies = spread > 1e-5 * (1 + mean.abs())
    live = varies | ((share > 0) & (share < 1))
    scaled = centred / torch.where(varies, spread, 1.0)[:, None]
    scaled = torch.where(varies[:, None], scaled, 0.0).clamp(-_FARTHEST, _FARTHEST)
    # (b, t, n, c): how each row compares with each labelled row.
    against = (filled[:, :, None] - filled[:, None, :known]).sign() * present[:, None]
    rank = against.sum(dim=2) / count[:, None]
    ties = ((against[:, :known] == 0) * present[:, None] * present[:, :, None]).sum(dim=(1, 2))
    shown = (live[:, None] & ~missing).to(values.dtype)
    rank = rank * varies[:, None]
    cells = torch.stack(
        [
            scaled * shown, (1.5 * scaled).tanh() * shown, 1.7 * rank * shown,
            (3 * rank.square() - 1) * shown, (live[:, None] & missing).to(values.dtype),
        ],
        dim=3,
    )  # fmt: skip
    skew = (scaled[:, :known].pow(3) * present).sum(dim=1) / count
    facts = torch.stack(
        [
            share,
            ties / count.square(),
            skew.clamp(-3, 3),
            (scaled[:, :known].abs() * present).sum(dim=1) / count,
            count.log() - 3,
            live.to(values.dtype),
        ],
        dim=2,
    )
    return cells, facts, live
