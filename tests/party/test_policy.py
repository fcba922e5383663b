"""A site's policy: the format of its file, and the resulting refusals."""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from party.ledger.accountant import LedgerView, Totals
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.file import parse_policy, policy_of, read_policy
from party.policy.operator import question, rules_in_words
from party.policy.policy import POLICY_FILE, Allowed, Hours, Policy
from pate.accounting.composition import composition_named
from pate.accounting.filters import CONCENTRATED_PART, GAUSSIAN_PART, ORDER_PART, ORDERS
from pate.campaign.settings import delta_of, of_gated_delta
from pate.codes import GRID
from pate.errors import DataError, RefusedError, UsageError
from pate.mechanisms import ConfidentGNMax, GNMax, LNMax, Neighbour
from tests.support.party.offers import (
    KEY,
    SIX,
    altered,
    answer,
    batch_of,
    gated,
    joining,
    noisy,
    queries,
    settled,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pate.campaign.offer import Offer


DOCS = Path(__file__).resolve().parents[2] / "docs" / "policy.md"
MONDAY_NOON = datetime.fromisoformat("2030-01-07T12:00")
FREE = Policy(
    campaigns="any", least_roster=None, least_survivors=0, least_colluders=0, largest_epsilon=None
)


def admit(
    policy: Policy,
    offer: Offer,
    *,
    already: tuple[int, int] = (0, 0),
    joined: bool = False,
    now: datetime = MONDAY_NOON,
    key: bytes | None = None,
    ask: Callable[[Offer], bool] | None = None,
) -> None:
    """Ask a policy about a first request; ``already`` is what two other campaigns came to."""
    others = (
        Totals(settled(campaign="d2" * 16), already[0], already[0]),
        Totals(settled(campaign="e3" * 16), already[1], already[1]),
    )
    mine = Totals(offer, offer.queries, offer.queries)
    view = LedgerView((*others, mine), (offer.campaign, offer.queries), joined)
    policy.admit(offer, view, now, key, ask)


def refused(policy: Policy, offer: Offer, words: str, **rest: Any) -> None:
    with pytest.raises(RefusedError, match=re.escape(words)):
        admit(policy, offer, **rest)


def of_records(mechanism: Neighbour) -> Offer:
    pure: dict[str, Any] = {} if mechanism.scale is None else {"composition": "pure", "delta": 0.0}
    code = {} if mechanism.code == "nearest" else {"code": mechanism.code}
    return settled(aggregator="neighbour", mechanisms=(mechanism,), **pure | code)


# --- rules ---------------------------------------------------------------------------------------


def test_without_rules_all_is_admitted() -> None:
    for offer in (joining(), settled(), noisy()):
        admit(FREE, offer)


def test_modes() -> None:
    plain = dataclasses.replace(FREE, aggregation=("masked", "plain"))
    admit(plain, settled(aggregation="plain"))
    refused(
        FREE, joining(aggregation="plain"), "aggregation is masked, and the campaign has 'plain'"
    )
    shares = dataclasses.replace(FREE, noise=("distributed",))
    admit(shares, noisy())
    refused(shares, settled(), "noise is distributed, and the campaign has 'central'")
    patients = dataclasses.replace(FREE, units=("patient", "party"))
    admit(patients, settled(unit="party"))
    refused(patients, settled(), "units is patient, party, and the campaign has 'record'")
    near = of_records(Neighbour(3, Fraction(40), 1))
    refused(dataclasses.replace(FREE, codes=("dense",)), near, "codes is dense, and the campaign")


def test_records_in_masked_rounds_need_noise_by_the_parties() -> None:
    """Whatever the file says, before any term is known; plain votes the server sees anyway."""
    everything = dataclasses.replace(FREE, aggregation=("masked", "plain"), repeat_queries="allow")
    of_labels = {"code": "dense-8 residual-labels", "classes": ("u", "v", "none")}
    for more in ({"code": "dense-8 residual"}, of_labels):
        terms = {"aggregator": "neighbour", "rounds": 3, **more}
        refused(
            everything, joining(**terms), "only with noise by the parties (--noise distributed)"
        )
        admit(everything, joining(**terms, noise="distributed"))
        admit(everything, joining(**terms, aggregation="plain", colluders=0))
    admit(everything, joining(**terms | {"code": "dense-8", "rounds": 1}))


def test_the_roster_is_looked_at_once_it_is_known() -> None:
    policy = dataclasses.replace(FREE, least_roster=6)
    admit(policy, joining())
    admit(policy, settled())
    refused(
        policy,
        settled(roster=("a", "b", "c"), threshold=3),
        "least_roster is 6, and the roster has 3",
    )
    refused(policy, joining(queries=1), "least_roster is 6, and the request has no roster")


@pytest.mark.parametrize(
    ("mechanism", "sigma", "multiplier"),
    [
        # sigma; its share of sqrt(2) k for a label, of k for a check
        (GNMax(Fraction(40), 1), 40.0, 40 / 2**0.5),
        (GNMax(Fraction(40), 10), 40.0, 4 / 2**0.5),
        (ConfidentGNMax(180, Fraction(10), Fraction(40), 1), 10.0, 10.0),
        (ConfidentGNMax(180, Fraction(100), Fraction(40), 1), 40.0, 40 / 2**0.5),
        (LNMax(Fraction(20), 1), 20 * 2**0.5, 10.0),
        # of records' votes: one matrix, of whatever size; of dense ones in votes, not in their units
        (Neighbour(3, Fraction(40), 1), 40.0, 40 / 2**0.5),
        (Neighbour(3, Fraction(88 * GRID), 1, code="dense-4"), 88.0, 44.0),
        (Neighbour(3, votes_per_unit=1, scale=Fraction(20)), 20 * 2**0.5, 10.0),
    ],
)
def test_noise_is_that_of_the_least_step(
    mechanism: GNMax | LNMax | Neighbour, sigma: float, multiplier: float
) -> None:
    if isinstance(mechanism, Neighbour):
        offer = of_records(mechanism)
    else:
        composition = "zcdp" if isinstance(mechanism, LNMax) else "gdp"
        offer = settled(mechanisms=(GNMax(Fraction(1000), 1), mechanism), composition=composition)
    for rule, limit in (("least_sigma", sigma), ("least_noise_multiplier", multiplier)):
        for factor, fits in ((Fraction(999, 1000), True), (Fraction(1001, 1000), False)):
            bound = Fraction(limit) * factor
            rules: dict[str, Any] = {rule: bound}
            policy = dataclasses.replace(FREE, **rules)
            if fits:
                admit(policy, offer)
            else:
                refused(policy, offer, f"{rule} is {float(bound):.10g}, and {mechanism.name}")
            admit(policy, joining())  # nothing to look at yet, and nothing leaves yet
            refused(policy, joining(queries=1), "the request names no noise")


def test_the_noise_of_shares_is_that_of_the_certain_ones() -> None:
    at_forty = dataclasses.replace(FREE, least_sigma=Fraction(40))
    admit(at_forty, noisy())  # four shares of 20
    refused(
        dataclasses.replace(FREE, least_sigma=Fraction(41)),
        noisy(),
        "distributed-gnmax adds 40 votes",
    )


def test_numbers_of_queries() -> None:
    policy = dataclasses.replace(FREE, max_queries=10, max_queries_in_all=40)
    admit(policy, settled(queries=10), already=(20, 10))
    refused(policy, settled(queries=11), "max_queries is 10, and this campaign would have 11")
    refused(
        policy,
        settled(queries=10),
        "max_queries_in_all is 40, and all campaigns would have 41",
        already=(20, 11),
    )


def test_a_repeated_request_does_not_count_again(tmp_path: Path) -> None:
    ledger = PartyLedger(tmp_path / LEDGER_FILE)
    policy = dataclasses.replace(FREE, max_queries=4)
    hashes = queries(0, 4)
    offer = settled(queries=4)
    policy.admit(offer, ledger.view(offer, batch_of(hashes), hashes), MONDAY_NOON)
    answer(ledger, settled(), hashes)
    policy.admit(offer, ledger.view(offer, batch_of(hashes), hashes), MONDAY_NOON)
    more = queries(3, 2)
    with pytest.raises(RefusedError, match="would have 5"):
        policy.admit(settled(), ledger.view(settled(), batch_of(more), more), MONDAY_NOON)


def test_the_own_accountant_has_the_last_word() -> None:
    policy = dataclasses.replace(FREE, largest_epsilon=2.0, delta=1e-5)
    admit(policy, joining(epsilon=2.0))
    refused(policy, joining(epsilon=2.1), "largest_epsilon is 2, and the campaign announces 2.1")
    # 100 queries cost at most 1/16 and are within the cap; three such campaigns cost 3/16.
    admit(policy, settled(queries=50))
    admit(policy, settled(queries=50, epsilon=9.0))  # the terms say more than the announcement
    refused(
        policy,
        settled(queries=100),
        "largest_epsilon is 2 at delta 1e-05, and our cumulative epsilon would be 2.656",
        already=(100, 100),
    )
    offer = gated(1.0, 2e-6, queries=100)
    refused(policy, offer, "exceed the 1e-06 that is set aside for them (failing_share)")
    admit(dataclasses.replace(policy, failing_share=Fraction(1, 5)), offer)


def test_what_a_gated_server_takes_if_nothing_is_said_fits_a_party_to_which_nothing_is_said() -> (
    None
):
    policy = dataclasses.replace(Policy.default(loopback=False), campaigns="any")
    taken = delta_of("gated", None)
    offer = gated(delta=taken)
    admit(policy, offer)
    assert of_gated_delta("gated", taken) == of_gated_delta("capped", 1e-5) == ""
    # One that is typed is said to be refused just where it is.
    assert "refuse this one" in of_gated_delta("gated", 1e-5)
    refused(policy, gated(delta=1e-5), "a smaller delta, or a larger share")


def test_a_tenth_as_it_is_written_fits_a_tenth() -> None:
    for digit, exponent in product(range(1, 10), range(-12, -2)):
        delta = float(f"{digit}e{exponent}")
        policy = dataclasses.replace(FREE, largest_epsilon=4.0, delta=delta)
        admit(policy, gated(2.0, float(f"{digit}e{exponent - 1}")))
        # Not by adding to the whole.
        divided = policy.divided_delta
        parts = (GAUSSIAN_PART, CONCENTRATED_PART, *([ORDER_PART] * len(ORDERS)))
        rest = sum(Fraction(divided.of(part)) for part in parts)
        assert divided.for_failing + rest <= Fraction(delta)


def test_a_gate_is_held_against_its_promise_before_a_vote_is_computed() -> None:
    offer = gated(1.5, 1e-6)
    gate = offer.require_settled().gate
    assert gate is not None
    admit(FREE, offer)
    refused(FREE, altered(offer, epsilon=1.4), "announces epsilon 1.4, but its")
    wider = dataclasses.replace(gate, target=gate.target * 2)
    refused(FREE, altered(offer, gate=wider), "announces epsilon 1.5, but its")
    # It would fail more often than delta says.
    refused(FREE, altered(offer, delta=1e-7), "its terms give no guarantee: this gate fails")
    refused(FREE, altered(offer, cap=Fraction(2)), "give no guarantee: one batch may be")
    # Nor is a part of a batch released.
    lying = altered(offer, cap=Fraction(1, 2))
    refused(FREE, lying, "is gated and its cap is 1/2 batches")
    refused(FREE, altered(offer, rounds=2), "has 2 rounds: a gate allows only one")
    huge = dataclasses.replace(gate, order=Fraction(10**6), target=Fraction(10**6))
    refused(FREE, altered(offer, gate=huge), "campaign c1c1c1c1")
    often = dataclasses.replace(gate, failure=Fraction(1, 3))
    refused(FREE, altered(offer, gate=often), "its terms give no guarantee")


def test_terms_that_are_worth_more_than_was_announced_are_refused_by_everyone() -> None:
    refused(
        FREE,
        settled(epsilon=1.7),
        "announces epsilon 1.7, but its terms convert to 1.7601",
    )
    admit(FREE, settled(epsilon=1.8))


def test_hours() -> None:
    policy = dataclasses.replace(FREE, hours=Hours.parse("08:00-18:00", ["mon", "tue"]))
    admit(policy, settled())
    admit(policy, settled(), now=datetime.fromisoformat("2030-01-08T08:00"))
    for moment in ("2030-01-07T07:59", "2030-01-07T18:00", "2030-01-09T12:00"):
        now = datetime.fromisoformat(moment)
        refused(policy, settled(), "hours is 08:00-18:00 on mon, tue, and it is", now=now)
        admit(policy, joining(), now=now)  # joining computes no votes


def test_masks_that_stand_fewer_colluders_than_we_reckon_with() -> None:
    policy = dataclasses.replace(FREE, least_survivors=None, least_colluders=None)
    admit(policy, settled())  # six parties, five in a sum, one colluder
    refused(
        policy, settled(threshold=4, colluders=0), "least_survivors is 5, and the campaign's is 4"
    )
    refused(policy, settled(colluders=0), "least_colluders is 1, and the campaign's is 0")
    admit(dataclasses.replace(policy, least_colluders=0), settled(colluders=0))
    plain = dataclasses.replace(policy, aggregation=("plain",))
    admit(plain, settled(aggregation="plain", threshold=1, colluders=0))


def test_noisy_sums_of_no_more_queries_than_the_cap_pays_for() -> None:
    worst = noisy().require_settled().mechanisms[0].worst[0]
    cap = 2 * composition_named("zcdp").cost(worst)
    admit(FREE, noisy(queries=2, cap=cap, composition="zcdp"))
    refused(FREE, noisy(queries=3, cap=cap, composition="zcdp"), "more than its cap covers")


def test_only_parties_that_are_known_by_key() -> None:
    """Otherwise a coordinator could enrol five fake parties and subtract their votes."""
    keys = {name: name.encode().hex() * 32 for name in SIX}
    policy = dataclasses.replace(FREE, parties=keys)
    known = tuple(keys.values())
    admit(policy, joining())
    admit(policy, settled(identities=known))
    refused(policy, settled(), "a has another key")
    refused(policy, settled(identities=(*known[:5], "00" * 32)), "f has another key")
    refused(
        dataclasses.replace(policy, parties={name: keys[name] for name in SIX[:5]}),
        settled(identities=known),
        "f is not on it",
    )


def test_only_the_enrolments_key() -> None:
    policy = dataclasses.replace(FREE, campaigns="enrolled")
    admit(policy, joining(), key=KEY)
    refused(policy, joining(), "this party is not enrolled")
    refused(
        policy, joining(), f"signed by {KEY.hex()}, not by the key of the enrolment", key=bytes(32)
    )


def test_a_list_of_campaigns() -> None:
    def only(*allowed: Allowed) -> Policy:
        return dataclasses.replace(FREE, campaigns=allowed)

    admit(only(Allowed(bytes(32)), Allowed(KEY)), joining())
    admit(only(Allowed(KEY, "c1" * 16)), joining())
    for others in (
        (),
        (Allowed(bytes(32)),),
        (Allowed(KEY, "d2" * 16),),
        (Allowed(bytes(32), "c1" * 16),),
    ):
        refused(only(*others), joining(), f"campaign {'c1' * 16} is not on it", key=KEY)


def test_somebody_is_asked_once_and_after_all_other_rules() -> None:
    policy = dataclasses.replace(FREE, campaigns="ask", least_roster=7)
    asked: list[str] = []

    def yes(offer: Offer) -> bool:
        asked.append(question(offer))
        return True

    refused(policy, settled(), "least_roster", ask=yes)
    assert not asked
    admit(policy, joining(), ask=yes)
    assert len(asked) == 1
    assert "epsilon 2 at delta 1e-05 (unit: record; adjacency: one record" in asked[0]
    admit(policy, joining(), joined=True)  # agreed to before
    refused(policy, joining(), "there is no operator to ask")
    refused(policy, joining(), "the answer was no", ask=lambda _: False)


def test_the_ledger_of_another_request_is_refused() -> None:
    offer = settled(queries=5)
    view = LedgerView((Totals(offer),), (offer.campaign, 4))
    with pytest.raises(UsageError, match="for another request"):
        FREE.admit(offer, view, MONDAY_NOON)


# --- defaults and words --------------------------------------------------------------------------


def test_the_defaults_are_strict_but_on_loopback() -> None:
    strict = Policy.default(loopback=False)
    assert strict == Policy()
    admit(strict, joining(), key=KEY)
    refused(strict, joining(), "not enrolled")
    refused(strict, joining(aggregation="plain"), "aggregation", key=KEY)
    refused(
        strict, settled(roster=("a", "b"), threshold=2, colluders=0), "least_roster is 3", key=KEY
    )
    refused(strict, joining(epsilon=11.0), "largest_epsilon is 10", key=KEY)
    loopback = Policy.default(loopback=True)
    admit(loopback, settled(aggregation="plain", roster=("a",), threshold=1, epsilon=50.0))
    assert not strict.allow_other
    assert not loopback.allow_other
    assert dataclasses.replace(strict, repeat_queries="allow").allow_other


def test_in_words() -> None:
    lines = "\n".join(rules_in_words(Policy()))
    assert "pinned at enrolment" in lines
    assert "own accountant reaches epsilon 10 at delta 1e-05, of which 1e-06 is for" in lines
    assert "at least 3 parties" in lines
    few = dataclasses.replace(FREE, hours=Hours.parse("20:00-06:00"), max_queries=5)
    assert "at most 5 queries per campaign" in "\n".join(rules_in_words(few))
    assert "votes only 20:00-06:00, local time" in rules_in_words(few)
    near = dataclasses.replace(FREE, codes=("nearest",))
    assert "accepts neighbour votes by the code nearest only" in rules_in_words(near)
    assert "code" not in lines


# --- the file ------------------------------------------------------------------------------------


def parsed(text: str, *, loopback: bool = False) -> Policy:
    return parse_policy(text, source="policy.toml", loopback=loopback)


def test_encoders_are_accepted_by_their_digest() -> None:
    ours, other = "ab" * 32, "cd" * 32
    offer = joining(schema=f"embeddings 6 by {ours} of images")
    strict = dataclasses.replace(FREE, encoders=())
    with pytest.raises(RefusedError, match=f"encoders.*{ours}; add it if you trust it"):
        admit(strict, offer)
    with pytest.raises(RefusedError, match="encoders"):
        admit(dataclasses.replace(FREE, encoders=(other,)), offer)
    admit(dataclasses.replace(FREE, encoders=(other, ours)), offer)
    admit(dataclasses.replace(FREE, encoders=None), offer)
    admit(strict, altered(offer, schema="images 8x8x1"))
    assert Policy.default(loopback=False).encoders == ()
    assert Policy.default(loopback=True).encoders is None
    said = rules_in_words(dataclasses.replace(FREE, encoders=(other, ours)))
    assert "accepts inputs made by the public encoder cdcdcdcd or abababab" in said
    anyone = rules_in_words(dataclasses.replace(FREE, encoders=None))
    assert "accepts inputs made by any public encoder" in anyone


@pytest.mark.parametrize("value", ['"none"', '["ab"]', '"ab"', "3", f'["{"AB" * 32}"]'])
def test_encoders_that_are_no_digests_are_refused(value: str) -> None:
    with pytest.raises(UsageError, match="encoders"):
        parse_policy(f"encoders = {value}", source="p", loopback=False)
    assert parse_policy('encoders = "any"', source="p", loopback=False).encoders is None


def test_the_example_of_the_docs_is_a_policy_with_every_key() -> None:
    example, campaigns = re.findall(
        r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL
    )
    policy = parsed(example)
    assert policy == Policy(
        campaigns="enrolled",
        max_queries=5000,
        max_queries_in_all=20000,
        least_sigma=Fraction(40),
        least_noise_multiplier=Fraction(20),
        least_roster=5,
        least_survivors=4,
        least_colluders=1,
        aggregation=("masked",),
        noise=("distributed",),
        largest_epsilon=4.0,
        delta=1e-6,
        failing_share=Fraction(1, 10),
        units=("patient", "party"),
        codes=("nearest",),
        answers=("class", "labels"),
        encoders=("2fa8bb48aa3de6cefc679e7ff26020b8b1ee346c81a81804f6e7f7215ec224e8",),
        hours=Hours(450, 1080, frozenset(range(5))),
        repeat_queries="never",
        parties=policy.parties,
    )
    assert sorted(policy.parties or {}) == [f"hospital_{letter}" for letter in "abcde"]
    keys = {field.name for field in dataclasses.fields(Policy)} | {"weekdays"}
    named = set(re.findall(r"^(\w+) = ", example.partition("[parties]")[0], re.MULTILINE))
    assert named == keys - {"parties"}
    assert (
        set(re.findall(r"^\| `(\w+)` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)) == keys
    )
    listed = parsed(campaigns).campaigns
    assert [each.id is None for each in listed if isinstance(each, Allowed)] == [False, True]


def test_what_is_not_named_is_as_by_default() -> None:
    for loopback in (False, True):
        assert parsed("", loopback=loopback) == Policy.default(loopback=loopback)
    assert parsed('largest_epsilon = "none"\nleast_roster = "none"') == dataclasses.replace(
        Policy(), largest_epsilon=None, least_roster=None
    )
    assert parsed("least_sigma = 0.1").least_sigma == Fraction(1, 10)  # not its nearest float
    assert parsed('weekdays = ["sun"]').hours == Hours.parse(weekdays=["sun"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "max_querys = 5",
            "policy.toml: unknown key 'max_querys'; did you mean 'max_queries'?",
        ),
        ("[campaigns]\nkey = 'aa'", "policy.toml: campaigns: a word, or a list"),
        ("campaigns = 'none'", "policy.toml: campaigns is one of enrolled, any, ask"),
        ("campaigns = [{key = 'aa'}]", "64 hexadecimal digits"),
        (f"campaigns = [{{key = '{'a' * 64}', name = 'b'}}]", "unknown key 'name'"),
        (f"campaigns = [{{key = '{'a' * 64}', id = 'b'}}]", "the campaign's id, hexadecimal"),
        ("max_queries = 0", "max_queries must be a whole number of at least 1"),
        ("max_queries = 1.5", "policy.toml: max_queries: a whole number or 'none' is wanted"),
        ("max_queries = true", "a whole number"),
        ("least_sigma = -1", "least_sigma must be a number above 0"),
        ("least_sigma = nan", "a number is wanted"),
        ("least_sigma = true", "a number is wanted"),
        ("least_sigma = 1e-999999", "a number is wanted"),
        ("largest_epsilon = inf", "a number is wanted"),
        ("largest_epsilon = 'any'", "a number is wanted"),
        ("delta = 1", "delta must be between 0 and 1"),
        ("delta = 'none'", "a number is wanted"),
        ("aggregation = 'masked'", "a list of texts is wanted"),
        ("aggregation = []", "aggregation is a list of one or more of plain, masked"),
        ("noise = ['loud']", "noise is a list of one or more of central, distributed"),
        ("units = [1]", "a list of texts is wanted"),
        ("codes = ['dense-10']", "codes is a list of one or more of nearest, dense"),
        ("hours = '8-18'", "policy.toml: hours: hours are written as 08:00-18:00"),
        ("hours = '08:00-24:01'", "are an empty span"),
        ("hours = '08:00-08:00'", "are an empty span"),
        ("hours = '24:00-08:00'", "are an empty span"),
        ("weekdays = ['monday']", "policy.toml: weekdays: weekdays is a list of some of mon"),
        ("weekdays = []", "weekdays is a list"),
        ("repeat_queries = true", "a text is wanted"),
        ("repeat_queries = 'sometimes'", "repeat_queries is one of never, allow"),
    ],
)
def test_a_file_that_makes_no_sense(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        parsed(text)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / POLICY_FILE
    assert policy_of(tmp_path, loopback=True) == Policy.default(loopback=True)
    with pytest.raises(DataError, match="cannot read"):
        read_policy(path, loopback=False)  # named, and not there
    for body, words in (
        (b"a = ", "not valid TOML"),
        (b"\xff", "not text"),
        (b"#" * 2**21, "too large"),
    ):
        path.write_bytes(body)
        with pytest.raises(DataError, match=words):
            policy_of(tmp_path, loopback=False)
    path.write_text("least_roster = 9")
    assert policy_of(tmp_path, loopback=True).least_roster == 9


# --- the file, as an enemy writes it --------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("largest_epsilon = 1e99999999999999999999", DataError, "a number that is too large"),
        ("largest_epsilon = -1e99999999999999999999", DataError, "a number that is too large"),
        ("least_sigma = 1e999999999", UsageError, "least_sigma: a number is wanted"),
        ("largest_epsilon = 1" + "0" * 400, UsageError, "largest_epsilon: a number is wanted of"),
        ("delta = 1" + "0" * 400, UsageError, "delta: a number is wanted of sane size"),
        ("least_sigma = 1" + "0" * 400, UsageError, "least_sigma: a number is wanted of sane size"),
        ("delta = 0." + "1" * 101, UsageError, "delta: a number of at most 100 digits"),
        ("max_queries = 1" + "0" * 400, UsageError, "a whole number below 2^63 is wanted"),
        ("max_queries = 9223372036854775808", UsageError, "a whole number below 2^63 is wanted"),
        ("max_queries = " + "9" * 5000, DataError, "a number that is too large"),
        ("max_queries = 0x" + "f" * 5000, UsageError, "got a whole number of 20000 bits"),
        ("hours = 0x" + "f" * 5000, UsageError, "got a whole number of 20000 bits"),
        ("campaigns = " + "[" * 3000 + "]" * 3000, DataError, "nested too deeply"),
        ("campaigns = " + "{a=" * 3000 + "1" + "}" * 3000, DataError, "nested too deeply"),
        ("max_queries" + ".a" * 63 + " = 1", UsageError, "got {'a': {'a': {...}}}"),
        ("max_queries" + ".a" * 500_000 + " = 1", DataError, "a key of more than 64 parts"),
        ("k" * 100_000 + " = 1", UsageError, "unknown key 'kkkk"),
        ("hours = '" + "8" * 100_000 + "'", UsageError, "hours are written as 08:00-18:00"),
        ('[parties]\n"a\\nb" = "c"', UsageError, "parties: 'a\\nb': an identity key"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_a_file_of_an_enemy_ends_in_one_line(text: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)) as caught:
        parsed(text)
    line = str(caught.value)
    assert line.startswith("policy.toml")
    assert line.isprintable()
    assert len(line) < 400


def test_numbers_at_their_bounds() -> None:
    assert parsed("max_queries = 9223372036854775807").max_queries == 2**63 - 1
    assert parsed("delta = 0." + "1" * 100).delta == float("0." + "1" * 100)


SCALARS = st.one_of(
    st.integers(-(10**30), 10**30).map(str),
    st.integers(1, 6000).map(lambda digits: "9" * digits),
    st.integers(1, 6000).map(lambda digits: "0x" + "f" * digits),
    st.tuples(st.integers(-9, 9), st.integers(-(10**25), 10**25)).map("{0[0]}e{0[1]}".format),
    st.floats().map(str),
    st.sampled_from(("true", "07:30:00", "2030-01-07", "2030-02-31T25:00Z", "+inf", "-nan", "''")),
    st.sampled_from(("none", "enrolled", "masked", "mon", "08:00-18:00", "a" * 64)).map(repr),
    st.text(max_size=12).map(lambda text: f'"{text}"'),
    st.text(max_size=12),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        st.dictionaries(st.sampled_from(("key", "id", "a")), inner, max_size=3).map(
            lambda parts: (
                "{" + ", ".join(f"{name} = {value}" for name, value in parts.items()) + "}"
            )
        ),
        st.tuples(st.integers(1, 400), inner).map(lambda deep: "[" * deep[0] + deep[1]),
    ),
    max_leaves=5,
)
NAMES = st.sampled_from(sorted({field.name for field in dataclasses.fields(Policy)} | {"weekdays"}))
LINES = st.one_of(
    st.tuples(NAMES, VALUES).map(" = ".join),
    st.tuples(NAMES, st.integers(1, 300), VALUES).map(
        lambda it: f"{it[0]}{'.a' * it[1]} = {it[2]}"
    ),
    NAMES.map("[{}]".format),
    NAMES.map("[[{}]]".format),
    st.text(max_size=30),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES, max_size=4).map("\n".join))
def test_nothing_but_our_errors_leaves_the_parser(text: str) -> None:
    try:
        policy = parsed(text)
    except (UsageError, DataError) as error:
        line = str(error)
        assert line.startswith("policy.toml")
        assert line.isprintable()
        assert len(line) < 1000
    else:
        assert rules_in_words(policy)


@pytest.mark.parametrize("change", [{"least_sigma": 4.0}, {"max_queries": True}, {"delta": 0.0}])
def test_a_policy_that_cannot_be(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Policy(**change)
