"""``pate audit``: the options of the command. The work is in :mod:`simulation.audit.run`."""

from __future__ import annotations

from typing import Annotated

import typer

from pate.runtime.command import ConfigOption, JsonOption, print_json
from pate.runtime.screen import Screen

KindArgument = Annotated[
    str,
    # What the three are stands in the command's help: with the newest click, an argument shows none.
    typer.Argument(help="mechanism, campaign or canary.", metavar="[mechanism|campaign|canary]"),
]
MechanismOption = Annotated[
    str | None,
    typer.Option(
        help="lnmax, gnmax, confident-gnmax or interactive-gnmax; only for mechanism also "
        "distributed-gnmax (noise shares), neighbour, distributed-neighbour and gated-gnmax. "
        "Default: all of them for mechanism, confident-gnmax for campaign, gnmax for canary."
    ),
]
ThresholdOption = Annotated[
    int | None, typer.Option(help="Votes that the check asks for. Default: 60.")
]
Sigma1Option = Annotated[
    str | None,
    typer.Option(help="Noise of the check, in votes. Default: 3 times --sigma2."),
]
Sigma2Option = Annotated[
    str | None, typer.Option(help="Noise on each count, in votes. Default: as --sigma1.")
]
ScaleOption = Annotated[
    str | None,
    typer.Option(help="LNMax: Laplace noise, in votes. Default: as --votes-per-unit."),
]
UnitOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="k: votes of each query that one unit reaches. Default: 2, so that a forgotten k "
        "shows; for canary 1.",
    ),
]
QueriesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Queries of a run, or matrices of neighbour votes; for canary, how many canaries. "
        "Default: 2, 64 for gated-gnmax, 8 for campaign, 100 for canary.",
    ),
]
RunsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Runs that count, in each of the two worlds; half as many more are spent on learning, "
        "and a quarter on a second pair of neighbours. "
        "Default: 20000, 100000 of noisy counts, 1000 of gated-gnmax, 600 campaigns. More runs come "
        "nearer to the truth, and see smaller bugs.",
    ),
]
DeltaOption = Annotated[
    float | None,
    typer.Option(
        help="At which epsilon is claimed and bounded. Events rarer than one in --runs are never "
        "seen. Default: 1e-2; for canary 1e-5."
    ),
]
ConfidenceOption = Annotated[
    float, typer.Option(help="With which each lower bound holds: so rarely is it too large.")
]
PartiesOption = Annotated[int, typer.Option(min=1, help="Canary: how many parties.")]
TeachersOption = Annotated[int, typer.Option(min=1, help="Canary: teachers of each party.")]


def audit(
    kind: KindArgument = "mechanism",
    mechanism: MechanismOption = None,
    threshold: ThresholdOption = None,
    sigma1: Sigma1Option = None,
    sigma2: Sigma2Option = None,
    scale: ScaleOption = None,
    votes_per_unit: UnitOption = None,
    queries: QueriesOption = None,
    runs: RunsOption = None,
    delta: DeltaOption = None,
    confidence: ConfidenceOption = 0.999,
    parties: PartiesOption = 1,
    teachers: TeachersOption = 1,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Attack the code that ships; hold what comes out against what is claimed.

    The accountant's epsilon is an upper bound on what an observer can
    learn. An audit gives a lower bound. It runs the code in two worlds that
    differ by one unit, bets on which world it was, and turns how often it is
    right into an epsilon that no code with a smaller one could show.

    A lower bound above the claim refutes the claim: noise, sensitivity or
    accounting is broken, and the exit code is 21. One below it proves
    nothing: another attack may find more, what is rarer than one in the runs
    is never seen, and only the worlds that were tried were tried. Privacy
    rests on the proofs; an audit is how a broken one is noticed.

    How much it would notice is printed with it: a list of bugs (noise
    missing at the check, at the label or on some classes, one draw used
    twice, noise too small, a sensitivity or a charge forgotten, a noise
    share left out, a gate not asked), for each from how many runs on this
    audit sees it, and by which neighbours. A bug marked NO may be there.
    Raise --runs to the number beside it to look for it.

    mechanism (default): the code of each mechanism on neighbouring votes,
    on both sides of every decision, some ten thousand times; of noise
    shares and neighbour votes the noisy counts are attacked, and of a gated
    batch the gate with the labels behind it. campaign: whole campaigns with
    a ledger each, some hundred times. canary: one campaign with a real
    teacher, in whose data coins decide which of many wrong labels are
    planted; it sees noise that is missing, and little else.

    For example: pate audit --mechanism gnmax --sigma2 40 --votes-per-unit 1
    --queries 300
    """
    del config  # read before the other options, by its callback
    from simulation.audit.run import Request, require_all_hold, run_audits, show, to_dict

    audits = run_audits(
        Request(
            kind=kind,
            mechanism=mechanism,
            threshold=threshold,
            sigma1=sigma1,
            sigma2=sigma2,
            scale=scale,
            votes_per_unit=votes_per_unit,
            queries=queries,
            runs=runs,
            delta=delta,
            confidence=confidence,
            parties=parties,
            teachers=teachers,
        ),
        Screen("pate"),
    )
    if as_json:
        print_json(to_dict(audits))
    else:
        show(audits)
    require_all_hold(audits)
