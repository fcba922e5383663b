"""One picture per axis: CPU, memory and bytes of the server, with the physical bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SERVER, WALL, BOUND = "#0b3c5d", "#d1731f", "#7a1f1f"
#: By panel: title, and its curves as (figure, factor, label, colour, marker).
PANELS: Final = (
    ("seconds", (
        ("server_cpu_seconds", 1.0, "server's processor", SERVER, "o"),
        ("seconds", 1.0, "wall, parties on the same cores", WALL, "s"),
        ("loopback_seconds", 1.0, "packed votes over loopback", BOUND, "^"),
    )),
    ("server's memory, MB", (
        ("server_memory_peak", 1e-6, "peak", SERVER, "o"),
        ("server_memory_before", 1e-6, "before the campaign", BOUND, "^"),
    )),
    ("traffic, MB", (
        ("bytes_down", 1e-6, "to parties", WALL, "s"),
        ("bytes_up", 1e-6, "from parties", SERVER, "o"),
        ("packed_vote_bytes", 1e-6, "packed votes", BOUND, "^"),
    )),
)  # fmt: skip


def draw(
    folder: Path, cases: Sequence[Mapping[str, object]], axes: Mapping[str, Sequence[int]]
) -> None:
    """Write ``scale_AXIS.png`` for each axis."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator, StrMethodFormatter

    for axis, at in axes.items():
        some = [cases[each] for each in at]
        places = [float(str(each[axis])) for each in some]
        fixed = ", ".join(f"{some[0][name]:,} {name}" for name in axes if name != axis)
        figure = Figure(figsize=(12.5, 4.6), dpi=120, layout="constrained")
        figure.suptitle(f"One campaign by the number of {axis}: {fixed}, masked sums", fontsize=11)
        for panel, (title, curves) in zip(figure.subplots(1, 3), PANELS, strict=True):
            for name, factor, label, colour, marker in curves:
                values = [factor * float(str(each[name])) for each in some]
                line = ":" if colour == BOUND else "-"
                panel.plot(places, values, color=colour, marker=marker, linestyle=line, label=label)
            panel.set_xscale("log")
            if title != "server's memory, MB":
                panel.set_yscale("log")
                panel.yaxis.set_minor_formatter(NullFormatter())
            else:
                panel.set_ylim(0, 1.1 * panel.get_ylim()[1])
            panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.xaxis.set_major_locator(FixedLocator(places))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            panel.set_xlabel(axis)
            panel.set_title(title, loc="left", fontsize=11)
            panel.grid(alpha=0.25)
            panel.legend(frameon=False, fontsize=8)
        figure.savefig(folder / f"scale_{axis}.png")
