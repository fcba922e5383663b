"""A report on released synthetic rows for their owner: a picture and JSON.

It uses only the released rows and the public schema: a similarity to the private rows would itself
leak.
"""

from __future__ import annotations

import io
import json
import math
import textwrap
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.runtime.home import private_directory, write_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from party.synthesis.table.domain import Domain

JSON_FILE: Final = "report.json"
PICTURE_FILE: Final = "report.png"
#: Most distinguishable bars of one attribute.
_MOST_BARS: Final = 40
_COLUMNS: Final = 4
_MOST_DRAWN: Final = 64
#: Width of a letter of 9 points, in inches, at most.
_LETTER: Final = 0.08
_LOOK_FOR: Final = (
    "Released rows by code. Dashed: all codes alike, which is what noise alone gives. Look for codes "
    "that no row has, which no query will be about, and for columns that are level although you "
    "would expect some codes to be common: there the noise has won."
)


@dataclass(frozen=True)
class Marginal:
    """One attribute of the released rows.

    Attributes:
        name: of the column.
        codes: its public codes; "" is a missing cell.
        counts: of released rows per code.
    """

    name: str
    codes: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def covered(self) -> int:
        """Codes that at least one released row has."""
        return sum(count > 0 for count in self.counts)

    @property
    def absent(self) -> tuple[str, ...]:
        """Codes that no released row has."""
        return tuple(code for code, count in zip(self.codes, self.counts, strict=True) if not count)


def marginals(domain: Domain, rows: NDArray[np.intp]) -> tuple[Marginal, ...]:
    """Return how often each public code occurs.

    Args:
        domain: public.
        rows: (n, attributes) codes of the released rows.

    Raises:
        SchemaError: if the rows are not of the domain.
    """
    domain.check_codes(rows)
    return tuple(
        Marginal(
            attribute.name,
            attribute.codes,
            tuple(np.bincount(rows[:, at], minlength=len(attribute.codes)).tolist()),
        )
        for at, attribute in enumerate(domain.attributes)
    )


def write(folder: Path, domain: Domain, rows: NDArray[np.intp], title: str) -> None:
    """Write the report's two files, readable only by the owner of ``folder``.

    Args:
        folder: created if absent.
        domain: public.
        rows: (n, attributes) codes of the released rows.
        title: one line about the release.

    Raises:
        DiskError: if they cannot be written.
    """
    found = marginals(domain, rows)
    private_directory(folder)
    body = {
        "title": title,
        "rows": len(rows),
        "attributes": [
            asdict(each) | {"covered": each.covered, "absent": each.absent} for each in found
        ],
    }
    write_file(folder / JSON_FILE, json.dumps(body, indent=2).encode() + b"\n")
    write_file(folder / PICTURE_FILE, _drawn(found, title))


def _drawn(found: tuple[Marginal, ...], title: str) -> bytes:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    shown = found[:_MOST_DRAWN]
    columns = min(_COLUMNS, len(shown))
    lines = math.ceil(len(shown) / columns)
    width = 3.6 * max(2, columns)
    figure = Figure(figsize=(width, 2.6 * lines + 1.0), dpi=100, layout="constrained")
    figure.get_layout_engine().set(rect=(0.01, 0.01, 0.98, 0.98))  # type: ignore[union-attr,call-arg]
    heading = [textwrap.fill(text, int(width / _LETTER)) for text in (title, _LOOK_FOR)]
    figure.suptitle("\n".join(heading), fontsize=9, parse_math=False)
    axes = np.atleast_1d(np.asarray(figure.subplots(lines, columns))).ravel()
    for axis in axes[len(shown) :]:
        axis.axis("off")
    for axis, each in zip(axes, shown, strict=False):
        counts = each.counts[:_MOST_BARS]
        axis.bar(range(len(counts)), counts, color="#0b3c5d")
        axis.axhline(
            sum(each.counts) / len(each.codes), color="#d1731f", linestyle="--", linewidth=1
        )
        axis.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        # Names of columns and codes come from a file: `$` would be read as a formula.
        axis.set_title(
            f"{each.name[:30]}: {each.covered} of {len(each.codes)} codes",
            fontsize=9,
            loc="left",
            parse_math=False,
        )
        names = [code or "(missing)" for code in each.codes[:_MOST_BARS]]
        if len(each.codes) > len(counts):
            axis.set_xlabel(f"the first {len(counts)} codes", fontsize=7)
        step = max(1, math.ceil(len(names) / 8))
        axis.set_xticks(
            range(0, len(names), step),
            [name if len(name) <= 12 else name[:11] + "…" for name in names[::step]],
            rotation=30,
            ha="right",
            fontsize=7,
            parse_math=False,
        )
        axis.tick_params(axis="y", labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return content.getvalue()
