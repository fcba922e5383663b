"""Small campaigns for the tests of the server, with real files and real noise."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from aggregator_server.campaign.labelling import CappedRelease, RoundSummary
from aggregator_server.ledger.encoding import Probabilities
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store import stores
from aggregator_server.ledger.store.place import Place
from pate.campaign.order import public_order
from pate.campaign.roster import RosterParty
from pate.campaign.spec import CampaignSpec
from pate.errors import UsageError
from pate.noise.exact import Noise, SystemNoise
from pate.votes import Counts, Histogram

CLASSES = ("cat", "dog", "owl")
NAMES = ("avon", "brook", "cherwell", "derwent")


def make_spec(**changes: Any) -> CampaignSpec:
    """A campaign, from its text: each change by the name that ledgers have for it.

    Teachers' ``answer`` and ``release`` are as the options of a command.
    """
    answer, release = changes.pop("answer", "class"), changes.pop("release", "labels")
    fields: dict[str, Any] = {
        "name": "trial",
        "id": "0f" * 16,
        "aggregator": "confident-gnmax",
        "parties": 4,
        "min_parties": 3,
        "public_set": "ab" * 32,
        "queries": 200,
        "schema": "images 8x8x1",
        "epsilon": 8.0,
        "delta": 1e-5,
        "classes": None,
        "unit": "record",
        "rounds": 1,
        "first_round_share": Fraction(1, 2),
        "max_queries": None,
        "aggregation": "plain",
        "noise": "central",
        "colluders": 0,
        "vote_proofs": False,
        "publish": "capped",
        **dict.fromkeys(("threshold", "interactive_threshold", "sigma1", "sigma2")),
        **dict.fromkeys(("scale", "confidence")),
        **dict.fromkeys(("gate_order", "gate_target", "gate_test", "gate_failure")),
        **dict.fromkeys(("representatives", "most_votes", "votes_per_patient")),
    }
    fields |= changes
    asked, labels = min(fields["queries"], fields["max_queries"] or 10**9), fields["classes"] or ()
    if release != "labels" and answer != "class":
        raise UsageError(f"release = {release} is for the answer class, not {answer}")
    if release.startswith("axes"):
        fields["code"] = release
    elif release != "labels":
        fields["code"] = f"each-{asked}" + (" balanced" if release == "balanced" else "")
    elif answer != "class":
        fields["code"] = f"each-{asked} {answer}-of-{len(labels)}"
    return CampaignSpec.from_dict({name: _text(value) for name, value in fields.items()})


def _text(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def make_parties(teachers: int = 25, unit: str = "record") -> list[RosterParty]:
    return [RosterParty(name, f"{at:064x}", teachers, unit) for at, name in enumerate(NAMES)]


def make_votes(queries: int, teachers: int = 100, seed: int = 1) -> Counts:
    """Votes that mostly agree on class ``query % 3``."""
    rng = np.random.default_rng(seed)
    shares = np.full((queries, len(CLASSES)), 0.1)
    shares[np.arange(queries), np.arange(queries) % 3] = 0.8
    return rng.multinomial(teachers, shares).astype(np.int64)


def start(place: Place, spec: CampaignSpec | None = None, *, voted: bool = True) -> Ledger:
    """A ledger with a roster, and with votes unless told otherwise."""
    spec = spec or make_spec()
    ledger = Ledger.create(place, spec)
    ledger.record_roster(make_parties(unit="record"), CLASSES)
    if voted:
        votes = make_votes(spec.queries)
        half = spec.queries // 2
        ledger.record_votes(0, Histogram(votes[:half], 100), NAMES)
        ledger.record_votes(half, Histogram(votes[half:], 100), NAMES)
    return ledger


def label(ledger: Ledger, noise: Noise | None = None) -> RoundSummary:
    """Work on the present round of a capped campaign as a server does."""
    return CappedRelease().label(ledger, noise or SystemNoise())


def label_to_the_end(place: Place) -> None:
    """Do the work of a server reduced to its ledger: start or continue a campaign, label, finish."""
    spec = make_spec(queries=400, epsilon=10.0)
    with Ledger.open(place) if stores.exists(place) else start(place, spec) as ledger:
        if not ledger.state().rounds_over:
            label(ledger)
            ledger.end_round(wants_predictions=False)
        ledger.finish()


def answer(ledger: Ledger, count: int) -> None:
    """Answer only the next queries of the first round, ``count`` of them."""
    state = ledger.state()
    order = public_order(state.spec.id, state.spec.queries)
    queries = [query for query in order if query not in state.answered.get(1, ())][:count]
    charge = ledger.charge(queries)
    rows = ledger.counts_of(queries)
    ledger.release(charge, state.mechanism(1).answer_all(rows, SystemNoise()))


def make_predictions(queries: int, sure: float = 0.98) -> Probabilities:
    """A student that is sure of class ``query % 3``."""
    made = np.full((queries, len(CLASSES)), (1 - sure) / 2, dtype=np.float32)
    made[np.arange(queries), np.arange(queries) % 3] = sure
    return made
