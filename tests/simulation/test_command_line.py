"""Common behaviour of all commands: help with examples, one-line errors, exit codes, configuration files."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import click
import pytest
import typer
from PIL import Image

import aggregator_server.cli.main
import party.cli.main
import simulation.cli
import student.cli
from pate.errors import every_kind
from pate.runtime.child import free_port
from tests.support.world.commands import signals_restored

ROOT = Path(__file__).resolve().parents[2]
MAINS: dict[str, Callable[[], NoReturn]] = {
    "pate": simulation.cli.main,
    "pate-server": aggregator_server.cli.main.main,
    "pate-party": party.cli.main.main,
    "pate-student": student.cli.main,
}


#: A program by its name, and its arguments.
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """A program with these arguments, in this process: importing everything anew would take long."""

    def done(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        with pytest.raises(SystemExit) as ended:
            MAINS[program]()  # an unexpected error would come out as itself
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(arguments, ended.value.code, *capfd.readouterr())

    with signals_restored():
        yield done


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """An interpreter of its own."""
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )


@pytest.mark.parametrize(
    ("arguments", "slow", "words"),
    [
        (["-m", "pate", "--help"], {"numpy", "cryptography.x509"}, ["demo", "simulate"]),
        (
            ["-m", "aggregator_server", "--help"], {"numpy", "cryptography.x509"},
            ["--aggregator", "--epsilon", "resume", "ledger", "export", "status"],
        ),
        (["-m", "party", "--help"], {"numpy", "cryptography.x509"}, ["start"]),
        (
            ["-m", "student", "--help"], {"numpy", "cryptography.x509"},
            ["train", "evaluate", "predict", "export"],
        ),
        (["-m", "aggregator_server", "--version"], {"numpy", "cryptography.x509"}, ["pate-server "]),
        (["-m", "aggregator_server", "status", "--home", "/nowhere"], set(), []),
        (["-m", "party", "ledger", "--home", "/nowhere"], {"cryptography.x509"}, []),
        (["-m", "party", "start", "--data", "/nowhere"], {"cryptography.x509"}, []),
        (["-m", "aggregator_server", "--public", "/nowhere"], {"cryptography.x509"}, []),
        (["-c", "import student.session"], set(), []),
        # What answers envelopes.
        (["-c", "import party.envelopes, party.identity.enrolment, party.prepared"], {"grpc"}, []),
    ],
)  # fmt: skip
def test_a_command_imports_only_what_it_needs(
    arguments: list[str], slow: set[str], words: list[str]
) -> None:
    """A figure needs SciPy, a party or a server Flower, a certificate X.509, a database psycopg."""
    slow = slow | {
        "torch", "flwr", "sklearn", "sqlalchemy", "psycopg", "fastapi", "matplotlib", "pandas",
        "scipy",
    }  # fmt: skip
    done = started("-X", "importtime", *arguments)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pate.errors" in imported
    assert not imported & slow
    assert not words or done.returncode == 0
    for word in words:
        assert word in done.stdout, word


def test_options_that_contradict_each_other_are_refused_before_the_heavy_imports(
    tmp_path: Path,
) -> None:
    """Noise shares have no sigma1, whatever the public set and the parties are."""
    code = (
        "import sys\n"
        "from aggregator_server.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print({'torch', 'flwr', 'psycopg', 'scipy'} & set(sys.modules))\n"
    )
    done = started(
        "-c", code, "--public", "public.npz", "--home", str(tmp_path),
        "--noise", "distributed", "--sigma1", "3",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "set()\n"), done.stderr
    assert "leave sigma1 out" in done.stderr


def test_an_error_is_one_line_and_its_exit_code(tmp_path: Path, run: Run) -> None:
    missing = tmp_path / "nowhere"
    done = run("pate-party", "start", "--data", str(missing), "--home", str(tmp_path / "home"))
    assert done.returncode == 10
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("pate-party: ")
    assert str(missing) in line
    assert not (tmp_path / "home").exists()


def test_a_party_has_its_name_in_each_line_of_a_terminal_or_log_that_several_share(
    tmp_path: Path, run: Run
) -> None:
    """So has its last one."""
    (tmp_path / "north.csv").write_text("x,y\n1,a\n2,b\n")
    line = ["start", "--data", str(tmp_path / "north.csv"), "--home", str(tmp_path / "home")]
    done = run("pate-party", *line, "--label", "z")
    first, *_, last = done.stderr.splitlines()
    assert done.returncode == 10
    assert f"pate-party north: stored in {tmp_path / 'home'}; policy: the default one" in first
    assert last.startswith("pate-party north: ")
    done = started("-m", "party", *line, "--label", "z", "--log", "json")  # the format stays
    assert {json.loads(each)["party"] for each in done.stderr.splitlines()} == {"north"}


def test_a_program_is_started_by_its_name_or_its_verb(run: Run) -> None:
    assert run("pate", "--version").stdout.startswith("pate ")
    for words in (
        [], ["start"], ["--public", "nowhere", "start"], ["start", "--public", "nowhere"],
    ):  # fmt: skip
        done = run("pate-server", *words)
        named = "nowhere" in words
        assert (done.returncode, "at nowhere" in done.stderr) == ((10, 2)[not named], named)


def test_a_wrong_option_is_exit_code_2(run: Run) -> None:
    assert run("pate-party", "start", "--no-such-option").returncode == 2
    assert run("pate-server").returncode == 2  # no public set


def test_a_public_set_may_be_a_folder_of_images_without_classes(tmp_path: Path, run: Run) -> None:
    (tmp_path / "public").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "public" / "1.png")
    public = ("--public", str(tmp_path / "public"), "--home", str(tmp_path / "home"))
    done = run("pate-server", *public, "--host", "0.0.0.0")  # noqa: S104 - it is refused
    assert done.returncode == 2, done.stderr
    assert "identit" in done.stderr or "init" in done.stderr


def test_a_configuration_file_is_read_and_options_win(tmp_path: Path, run: Run) -> None:
    config = tmp_path / "server.toml"
    config.write_text('aggregator = "no-such"\nparties = "2"\nmin-parties = 2\n')
    public = tmp_path / "public.csv"
    public.write_text("x\n1\n2\n")
    common = ["--public", str(public), "--config", str(config), "--home", str(tmp_path / "home")]
    done = run("pate-server", *common)
    assert done.returncode == 2
    assert "no-such" in done.stderr
    done = run("pate-server", *common, "--aggregator", "lnmax", "--sigma2", "4")
    assert done.returncode == 2
    assert "sigma2 has no meaning for lnmax" in done.stderr


@pytest.mark.parametrize(
    ("text", "why"), [("agregator = 'gnmax'\n", "agregator"), ("parties = \n", "not valid TOML")]
)
def test_a_bad_configuration_file_is_named(tmp_path: Path, run: Run, text: str, why: str) -> None:
    config = tmp_path / "server.toml"
    config.write_text(text)
    done = run("pate-server", "--config", str(config))
    assert done.returncode == 2
    assert why in done.stderr


def test_json_stays_alone_on_the_standard_output(tmp_path: Path, run: Run) -> None:
    done = run("pate-server", "status", "--home", str(tmp_path), "--json")
    assert done.returncode == 12
    assert done.stdout == ""


def test_every_exit_code_is_its_own_and_has_a_line_in_the_docs() -> None:
    kinds = every_kind()
    codes = {kind.exit_code for kind in kinds.values()}
    table = (ROOT / "docs" / "operator.md").read_text()
    for name, kind in kinds.items():
        inherited = kind.exit_code == getattr(kind.__mro__[1], "exit_code", None)
        if not inherited:
            assert f"| {kind.exit_code} | `{name}` |" in table, name
    assert len(codes) == sum(f"| {code} | `" in table for code in codes)


def test_every_program_is_installed_under_its_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["scripts"]) == set(MAINS)


def test_a_new_campaign_is_ready_to_start(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a trial"
    done = run("pate", "new", str(place), "--parties", "north,south,west", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["commands"] == [
        "pate-server --config server.toml",
        *(f"pate-party start --config party.toml --data ./{n}" for n in ("north", "south", "west")),
        "pate-student train --public ./public.npz",
    ]
    # Every command stands in the file that is edited, and both roles find nothing wrong with theirs.
    text = (place / "server.toml").read_text()
    assert all(each in text for each in told["commands"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(place)
    for program, *words in (
        ("pate-server", "check", "--config", "server.toml", "--port", str(free_port())),
        (
            "pate-party", "check", "--config", "party.toml", "--data", "./north", "--server",
            "127.0.0.1:1",
        ),
    ):  # fmt: skip
        checked = run(program, *words)
        wrong = [
            line.split(":")[0] for line in checked.stdout.splitlines() if line.startswith("failed")
        ]
        # No server is there yet, which a party is told.
        assert wrong == ([] if program == "pate-server" else ["failed   server"]), checked.stdout
        assert (
            "public set: 500 inputs" in checked.stdout or "records: images 8x8x1" in checked.stdout
        )
    # A second one does not touch the first.
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    again = run("pate", "new", str(place))
    assert again.returncode == 2
    assert "is there already" in again.stderr
    assert before == {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("program", ["pate-server", "pate-party"])
def test_no_line_of_a_new_file_weakens_a_campaign_when_its_mark_is_removed(
    tmp_path: Path, run: Run, program: str
) -> None:
    """It states the default then; or, where other options decide the default, it must be completed."""
    place = tmp_path / "trial"
    assert run("pate", "new", str(place), "--parties", "3").returncode == 0
    file, group = {
        "pate-server": ("server.toml", aggregator_server.cli.main.app),
        "pate-party": ("party.toml", party.cli.main.app),
    }[program]
    commands = typer.main.get_command(group)
    assert isinstance(commands, click.Group)
    options = {
        each[2:]: option
        for option in commands.commands["start"].params
        for each in option.opts
        if isinstance(option, click.Option) and each.startswith("--")
    }
    lines = [each[1:] for each in (place / file).read_text().splitlines() if each[:1] == "#"]
    marked = [each for each in lines if each.split(" = ")[0] in options]
    assert len(marked) > 10
    open_choices = set()
    for line in marked:
        try:
            [(name, stated)] = tomllib.loads(line).items()
        except tomllib.TOMLDecodeError:
            continue  # a word in capitals stands for a number
        option = options[name]
        if not isinstance(option.type, click.Choice):
            assert option.default in (None, (), [], stated), line
        elif stated != option.default:
            open_choices.add(name)
            with pytest.raises(click.BadParameter):
                option.type.convert(stated, option, None)
    assert open_choices == (
        {"aggregation", "noise", "noise-law"} if program == "pate-server" else {"thousands"}
    )
    assert 'window = ["' not in "\n".join(lines)  # two numbers


def test_a_new_campaign_takes_a_public_set_of_its_own(tmp_path: Path, run: Run) -> None:
    public = tmp_path / "rows.csv"
    public.write_text("x\n1\n2\n")
    done = run("pate", "new", str(tmp_path / "a"), "--public", str(public), "--parties", "40")
    assert done.returncode == 0, done.stderr
    assert sorted(each.name for each in (tmp_path / "a").iterdir()) == ["party.toml", "server.toml"]
    stated = tomllib.loads((tmp_path / "a" / "server.toml").read_text())
    assert stated["public"] == str(public)
    assert stated["parties"] == "40"
    for wrong in (
        ("--parties", "0"), ("--parties", "a,../b"), ("--parties", "a,a"), ("--parties", "13"),
        ("--public", str(tmp_path / "no.csv")),
    ):  # fmt: skip
        refused = run("pate", "new", str(tmp_path / "b"), *wrong)
        assert refused.returncode == 2, wrong
        assert not (tmp_path / "b").exists()
