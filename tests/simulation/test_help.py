"""What every command's `--help` shows at 80 columns: panels, whole names, choices, a line an option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from aggregator_server.cli.main import app as server
from party.cli.main import app as party
from pate.errors import UsageError
from pate.runtime.command import program_of
from pate.runtime.help import listed_choices, panel_of
from simulation.cli import app as pate
from simulation.options import SimulationOptions
from student.cli import app as student

APPS = {"pate": pate, "pate-server": server, "pate-party": party, "pate-student": student}
PROGRAMS = {name: program_of(app) for name, app in APPS.items()}
#: Characters of a help text.
MOST = 75


def commands(
    name: str, command: click.Command, above: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    context = click.Context(command, info_name=name.rsplit(maxsplit=1)[-1], parent=above)
    yield name, command, context
    for below, each in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {below}", each, context)


EACH = {
    name: (command, context)
    for top in PROGRAMS.items()
    for name, command, context in commands(*top)
}
NAMED = pytest.mark.parametrize("name", EACH)


def shown(name: str, monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    command, context = EACH[name]
    return click.unstyle(command.get_help(context)).splitlines()


@NAMED
def test_every_option_has_a_short_help_and_a_panel(name: str) -> None:
    command, context = EACH[name]
    for param in command.get_params(context):
        help_ = getattr(param, "help", None)
        assert help_, f"{name} {param.opts}"
        assert len(help_) <= MOST, f"{name} {param.opts}: {len(help_)} characters"
        assert panel_of(param) != "Options", f"{name} {param.opts}"


@NAMED
def test_nothing_is_cut_and_every_choice_is_listed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(name, monkeypatch)
    text = re.sub(r"[│\s]+", " ", " ".join(lines))
    assert "…" not in text
    assert max(map(len, lines)) <= 80
    for param in EACH[name][0].params:
        if isinstance(param, click.Option):
            for each in (*param.opts, *param.secondary_opts):
                assert re.search(rf"[ /]{each}[ ,/]", text), f"{name} {each}"
            assert listed_choices(param) in text.replace(" | ", "|")


@NAMED
def test_an_option_is_a_line_or_two(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(name, monkeypatch)
    first = [number for number, line in enumerate(lines) if line.startswith("│ --")]
    ends = [number for number, line in enumerate(lines) if line.startswith("╰")]
    taken = [min(n for n in first[i + 1 :] + ends if n > at) - at for i, at in enumerate(first)]
    assert max(taken) <= 4  # of eight choices
    assert sum(taken) <= 1.35 * len(taken)


@pytest.mark.parametrize("name", [name for name in EACH if hasattr(EACH[name][0], "commands")])
def test_commands_are_above_options_and_a_line_each(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(name, monkeypatch)
    titles = [number for number, line in enumerate(lines) if line.startswith("╭")]
    assert lines[titles[0]].startswith("╭─ Commands ")
    names = [line.split()[1] for line in lines[titles[0] + 1 : titles[1] - 1]]
    assert names == list(EACH[name][0].list_commands(EACH[name][1]))  # type: ignore[attr-defined]


def test_a_partys_commands_are_in_the_order_of_its_year() -> None:
    command, context = EACH["pate-party"]
    assert isinstance(command, click.Group)
    assert command.list_commands(context)[:5] == ["enroll", "check", "start", "ledger", "verify"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_version_and_a_shells_completion_are_printed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CliRunner()
    asked = run.invoke(PROGRAMS[name], ["--version"], prog_name=name)
    assert (asked.exit_code, asked.output) == (0, f"{name} {version('federated-pate')}\n")
    # Typer's own switch: the shell is then named, and not looked for among our parents.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    named = program_of(APPS[name])
    script = run.invoke(named, ["--show-completion", "bash"], prog_name=name)
    assert (script.exit_code, f"-F _{name.replace('-', '_')}" in script.output) == (0, True)
    variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
    words = {variable: "complete_bash", "COMP_WORDS": f"{name} --vers", "COMP_CWORD": "1"}
    offered = run.invoke(PROGRAMS[name], [], prog_name=name, env=words)
    assert offered.output.split() == ["--version"]


def test_a_misspelt_command_is_answered_once() -> None:
    wrong = CliRunner().invoke(PROGRAMS["pate"], ["simulat"], prog_name="pate")
    assert wrong.exit_code == 2
    assert wrong.output.count("Did you mean") == 1
    assert "simulate" in wrong.output


def test_a_misspelt_choice_is_refused_with_the_list() -> None:
    for words, name in (
        (["simulate", "--noise", "misspelt"], "noise"), (["audit", "misspelt"], "kind"),
    ):  # fmt: skip
        (param,) = (p for p in EACH[f"pate {words[0]}"][0].params if p.name == name)
        assert isinstance(param.type, click.Choice)
        with pytest.raises(click.BadParameter) as wrong:
            PROGRAMS["pate"].main(words, prog_name="pate", standalone_mode=False)
        assert wrong.value.exit_code == 2
        assert "'misspelt' is not " in wrong.value.format_message()
        assert ", ".join(map(repr, param.type.choices)) in wrong.value.format_message()


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
