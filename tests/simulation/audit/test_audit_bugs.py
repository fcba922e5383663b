"""Every bug of the list, planted in the code that ships: an audit finds those that it said it would.

What is going to be found, and from how many runs on, follows from exact laws before anything runs; here
the audit has exactly as many runs as that, and no more. Bits come from a seed, so nothing here fails by
chance; that honest code stands is tested with the operating system's bits, in
:mod:`tests.pate.auditing.test_auditing_mechanism`.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from pate.auditing import harness
from pate.auditing.mechanism import audit_mechanism, claimed
from pate.auditing.neighbours import CLASSES, cell_pairs
from pate.noise.exact import SystemNoise
from simulation.audit.campaigns import audit_gated
from simulation.audit.options import AuditOptions
from simulation.audit.run import gated_of, mechanism_of
from tests.support.audits import bugs
from tests.support.audits.bugs import GATED, Bug, bugs_of
from tests.support.audits.count_laws import count_laws
from tests.support.audits.foretold import COUNTED, LABELLED, RUNS, foretold, table
from tests.support.audits.planting import plant, run_together, seed
from tests.support.audits.power import level_events, reached
from tests.support.needs import others_slow

ROOT = Path(__file__).resolve().parents[3]
CASES = [
    (name, bug)
    for name in (*LABELLED, *COUNTED)
    for bug in bugs_of(mechanism_of(name, AuditOptions()))
] + [("gated-gnmax", bug) for bug in GATED]

#: Audited with every change: one bug of each mechanism, of those that few runs find.
FIRST = [
    ("lnmax", bugs.NO_NOISE), ("gnmax", bugs.TWO_ALIKE), ("confident-gnmax", bugs.NO_CHECK_NOISE),
    ("interactive-gnmax", bugs.NO_LABEL_NOISE), ("distributed-gnmax", bugs.HALF_SHARES),
    ("neighbour", bugs.EVERY_SECOND), ("distributed-neighbour", bugs.SMALL),
    ("gated-gnmax", bugs.NO_GATE_NOISE),
]  # fmt: skip
assert {name for name, _ in FIRST} == {name for name, _ in CASES}, "a mechanism without a bug"

#: Tried under another name, by the same code: shares, by distributed-gnmax; the rule of a threshold test,
#: whose numbers of runs are those of confident-gnmax; and the filter, whose charges cost labels most runs.
TWICE = {
    ("distributed-neighbour", bugs.ONE_SHARE),
    ("distributed-neighbour", bugs.HALF_SHARES),
    *(case for case in CASES if case[0] == "interactive-gnmax" and case not in FIRST),
    *((name, bugs.FREE) for name in LABELLED),
}
#: One call of the samplers makes the runs of a pair, where no draws are shared by queries.
CALLS = 1
#: What no audit of default size sees, and why: see docs/proofs/audits.md, section 3.
NOT_SEEN = {
    ("lnmax", bugs.SMALL),
    *((name, bugs.EVEN) for name in LABELLED),
    ("gated-gnmax", bugs.SMALL),
    ("gated-gnmax", bugs.ONE_VOTE),
}


#: Those that are planted; couples of classes for one mechanism: one function chooses the labels of each.
AUDITED = [case for case in CASES if case not in NOT_SEEN | TWICE]
AUDITED += [
    ("lnmax", bugs.one_draw_for(*couple))
    for couple in itertools.combinations(range(CLASSES), 2)
    if couple != bugs.TWO_ALIKE.alike
]


def test_what_an_audit_sees_is_foretold() -> None:
    for name, bug in CASES:
        (said,) = [each for each in foretold(name) if each.bug == bug.name]
        assert said.seen is ((name, bug) not in NOT_SEEN), f"{name}: {bug.name}"
    runs = [
        [each.runs for each in foretold(f"{name}-gnmax")] for name in ("confident", "interactive")
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("name", "bug"),
    others_slow(AUDITED, FIRST.__contains__),
    ids=[f"{name}: {bug.name}" for name, bug in AUDITED],
)
def test_a_planted_bug_is_found_with_as_many_runs_as_was_said(
    name: str, bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each couple of classes leads in a query of some pair, so as many runs see it.
    foreseen = bugs.TWO_ALIKE if bug.alike else bug
    (runs,) = [each.runs for each in foretold(name) if each.bug == foreseen.name]
    assert runs is not None
    assert_found(name, bug, runs, monkeypatch)


def test_a_stream_from_a_public_seed_is_seen_by_no_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its law is right, so whoever does not try the seed sees nothing: see docs/proofs/audits.md, 5.

    That noise is drawn from the operating system only, tests/pate/noise/test_noise_sources.py checks.
    """
    seed(monkeypatch, "the public id of a campaign")
    monkeypatch.setattr(harness, "CALLS", CALLS)
    mechanism = mechanism_of("gnmax", AuditOptions())
    audit = audit_mechanism(
        mechanism, SystemNoise(), queries=2, runs=1_000, delta=1e-2, confidence=0.999, votes=2
    )
    assert audit.holds


def assert_found(name: str, bug: Bug, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a bug and audit with so many runs."""
    seed(monkeypatch, f"{name} {bug.name}")
    if not bug.of_batch:
        monkeypatch.setattr(harness, "CALLS", CALLS)
        run_together(monkeypatch)
    if name == "gated-gnmax":
        gated = gated_of(AuditOptions())
        plant(monkeypatch, bug, gated.mechanism, counted=False)
        audit = audit_gated(gated, SystemNoise(), runs=runs, confidence=0.999)
    else:
        mechanism = mechanism_of(name, AuditOptions())
        plant(monkeypatch, bug, mechanism, counted=name in COUNTED)
        audit = audit_mechanism(
            mechanism, SystemNoise(),
            queries=2, runs=runs, delta=1e-2, confidence=0.999, votes=2,
        )  # fmt: skip
    assert not audit.holds, f"{audit.lower_bound} of {audit.claimed}, by {audit.pair}"


def test_the_table_of_the_documents_is_what_the_code_says() -> None:
    """``python -m tests.support.audits.foretold`` prints it anew."""
    text = (ROOT / "docs/proofs/audits.md").read_text(encoding="utf-8")
    assert table() in text


def test_the_tests_that_the_documents_name_exist() -> None:
    text = (ROOT / "docs/proofs/audits.md").read_text(encoding="utf-8")
    named = {
        word.strip("`,.();") for word in text.split() if word.strip("`,.();").startswith("tests/")
    }
    assert len(named) >= 6
    for path in named:
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("name", COUNTED)
def test_one_gaussian_release_is_attacked_to_seven_tenths_of_its_claim(name: str) -> None:
    """With the default runs, but with probability 1e-6: the honest code, and the exact laws of it."""
    mechanism = mechanism_of(name, AuditOptions())
    claim = claimed(mechanism, 2, 1e-2)
    (difference, *_) = count_laws(mechanism, cell_pairs(2)[0], 2, bugs.Bug("none"))  # type: ignore[arg-type]
    epsilon, mu = reached(level_events(difference), RUNS[name], claim, 0.0005)
    assert claim.mu is not None
    assert 0.7 * claim.epsilon <= epsilon.max() <= claim.epsilon
    assert 0.9 * claim.mu <= mu.max() <= claim.mu
