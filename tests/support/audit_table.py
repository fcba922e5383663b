"""The table of docs/proofs/audits.md: which bug an audit of default size sees, from exact laws.

``python -m tests.support.audit_table`` prints it.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

from pate.auditing.histograms import cell_pairs, foresee_counts
from pate.auditing.mechanism import foresee
from pate.auditing.result import Claim
from pate.mechanisms import DistributedMechanism, Neighbour
from simulation.audit.gated import foresee_gated
from simulation.audit.options import AuditOptions
from simulation.audit.run import gated_of, mechanism_of

if TYPE_CHECKING:
    from pate.auditing.result import Seen

LABELLED = ("lnmax", "gnmax", "confident-gnmax", "interactive-gnmax")
COUNTED = ("distributed-gnmax", "neighbour", "distributed-neighbour")
NAMES = (*LABELLED, *COUNTED, "gated-gnmax")
CONFIDENCE, DELTA, QUERIES = 0.999, 1e-2, 2
RUNS = {
    **dict.fromkeys(LABELLED, 20_000),
    **dict.fromkeys(COUNTED, 100_000),
    "gated-gnmax": 1_000,
}


@cache
def foretold(name: str) -> tuple[Seen, ...]:
    """Return the predictions of an audit with the default options for its bugs."""
    if name == "gated-gnmax":
        gated = gated_of(AuditOptions())
        claim = Claim(gated.gate.epsilon(DELTA), DELTA)
        return foresee_gated(gated, claim, RUNS[name], CONFIDENCE)
    mechanism = mechanism_of(name, AuditOptions())
    if isinstance(mechanism, Neighbour | DistributedMechanism):
        return foresee_counts(mechanism, QUERIES, RUNS[name], DELTA, CONFIDENCE, cell_pairs(2))
    return foresee(mechanism, QUERIES, RUNS[name], DELTA, CONFIDENCE, 2)


def table() -> str:
    """Return the table in Markdown: from how many runs on; in brackets if that is too many."""
    bugs = list(dict.fromkeys(each.bug for name in NAMES for each in foretold(name)))
    lines = [
        "|bug|" + "|".join(f"`{name}`" for name in NAMES) + "|",
        "|---" * (len(NAMES) + 1) + "|",
    ]
    lines.append("|*runs of an audit*|" + "|".join(f"*{RUNS[name]:,}*" for name in NAMES) + "|")
    for bug in bugs:
        cells = []
        for name in NAMES:
            said = next((each for each in foretold(name) if each.bug == bug), None)
            if said is None:
                cells.append("")
            elif said.seen:
                cells.append(f"{said.runs:,}")
            else:
                cells.append("**no**" if said.runs is None else f"**no** ({said.runs:,})")
        lines.append(f"|{bug}|" + "|".join(cells) + "|")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
