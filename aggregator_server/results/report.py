"""Reports on a campaign from its ledger: for the screen, JSON, and label files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from aggregator_server.exchange.presence import here_in_words, in_words, noted
from aggregator_server.exchange.store import FILE, Store
from aggregator_server.ledger import verify as audit
from aggregator_server.ledger.store import place
from aggregator_server.ledger.store.place import place_of
from aggregator_server.results.statement import privacy_statement, server_epsilon
from pate.answers import CLASS, NUMBER, answer_of
from pate.codes import NEAREST, code_of
from pate.errors import StateError
from pate.foreign import json_value
from pate.formats.labels import LabelRow, LabelSet
from pate.formats.privacy_statement import delta_rounded_up, rounded_up
from pate.printable import listed
from pate.runtime.screen import Display
from pate.storage.hash_chain import Head

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from aggregator_server.ledger.state import CampaignState

#: The ledger's name in a campaign's folder, if it is a file.
LEDGER_FILE: Final = place.LEDGER_FILE
#: Shown characters of an entry.
_WIDEST: Final = 100
_TERMS: Final = ("delta", "unit", "adjacency", "observer")
_NOISE: Final = {"central": "server", "distributed": "parties"}


def describe(folder: Path, database: str | None = None) -> dict[str, object]:
    """Return the status of the campaign in ``folder``, also while a server runs it.

    ``database`` is the address of its ledger's database, for a folder without an anchor.
    """
    state, _ = audit.read_campaign(place_of(folder, database))
    found, path = describe_state(state), folder / FILE
    if state.phase == "gathering" and (present := noted(folder)):
        found["present"] = present | {
            "wanted": state.spec.wanted_parties,
            "missing": _missing(state.spec.parties, present),
        }
    if path.exists():
        found["envelopes"] = [each.facts() for each in Store(path, read_only=True).newest()]
    return found


def describe_state(state: CampaignState) -> dict[str, object]:
    """Return the public figures of a campaign."""
    spec = state.spec
    found: dict[str, object] = {
        "campaign": spec.name,
        "id": spec.id,
        "phase": state.phase,
        "round": state.round,
        "rounds": spec.rounds,
        "aggregator": spec.aggregator,
        "queries": spec.queries,
        "queries_asked": state.queries_asked,
        "labels_released": len(state.labels),
        "parties": [party.name for party in state.roster],
        **({} if spec.records_vote else {"teachers": state.teachers}),
        "classes": list(state.classes),
        "ledger_head": str(state.head),
    }
    if not spec.voted_for.labelled:
        found["answer"] = str(spec.voted_for)
    if code_of(spec.code).in_directions:
        found["code"] = spec.code
    if spec.series is not None:
        found["series"] = spec.series
    if spec.encoder is not None:
        found["encoder"] = spec.encoder
    if spec.gate is not None:
        found["gate"] = state.gate or ("interrupted" if state.spent else "not tried")
    if state.roster:
        statement = privacy_statement(state)
        found |= {
            "epsilon": statement.epsilon,
            "delta": statement.delta,
            "unit": statement.unit,
            "adjacency": statement.adjacency,
            "observer": statement.observer,
            "aggregation": spec.sums.aggregation,
            "noise": spec.sums.noise,
            "epsilon_server": server_epsilon(state),
            "budget_spent": round(float(state.spent / state.cap), 4),
        }
    return found


def show(found: Mapping[str, object]) -> None:
    """Print the result of :func:`describe`; long values, and those to copy, are below the table."""
    sheet = Table(show_header=False)
    sheet.add_column(style="bold")
    sheet.add_column(overflow="fold")
    for name, text in _rows(found):
        # Never as markup: names are untrusted.
        sheet.add_row(name, Text(text))
    console = Display()
    console.print(sheet)
    if "adjacency" in found:
        console.print(f"adjacency: {found['adjacency']}", markup=False)
    envelopes = found.get("envelopes", [])
    assert isinstance(envelopes, list)  # noqa: S101 - as describe made it
    for each in envelopes:
        console.print(in_words(each), markup=False)
    console.print(f"ledger head: {found['ledger_head']}", markup=False, soft_wrap=True)


def _rows(found: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    yield "campaign", f"{found['campaign']} ({found['id']})"
    if "series" in found:
        yield "series", f"{found['series']}: in all its campaigns each unit has its votes once"
    yield "phase", f"{found['phase']}, round {found['round']} of {found['rounds']}"
    yield "mechanism", str(found["aggregator"])
    asked, code = int(str(found["queries_asked"])), code_of(str(found.get("code", NEAREST)))
    if code.in_directions:
        yield "asked", f"{code.asked_in_words(asked)}; the public set has {found['queries']} inputs"
    else:
        yield "queries", f"{asked} asked; the public set has {found['queries']}"
    answer = answer_of(str(found.get("answer", CLASS)))
    yield "released", answer.release_in_words(int(str(found["labels_released"])), asked)
    parties, classes = found["parties"], found["classes"]
    assert isinstance(parties, list)  # noqa: S101 - as describe_state made them
    assert isinstance(classes, list)  # noqa: S101
    if not parties:
        yield "parties", "not all are here: the roster, the classes and the budget are not fixed"
        if "present" in found:
            yield "here", _present_in_words(found["present"])
        return
    yield "parties", f"{len(parties)}: {', '.join(parties)}"
    if "teachers" in found:
        yield "teachers", str(found["teachers"])
    kind = "classes" if answer.one_hot else "range" if answer.name == NUMBER else "columns"
    shown = f"{len(classes)}: {', '.join(classes)}"
    if kind == "range":
        between = "" if len(classes) == 2 else f", at {shown}"
        shown = f"{classes[0]} to {classes[-1]}{between}"
    yield kind, shown
    yield "sums of votes", f"{found['aggregation']}, noise by the {_NOISE[str(found['noise'])]}"
    delta = delta_rounded_up(float(str(found["delta"])))
    for observer, name in ((found["observer"], "epsilon"), ("server", "epsilon_server")):
        epsilon = found[name]
        yield (
            f"towards the {observer}",
            "nothing is promised"
            if epsilon is None
            else f"epsilon {rounded_up(float(str(epsilon)))} at delta {delta} per {found['unit']}",
        )
    yield "charged", f"{100 * float(str(found['budget_spent'])):.2f} % of the privacy budget"
    if "gate" in found:
        yield "gate", str(found["gate"])


def _present_in_words(present: object) -> str:
    """Return who was here when the server last saw a change."""
    assert isinstance(present, dict)  # noqa: S101 - as describe made it
    here, preparing = present["here"], present["preparing"]
    others = "".join(
        f"; {name}: {listed(present[name])}" for name in ("missing", "refused") if present[name]
    )
    return (
        f"{len(here) + len(preparing)} of {present['wanted']} ({here_in_words(here, preparing)}){others}; "
        f"since {present['at']}"
    )


def _missing(parties: tuple[str, ...] | int, present: Mapping[str, object]) -> list[str]:
    """Return who is awaited by name, and neither here nor refusing; nobody if only a number is."""
    if isinstance(parties, int):
        return []
    known: set[object] = set()
    for name in ("here", "preparing", "refused"):
        found = present.get(name)
        known.update(found if isinstance(found, list) else ())
    return sorted(set(parties) - known)


def label_set(folder: Path) -> LabelSet:
    """Return the released labels of the campaign in ``folder`` with their privacy statement."""
    state, _ = audit.read_campaign(place_of(folder))
    if state.phase != "finished":
        raise StateError(
            f"the campaign in {folder} is {state.phase}: its labels can be exported once it is "
            "finished; `pate-server resume` continues it"
        )
    return LabelSet(
        campaign=bytes.fromhex(state.spec.id),
        classes=state.classes,
        public_set=bytes.fromhex(state.spec.public_set),
        queries=state.spec.queries,
        rows=tuple(
            LabelRow(query, held.label, held.round, held.source)
            for query, held in state.labels.items()
        ),
        privacy=privacy_statement(state).to_json(),
        noisy=state.noisy,
    )


def entries(folder: Path) -> list[dict[str, object]]:
    """Return the ledger's entries; they are private to the server."""
    _, held = audit.read_campaign(place_of(folder))
    return [
        {
            "seq": entry.seq,
            "kind": entry.kind,
            "written_at": entry.written_at,
            "body": json_value(entry.body),
            "digest": entry.digest.hex(),
        }
        for entry in held
    ]


