"""Options that choose among a few: listed by every command that has them, and a misspelt one refused."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
import typer

from aggregator_server.cli.main import app as server
from party.cli.main import app as party
from simulation.cli import app as pate
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
        "bounds": ("paper-2017", "paper-2018", "theorem3", "theorem6", "sharp", "expected",
                   "independent"),
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
    "pate simulate": CAMPAIGN | LAW,
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
EACH = [(name, option) for name, options in CHOICES.items() for option in options]


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


@pytest.mark.parametrize(("name", "option"), EACH, ids=[" ".join(each) for each in EACH])
def test_a_misspelt_choice_is_refused_with_the_list(name: str, option: str) -> None:
    command = COMMANDS[name]
    (param,) = [each for each in command.params if each.name == option]
    words = ["misspelt"] if param.param_type_name == "argument" else [param.opts[0], "misspelt"]
    for each in command.params:
        if each.required:
            words += [each.opts[0], "1"]
    with pytest.raises(click.BadParameter) as wrong:
        command.main(words, prog_name=name, standalone_mode=False)
    assert wrong.value.exit_code == 2
    listed = ", ".join(map(repr, CHOICES[name][option]))
    assert "'misspelt' is not " in wrong.value.format_message()
    assert listed in wrong.value.format_message()
