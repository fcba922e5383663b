"""What every command's `--help` shows: a short help for each option, in a panel, and nothing cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version

import click
import pytest
from click.testing import CliRunner

from aggregator_server.cli.main import app as server
from party.cli.main import app as party
from pate.runtime.command import program_of
from pate.runtime.help import panel_of
from simulation.cli import app as pate
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


@NAMED
def test_every_option_has_a_short_help_and_a_panel(name: str) -> None:
    command, context = EACH[name]
    for param in command.get_params(context):
        help_ = getattr(param, "help", None)
        assert help_, f"{name} {param.opts}"
        assert len(help_) <= MOST, f"{name} {param.opts}: {len(help_)} characters"
        assert panel_of(param) != "Options", f"{name} {param.opts}"


@NAMED
def test_every_option_and_command_is_shown_and_nothing_is_cut(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, context = EACH[name]
    monkeypatch.setenv("COLUMNS", "80")
    command.get_help(context)
    text = capsys.readouterr().out
    names = [each for param in command.params for each in (*param.opts, *param.secondary_opts)]
    names = [each for each in names if each.startswith("--")]
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for each in (*names, *getattr(command, "commands", {})):
        assert re.search(rf"[│\s,]{each}[,\s]", text), f"{name} {each}"


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