def show_entries(held: Sequence[Mapping[str, object]]) -> None:
    """Print entries, one per line, long bodies truncated."""
    console = Display(soft_wrap=True)
    for entry in held:
        body = json.dumps(entry["body"], separators=(",", ":"))
        cut = body if len(body) <= _WIDEST else body[: _WIDEST - 1] + "…"
        console.print(
            f"{entry['seq']:>6} {entry['written_at']} {entry['kind']:<12} "
            f"{str(entry['digest'])[:12]} {cut}",
            markup=False,
        )


def verify(folder: Path, head: str | None, database: str | None = None) -> dict[str, object]:
    """Verify the ledger, in which ``head`` must be if it is given, and return its summary."""
    state = audit.verify(place_of(folder, database), Head.given(head))
    stated = describe_state(state)
    return {
        # Before the roster there is no guarantee.
        **{key: value for key, value in stated.items() if key in _TERMS},
        "campaign": state.spec.id,
        "phase": state.phase,
        "head": str(state.head),
        "entries": state.head.seq,
        "labels_released": len(state.labels),
        "queries_asked": state.queries_asked,
        "epsilon": state.epsilon,
        "composition": None if state.composition is None else state.composition.name,
        "cap": str(state.cap),
        "spent": str(state.spent),
        "wasted": str(state.wasted),
    }
