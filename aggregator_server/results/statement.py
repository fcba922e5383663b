"""The privacy statement of a campaign."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pate.campaign.terms import votes_per_unit
from pate.data.embeddings import encoder_in
from pate.errors import StateError
from pate.formats.privacy_statement import (
    ObserverStatement,
    PrivacyStatement,
    adjacency_of,
    in_words,
    noise_in_words,
)
from pate.mechanisms import rounds_cost, worst_cost
from pate.planning.forecast import Forecast, expected
from pate.printable import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aggregator_server.ledger.state import CampaignState
    from pate.campaign.choices import Guess
    from pate.campaign.spec import CampaignSpec


def expected_of(state: CampaignState, guess: Guess) -> Forecast:
    """Return what the campaign is expected to give: before the roster by a guess, then by its teachers."""
    if not state.roster:
        return expected(state.spec, guess)
    return expected(
        state.spec,
        guess,
        teachers=state.teachers,
        classes=len(state.classes),
        reached=votes_per_unit(state.spec, state.roster),
    )


def promised(spec: CampaignSpec, epsilon: float, observer: str = "public") -> str:
    """Return a guarantee of a campaign as one line."""
    return in_words(epsilon, spec.delta, spec.unit, observer, neighbours=spec.neighbours)


def privacy_statement(state: CampaignState) -> PrivacyStatement:
    """Return the campaign's guarantee, from the roster to the end that of the cap."""
    if not state.roster:
        raise StateError("the campaign has no roster, so there is no privacy statement")
    spec = state.spec
    epsilon = state.epsilon
    return PrivacyStatement(
        campaign=spec.id,
        epsilon=epsilon,
        delta=spec.delta,
        unit=spec.unit,
        adjacency=adjacency_of(
            spec.unit,
            records_vote=spec.records_vote,
            series=spec.series is not None,
            code=spec.code,
        ),
        mechanism=tuple(each.to_dict() for each in state.mechanisms) + _gate(state),
        aggregation=spec.sums.aggregation,
        noise=_noise(state),
        teachers=state.teachers,
        queries_asked=state.queries_asked,
        labels_released=len(state.labels),
        composition=state.currency.name,
        cap=str(state.cap),
        realised=str(state.spent),
        ledger_head=str(state.head),
        statements=(_public(state, epsilon), _server(state)),
        series=spec.series,
        series_key=spec.series_key,
        encoder=_encoder(spec),
    )


def _encoder(spec: CampaignSpec) -> str | None:
    """Return what is said of the inputs' encoder: of inputs that were embedded elsewhere its digest only."""
    digest = encoder_in(spec.schema)
    if spec.encoder is not None or not digest:
        return spec.encoder
    return (
        f"SHA-256 {digest}, known by this digest only: the public set was embedded elsewhere, and the server "
        "started without --encoder DIR, which names the encoder, its licence, and who trained it on what; "
        "nothing here protects the records that it was trained on"
    )


def _gate(state: CampaignState) -> tuple[Mapping[str, str | int], ...]:
    """Return the gate of a gated campaign as a further step of the mechanism."""
    if state.spec.gate is None:
        return ()
    parameters = {k: v for k, v in state.spec.gate.to_dict().items() if k != "event"}
    return ({"mechanism": "gate", **parameters},)


#: The basis of the guarantee, by composition.
_HOW: Final = {
    "zcdp": "by a cap on the noise's cost that looks at no vote, ",
    "pure": "by a cap on the noise's cost that looks at no vote, ",
    "gdp": "by a cap on the noise's cost that looks at no vote, ",
    "gate": "by a private test that let the batch out as a whole or kept it back, ",
}


def server_epsilon(state: CampaignState) -> float | None:
    """Return the epsilon of the noisy sums that the server sees; None without a guarantee.

    For every query that was voted on, answered or not, it sees one noisy histogram.
    """
    if not state.spec.sums.distributed:
        return None
    if state.spec.in_rounds:
        return state.epsilon_of(rounds_cost(state.currency, state.mechanisms, state.spec.rounds))
    return state.epsilon_of(worst_cost(state.currency, state.mechanisms, len(state.voted)))


def _noise(state: CampaignState) -> str:
    return noise_in_words(state.spec.sums.honest if state.spec.sums.distributed else None)


def _public(state: CampaignState, epsilon: float) -> ObserverStatement:
    provided = (
        f"if at most {number_of(state.spec.sums.colluders, 'party')} tell others of their noise"
        if state.spec.sums.distributed
        else "if the server is honest and keeps the votes and its noise to itself"
    )
    return ObserverStatement(
        "public",
        epsilon,
        state.spec.delta,
        (
            "whoever sees the noisy sums of all rounds, the models that were shown, and anything made of "
            "either: (epsilon, delta)-differential privacy for all rounds together, "
            if state.spec.in_rounds
            else "whoever sees the released noisy counts, the labels made of them, and anything made of "
            "either: (epsilon, delta)-differential privacy for the whole release, "
            if state.spec.one_release
            else "whoever sees the released labels, which queries got none, and anything made of "
            "them: (epsilon, delta)-differential privacy for all rounds together, "
        )
        + "whatever the records are, "
        + _HOW[state.currency.name]
        + provided
        + "; "
        + _covers(state.spec),
    )


def _covers(spec: CampaignSpec) -> str:
    """Return which campaigns the guarantee is about."""
    if spec.series is None:
        return "it is about this campaign alone, and the costs of campaigns over the same records add up"
    return (
        f"it is about all campaigns of the series {spec.series!r} with this one's composition whose cap is "
        f"no larger: together they cost at most this cap, since each {spec.unit} has its votes once in all "
        "of them, and parties accept no other composition in the series; campaigns outside of it over the "
        "same records add up"
    )


def _server(state: CampaignState) -> ObserverStatement:
    spec = state.spec
    if not spec.sums.masked:
        return ObserverStatement(
            "server",
            None,
            None,
            "no guarantee: with plain aggregation the server sees the votes of each party as they "
            "are",
        )
    masks = (
        f"of the votes it sees sums over {number_of(spec.sums.min_parties, 'party')} or more alone, if at "
        f"most {number_of(spec.sums.colluders, 'party')} collude with it, in this and all campaigns over the "
        "same queries"
    )
    if not spec.sums.distributed:
        return ObserverStatement(
            "server", None, None, f"no guarantee: the server sees exact sums of votes; {masks}"
        )
    return ObserverStatement(
        "server",
        server_epsilon(state),
        spec.delta,
        "the noisy histograms of all queries that were voted on: (epsilon, delta)-differential "
        f"privacy by the noise of {number_of(spec.sums.honest, 'party')} that nobody else knows; {masks}, "
        "and the others add the noise that they should"
        + ("" if spec.series is None else f"; {_covers(spec)}"),
    )
