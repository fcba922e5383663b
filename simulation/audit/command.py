"""``pate audit``: the command. The work is in :mod:`simulation.audit.run`."""

from __future__ import annotations

from pate.runtime.command import print_json
from pate.runtime.options import takes
from pate.runtime.screen import Screen
from simulation.audit.options import AuditOptions


@takes(AuditOptions)
def audit(options: AuditOptions) -> None:
    """Attack the code that ships, and compare with its claims.

    The accountant's epsilon is an upper bound on what an observer can
    learn. An audit gives a lower bound. It runs the code in two worlds that
    differ by one unit, bets on which world it was, and turns how often it is
    right into an epsilon that no code with a smaller one could show.

    A lower bound above the claim refutes the claim: noise, sensitivity or
    accounting is broken, and the exit code is 21. One below it proves
    nothing: another attack may find more, what is rarer than one in the runs
    is never seen, and only the worlds that were tried were tried. Noise from
    a weak or public seed looks right to every attack on the output. Privacy
    rests on the proofs; an audit is how a broken one is noticed.

    A small error needs more --runs than a large one: docs/proofs/audits.md
    lists from how many runs on each of sixteen bugs is seen.

    mechanism (default): the code of each mechanism on neighbouring votes,
    on both sides of every decision, some ten thousand times; of noise
    shares and neighbour votes the noisy counts are attacked, and of a gated
    batch the gate with the labels behind it. campaign: whole campaigns with
    a ledger each, some hundred times. canary: one campaign with a real
    teacher, in whose data coins decide which of many wrong labels are
    planted; it sees noise that is missing, and little else.

    With --code or --answer records vote as at a party, by its own code, in
    files that differ by one patient who moves, leaves or says something else.

    For example: pate audit --mechanism gnmax --sigma2 40 --votes-per-unit 1
    --queries 300
    """
    from simulation.audit.run import require_all_hold, run_audits, show, to_dict

    audits = run_audits(options, Screen("pate"))
    if options.as_json:
        print_json(to_dict(audits))
    else:
        show(audits)
    require_all_hold(audits)
