"""A command: its options, its end, and imports exempt from garbage collection."""

from __future__ import annotations

import gc
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from pate.errors import UsageError
from pate.runtime.config import toml_value
from pate.runtime.forked import importing
from pate.runtime.options import CommandOptions, takes
from pate.start import INTERRUPTED

#: A signal arrives while text is executed, as in the making of a dataclass during an import.
_INTERRUPTED = """
import os, signal, typer
from pate.runtime.command import run
app = typer.Typer()
@app.command()
def command():
    exec("import time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)")
run(app, "pate-test")
"""


def test_a_command_that_is_stopped_within_an_import_has_its_exit_code(tmp_path: Path) -> None:
    """Run as ``python -m``, as all commands are in services: without care CPython ends it by SIGINT."""
    (tmp_path / "program.py").write_text(_INTERRUPTED)
    done = subprocess.run(
        [sys.executable, "-m", "program"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (INTERRUPTED, "pate-test: stopped\n")


#: A library swallows the interrupt, and goes on; the clean-up after the next one takes its time.
_SWALLOWED = """
import os, signal, time, typer
from pate.runtime.command import run
app = typer.Typer()
@app.command()
def command():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        pass
    try:
        time.sleep(60)
    finally:
        time.sleep(3)
        print("cleaned up")
run(app, "pate-test")
"""


def test_an_interrupt_that_is_swallowed_comes_again_and_leaves_the_clean_up_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(_SWALLOWED)
    done = subprocess.run(
        ["env", "--default-signal=INT", sys.executable, "-m", "program"],
        cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (
        INTERRUPTED,
        "cleaned up\n",
        "pate-test: stopped\n",
    )


#: The screen is slow: stops come while the last lines are written.
_FLUSHED = """
import os, signal, sys, typer
from pate.runtime.command import run
app = typer.Typer()
class Screen:
    def __init__(self, stream):
        self.stream = stream
    def __getattr__(self, name):
        return getattr(self.stream, name)
    def flush(self):
        os.kill(os.getpid(), signal.SIGTERM)
        self.stream.flush()
@app.command()
def command():
    print("done")
    sys.stdout = Screen(sys.stdout)
    if {stopped}:
        os.kill(os.getpid(), signal.SIGTERM)
run(app, "pate-test")
"""


@pytest.mark.parametrize(("stopped", "said"), [(False, ""), (True, "pate-test: stopped\n")])
def test_a_stop_while_the_last_lines_are_written_is_no_traceback(
    tmp_path: Path, stopped: bool, said: str
) -> None:
    (tmp_path / "program.py").write_text(_FLUSHED.format(stopped=stopped))
    done = subprocess.run(
        [sys.executable, "-m", "program"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "done\n", said)


def test_a_system_without_what_programs_need_is_named_first() -> None:
    probe = "import os; os.name = 'nt'; from pate.start import start; start('pate-party', 'absent')"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=False
    )
    said = "pate-party: this system is not supported: on Windows use WSL or a container\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@dataclass(frozen=True, kw_only=True)
class Base:
    place: Annotated[Path | None, typer.Option(help="Where.", metavar="DIR")] = None
    many: Annotated[list[str] | None, typer.Option(help="Which.")] = None
    seen: int = 7


@dataclass(frozen=True, kw_only=True)
class Needed(Base):
    place: Annotated[Path, typer.Option(help="Where.", metavar="DIR")] = field()


@dataclass(frozen=True, kw_only=True)
class Order(CommandOptions):
    loaves: Annotated[int, typer.Option(min=1, help="How many.")] = 2
    grain: Annotated[
        Literal["rye", "oats"] | None, typer.Option("--grain", "-g", help="Of what.")
    ] = None
    into: Annotated[Path | None, typer.Option(help="Where.", metavar="DIR")] = None


app = typer.Typer()
got: list[Base | Order] = []


@app.command()
@takes(Base)
def look(options: Base) -> None:
    """Look at one thing,

    and then at
    another.
    """
    got.append(options)


@app.command()
@takes(Needed)
def act(options: Needed) -> None:
    """Act."""
    got.append(options)


@app.command()
@takes(Order)
def bake(options: Order) -> None:
    """Bake bread."""
    got.append(options)


def said(*words: str) -> Result:
    got.clear()
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def test_a_command_gets_its_options_as_one_value() -> None:
    assert said("look").exit_code == said("look", "--many", "a", "--many", "b").exit_code == 0
    assert got == [Base(many=["a", "b"])]
    assert said("act", "--place", "here").exit_code == 0
    assert got == [Needed(place=Path("here"))]


def test_a_field_without_a_default_is_needed_and_one_without_an_option_is_none() -> None:
    missing = said("act")
    assert (missing.exit_code, "--place" in missing.output, got) == (2, True, [])
    assert said("look", "--seen", "8").exit_code == 2


def test_the_help_is_folded_where_it_is_shown() -> None:
    found = said("look", "--help").output
    assert "and then at another." in found
    assert "--place" in found
    assert "--seen" not in found


@pytest.mark.parametrize(
    ("words", "order"),
    [
        ([], Order()),
        (["--loaves", "3", "-g", "rye", "--json"], Order(loaves=3, grain="rye", as_json=True)),
        (["--into", "oven"], Order(into=Path("oven"))),
    ],
)
def test_what_is_typed_is_the_value(words: list[str], order: Order) -> None:
    assert said("bake", *words).exit_code == 0
    assert got == [order]


def test_a_file_is_read_and_what_is_typed_wins(tmp_path: Path) -> None:
    file = tmp_path / "order.toml"
    file.write_text('\ufeffloaves = 5\ngrain = "oats"\n')  # as Windows' editors save it
    assert said("bake", "--config", str(file), "--loaves", "4").exit_code == 0
    assert got == [Order(loaves=4, grain="oats", config=file)]


def test_the_help_is_of_the_fields_with_what_all_commands_share_last() -> None:
    text = said("bake", "--help").output
    words = ("Bake bread.", "--loaves", "How many.", "[default: 2]", "--grain", "-g", "[rye|oats]",
             "--into", "DIR", "--json", "--config")  # fmt: skip
    places = [text.index(each) for each in words if each.startswith("--")]
    assert all(each in text for each in words)
    assert places == sorted(places)


def test_a_value_that_cannot_be_is_refused(tmp_path: Path) -> None:
    few = said("bake", "--loaves", "0")
    assert (few.exit_code, "--loaves" in few.output, got) == (2, True, [])
    file = tmp_path / "order.toml"
    file.write_text('grain = "wheat"\n')
    for wrong in (said("bake", "-g", "wheat"), said("bake", "--config", str(file))):
        assert (wrong.exit_code, got) == (2, [])
        assert "'wheat' is not one of 'rye', 'oats'" in wrong.output


def test_a_file_with_a_misspelt_option_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "order.toml"
    file.write_text("loafs = 5\n")
    wrong = said("bake", "--config", str(file))
    assert isinstance(wrong.exception, UsageError)
    assert "no option is called 'loafs'; there are: config, grain" in str(wrong.exception)


def test_what_is_given_is_written_as_a_file_that_says_the_same(tmp_path: Path) -> None:
    file, again = tmp_path / "order.toml", tmp_path / "again.toml"
    typed = ("--loaves", "3", "--into", 'a "b"\\ \x7f\u00e9', "--json")
    assert said("bake", *typed, "--write-config", str(file)).exit_code == 0
    assert got == []  # it is written, and nothing is baked
    assert file.stat().st_mode & 0o077 == 0
    lines = file.read_text().splitlines()
    assert "# How many." in lines
    assert "loaves = 3" in lines
    assert '#grain = "CHOICE"' in lines  # not given, and none of them is a default
    assert not [line for line in lines if "json" in line]
    assert said("bake", "--config", str(file)).exit_code == 0
    assert got == [Order(loaves=3, into=Path(typed[3]), config=file)]
    # From a file to a file; and no file is replaced.
    assert said("bake", "--config", str(file), "--write-config", str(again)).exit_code == 0
    assert again.read_text().splitlines()[1:] == lines[1:]
    refused = said("bake", "--write-config", str(file))
    assert isinstance(refused.exception, UsageError)
    assert file.read_text().splitlines() == lines


@pytest.mark.parametrize("value", [True, 3, -1.5, "", "#", '"', ("a", "b\\"), (0, 4095)])
def test_each_value_is_written_as_toml_reads_it(value: object) -> None:
    said = tomllib.loads(f"x = {toml_value(value)}")["x"]
    assert said == (list(value) if isinstance(value, tuple) else value)


def test_garbage_is_collected_before_and_after_and_not_meanwhile() -> None:
    frozen = gc.get_freeze_count()
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen, "nothing was imported, so nothing is kept"
    with pytest.raises(ImportError), importing():
        raise ImportError
    assert gc.isenabled()


def test_what_was_imported_is_kept() -> None:
    code = (
        "import gc\n"
        "from pate.runtime.forked import importing\n"
        "with importing():\n"
        "    import numpy, http.server, asyncio, email.mime.text, xml.dom.minidom, unittest.mock\n"
        "print(gc.get_freeze_count() > 1000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


#: The interrupt arrives in a finalizer, which no exception can leave.
_IN_A_FINALIZER = """
import os, signal, time, typer
from pate.runtime.command import run
app = typer.Typer()
class Held:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
@app.command()
def command():
    Held()
    time.sleep(60)
run(app, "pate-test")
"""


def test_an_interrupt_within_a_finalizer_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_IN_A_FINALIZER)
    done = subprocess.run(
        ["env", "--default-signal=INT", sys.executable, "-m", "program"],
        cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (INTERRUPTED, "pate-test: stopped\n")
