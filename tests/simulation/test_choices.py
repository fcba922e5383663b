"""Options that choose among a few, listed by every command that has them, and those that go together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from aggregator_server.cli.main import app as server
from party.cli.main import app as party
from pate.errors import UsageError
from simulation.cli import app as pate
from simulation.options import SimulationOptions
from student.cli import app as student

PROGRAMS = {
    name: typer.main.get_command(app)
    for name, app in (
        ("pate", pate), ("pate-server", server), ("pate-party", party), ("pate-student", student),
    )
}  # fmt: skip
OF_TEACHERS = ("lnmax", "gnmax", "confident-gnmax", "interactive-gnmax")
CAMPAIGN: dict[str, tuple[str, ...]] = {
    "aggregator": (*OF_TEACHERS, "neighbour"),
    "aggregation": ("plain", "masked"),
    "noise": ("central", "distributed"),
}
UNIT: dict[str, tuple[str, ...]] = {"unit": ("record", "patient", "party")}
LAW: dict[str, tuple[str, ...]] = {"noise_law": ("gaussian", "geometric")}
SERVER = CAMPAIGN | UNIT | LAW | {"publish": ("capped", "gated")}
DEVICE: dict[str, tuple[str, ...]] = {"device": ("auto", "cpu", "cuda")}
VOTES: dict[str, tuple[str, ...]] = {"votes": ("any", "teachers", "neighbour")}
DECIMAL: dict[str, tuple[str, ...]] = {
    "decimal": ("point", "comma"),
    "thousands": ("none", "point", "comma", "space", "apostrophe"),
}
CHOICES: dict[str, dict[str, tuple[str, ...]]] = {
    "pate account": {
        "mechanism": OF_TEACHERS,
        "bounds": ("paper-2017", "paper-2018", "theorem3", "theorem6", "sharp",
                   "every-neighbour", "expected", "independent"),
        "unit": ("record", "patient", "party"),
        "adjacency": ("change", "remove"),
        "noise": ("continuous", "discrete"),
    },
    "pate audit": {
        "kind": ("mechanism", "campaign", "canary"),
        "mechanism": (*OF_TEACHERS, "distributed-gnmax", "neighbour", "distributed-neighbour",
                      "gated-gnmax"),
    } | LAW,
    "pate plan": {
        "aggregator": CAMPAIGN["aggregator"],
        "noise": ("central", "distributed"),
        "unit": ("record", "patient", "party"),
    }
    | LAW,
    "pate simulate": CAMPAIGN | {"unit": ("record", "party")} | LAW,
    **dict.fromkeys(("pate-server", "pate-server start", "pate-server check"), SERVER),
    **dict.fromkeys(("pate-party start", "pate-party answer", "pate-party train", "pate-party watch"),
                    DEVICE | VOTES | DECIMAL),
    "pate-party check": DEVICE | VOTES | UNIT | DECIMAL,
    "pate-party synthesize": DECIMAL | {
        "method": ("l1", "cfs"),
        "release": ("seedless", "seeded"),
    },
    "pate-student train": DEVICE,
    "pate-student export": {"form": ("onnx",)},
}  # fmt: skip


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    for below, each in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {below}", each)


COMMANDS = {name: each for top in PROGRAMS.items() for name, each in commands(*top)}


def test_every_choice_is_known_here() -> None:
    found = {
        name: {
            each.name: tuple(each.type.choices)
            for each in command.params
            if isinstance(each.type, click.Choice)
        }
        for name, command in COMMANDS.items()
    }
    assert {name: options for name, options in found.items() if options} == CHOICES


def test_a_misspelt_choice_is_refused_with_the_list() -> None:
    for words, choices in (
        (["simulate", "--noise", "misspelt"], CAMPAIGN["noise"]),
        (["audit", "misspelt"], CHOICES["pate audit"]["kind"]),
    ):
        with pytest.raises(click.BadParameter) as wrong:
            PROGRAMS["pate"].main(words, prog_name="pate", standalone_mode=False)
        assert wrong.value.exit_code == 2
        assert "'misspelt' is not " in wrong.value.format_message()
        assert ", ".join(map(repr, choices)) in wrong.value.format_message()


@pytest.mark.parametrize(
    "options",
    [
        {"labels": "a,b"},
        {"answer": "labels-2"},
        {"answer": "number", "labels": "a,b"},
        {"answer": "labels-2", "number": "days"},
        {"number": "days"},
        {"answer": "ordered", "labels": "a"},
        {"answer": "labels-2", "labels": "a,b", "data": None},
        {"answer": "far"},
    ],
)
def test_an_answer_and_its_columns_go_together(options: dict[str, str | None]) -> None:
    given = {"data": Path("records.csv"), "aggregator": "neighbour", **options}
    with pytest.raises(UsageError):
        SimulationOptions(**given)  # type: ignore[arg-type]


def test_labels_are_named_and_one_answer_needs_none() -> None:
    assert SimulationOptions(
        data=Path("records.csv"), answer="labels-1", labels="a, b"
    ).label_list == ("a", "b")
    assert SimulationOptions(answer="ordered").label_list == ()
