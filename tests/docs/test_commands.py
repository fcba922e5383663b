"""Every command of README and of the pages is typed, or read by the program's own command line.

A block of code has a language. Of `bash` and `console` each command is one of ours, whose options are then
checked, or known here with a reason. Of `python` each block runs. Whole pages run as they are printed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from aggregator_server.cli.main import app as server
from aggregator_server.results.report import entries, verify
from party.cli.main import app as party
from pate.encoders.encoder import read_description
from pate.errors import PateError
from pate.formats.labels import LabelSet
from pate.formats.privacy_statement import in_words, neighbours_of
from pate.runtime.child import free_port
from pate.runtime.command import program_of
from simulation.cli import app as pate
from student.cli import app as student
from tests.support.encoders import drawn_jpegs as drawn
from tests.support.encoders import tiny_encoders as tiny
from tests.support.hosts.network import Network, require_hosts
from tests.support.needs import others_slow
from tests.support.pages import PAGES, ROOT, blocks, blocks_of, commands, spans

if TYPE_CHECKING:
    from collections.abc import Sequence

#: All of a page on a loaded machine.
DEADLINE_S = 600
#: Between what two blocks of code print.
_NEXT = "--- next block ---"
LANGUAGES = {"bash", "console", "csv", "json", "python", "text", "toml", "yaml"}
APPS = {"pate": pate, "pate-server": server, "pate-party": party, "pate-student": student}
PROGRAMS = {name: program_of(app) for name, app in APPS.items()}
#: Programs of others, and why no test of pages types them.
OTHERS = {
    ".": "of the shell",
    "./setup.sh": "of deploy/compose, which has tests of its own",
    "age": "encrypts a copy; any program will do",
    "cat": "of the system",
    "cd": "of the shell",
    "createdb": "needs the database's owner",
    "createuser": "needs the database's owner",
    "docker": "needs a daemon; tests/deploy reads the same files",
    "echo": "of the shell",
    "helm": "needs a cluster; tests/deploy reads the charts",
    "install": "writes to /etc and /usr",
    "ls": "of the system",
    "openssl": "of the system",
    "optimum-cli": "of Hugging Face; it fetches models",
    "pip": "needs a package index; tests/docs/test_pages.py installs from a folder",
    "runuser": "needs the users that systemd makes",
    "scp": "needs another machine",
    "sleep": "of the system",
    "ssh": "needs another machine",
    "systemctl": "needs systemd; tests/deploy reads the units",
    "systemd-sysusers": "makes users of the system",
    "systemd-tmpfiles": "makes folders of the system",
    "tar": "of the system",
    "wait": "of the shell",
}
#: Entries of a ledger between the rounds of a campaign.
ROUNDS = ("round-end", "predictions", "close")
#: Commands of other pages that are typed where README's campaign has ended, whose public set is a file.
AFTER = (
    "pate-server export --out labels.json",
    "pate-server ledger backup --out /backup/server/2026-11-21T0300",
)
#: The same, of a server that has no campaign yet.
BEFORE = (
    "pate-server check --public ./public --parties 4 --epsilon 2 --delta 1e-5",
    "pate new --public ./public ./trial",
    (
        "pate plan --aggregator neighbour --expected-records 60000 --epsilon 0.5 --code dense "
        "--answer labels-2 --classes 9"
    ),
    "pate-server init --host pate.example.org",
    "pate-server enroll hospital_a",
)
COMMANDS = [
    (f"{page}:{block.line}", words)
    for page in PAGES
    for block in blocks_of(page)
    if block.language in ("bash", "console")
    for words in commands(block)
]


def test_every_block_has_a_language() -> None:
    for page in PAGES:
        assert {each.language for each in blocks_of(page)} <= LANGUAGES, page
        text = (ROOT / page).read_text(encoding="utf-8")
        assert len(re.findall("^ *```", text, re.MULTILINE)) == 2 * len(blocks_of(page)), page


def test_commands_of_pages_are_found() -> None:
    lines = {" ".join(words) for _, words in COMMANDS}
    assert len(COMMANDS) > 100
    assert {*AFTER, *BEFORE} <= lines


def test_each_command_is_one_that_programs_take() -> None:
    wrong = []
    for place, words in COMMANDS:
        try:
            require_taken(words)
        except (click.ClickException, PateError, AssertionError) as error:
            wrong.append(f"{place}: {' '.join(words)}: {error!r}")
    assert not wrong, "\n".join(wrong)


def require_taken(words: list[str]) -> None:
    """Require that a program takes a command, up to the point where it would begin."""
    if "--help" in words:
        return
    if words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
        return
    if words[0].startswith("python") and words[1] == "-m":
        assert importlib.util.find_spec(words[2])
        return
    # Ours may be within another's line: an image that is run, a program that another user runs.
    names = [PurePath(word).name.partition(":")[0] for word in words]
    at = next(
        (at for at, name in enumerate(names) if name in PROGRAMS and _is_run(words, at)), None
    )
    if at != 0:
        assert PurePath(words[0]).name in OTHERS or words[0] in OTHERS, f"not known: {words[0]}"
    if at is not None:
        _take(names[at], words[at + 1 :])


def _is_run(words: Sequence[str], at: int) -> bool:
    return at == 0 or (words[0] in ("docker", "runuser") and words[at - 1] not in ("-u", "-v"))


def _take(name: str, words: Sequence[str]) -> None:
    """Read a command as its program does, up to the point where it would begin."""
    if {"…", "..."} & set(words):  # further options
        _require_known([name, *words])
        return
    # A file of options is read at once.
    left = ["/dev/null" if at and words[at - 1] == "--config" else w for at, w in enumerate(words)]
    command, context = PROGRAMS[name], None
    while True:
        context = command.make_context(name, left, parent=context)
        if not isinstance(command, click.Group):
            break
        left = [*context._protected_args, *context.args]
        if not left:
            break
        name, command, left = command.resolve_command(context, left)  # type: ignore[assignment]
    _combine(command, context.params)


def _require_known(words: Sequence[str]) -> None:
    """Require that the command and each option of a part of a command line exist."""
    command, known = PROGRAMS[words[0]], set()
    for at, word in enumerate(words):
        if at and isinstance(command, click.Group) and word in command.commands:
            command = command.commands[word]
        elif at == 1 and isinstance(command, click.Group):
            assert not re.fullmatch("[a-z][a-z-]*", word), f"no command {word}"
        context = click.Context(command)
        known |= {o for p in command.get_params(context) for o in (*p.opts, *p.secondary_opts)}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words)))
    assert named <= known, f"no option {named - known}"


def _combine(command: click.Command, values: dict[str, Any]) -> None:
    """Apply the rules between the options of a command, where one value has them all."""
    called = inspect.unwrap(command.callback)  # type: ignore[arg-type] # typer gives one
    kind = inspect.getclosurevars(called).nonlocals.get("kind")
    if kind is not None:
        paths = {p.name for p in command.params if isinstance(p.type, click.Path)}
        kind(**{k: Path(v) if k in paths and isinstance(v, str) else v for k, v in values.items()})


@pytest.mark.parametrize(
    "line",
    [
        "pate-student train --out ./student",  # an option is missing
        "pate-student train --public ./public --servers a:1",
        "pate-student train --public ./public --server a:1 --labels labels.json",  # or the other
        "pate-server --parties 3 --epsilon little",
        "pate-party begin --data ./hospital_a",
        "pate-server --epsilons 3 …",
        "frobnicate ./public",
    ],
)
def test_a_command_that_no_program_takes_is_found(line: str) -> None:
    with pytest.raises((click.ClickException, PateError, AssertionError)):
        require_taken(line.split())


def test_commands_within_sentences_exist() -> None:
    for span in (each for page in PAGES for each in spans(page)):
        words = span.split()
        if words and words[0] in PROGRAMS:
            _require_known(words)


# What runs.


def typed(script: str, folder: Path, prefix: Sequence[str] = (), **variables: str) -> str:
    """Type a script into a shell of a folder; return all that was printed."""
    scripts = str(Path(sys.executable).parent)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PATE_")} | variables
    environment["OMP_NUM_THREADS"] = "1"
    if "activate" not in script:
        environment["PATH"] = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        [*prefix, "bash", "-c", f"set -eu\n{script}"], cwd=folder, env=environment, text=True,
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as reader:  # fmt: skip
        try:
            said, _ = reader.communicate(timeout=DEADLINE_S)
        finally:
            if reader.poll() is None:
                os.killpg(reader.pid, signal.SIGKILL)
    assert reader.returncode == 0, said
    return said


def runs(command: str, folder: Path, **variables: str) -> str:
    """Run a command in a folder to its good end, in this process: its imports take most of its time.

    Return what it printed.
    """
    name, *words = shlex.split(command)
    with contextlib.chdir(folder):
        ran = CliRunner(env=variables).invoke(PROGRAMS[name], words, prog_name=name)
    assert ran.exit_code == 0, (command, ran.output, ran.exception)
    return ran.output


def on_free_ports(script: str) -> str:
    """Return a page's script for a machine on which others may have the usual ports."""
    script = script.replace("9092", parties := str(free_port()))
    script = script.replace("9093", student := str(free_port()))
    return script.replace(
        "pate-server --public",
        f"pate-server {'' if 'envelope' in script else f'--port {parties} '}"
        f"--student-port {student} --page-port 0 --public",
    )


#: Tries what no part of a campaign may: an address of another machine, by IPv4 and by IPv6.
_STRAY = """
import contextlib, socket
for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
    with socket.socket(family, socket.SOCK_STREAM) as door, contextlib.suppress(OSError):
        door.connect((address, 443))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
    door.sendto(b"?", ("127.0.0.1", 53))
"""


@dataclass(frozen=True)
class First:
    """README's campaign.

    Attributes:
        folder: its working directory.
        state: variables of its environment.
        said: all that was printed.
        counted: by the kernel before it, after it, and after a connection to another machine was tried.
    """

    folder: Path
    state: dict[str, str]
    said: str
    counted: tuple[dict[str, int], ...]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> First:
    """README's campaign, typed as it is printed, but for fewer steps, on a machine without a way out."""
    require_hosts()
    folder = tmp_path_factory.mktemp("clone")
    (folder / ".venv").symlink_to(sys.prefix)
    (script,) = (each for each in blocks("README.md", "bash") if "pate new" in each)
    script = script.replace("pate-student train", "pate-student train --steps 10")
    state = {"XDG_STATE_HOME": str(folder / "state")}
    with Network(("machine",)) as network:
        machine = network["machine"]
        before = machine.counted()
        said = typed(script + "wait\n", folder, machine.prefix, **state)
        after = machine.counted()
        machine.run(sys.executable, "-c", _STRAY)
        return First(folder / "trial", state, said, (before, after, machine.counted()))


def test_readme_gives_a_student_as_it_is_printed(first: First) -> None:
    said = first.said
    assert (first.folder / "student" / "privacy.json").is_file()
    by_server = [line for line in said.splitlines() if " pate-server: " in line]
    assert said.count("public set: ./public.npz, found in this folder") == 1
    assert "the roster is complete: 3 parties" in said
    # A default budget is stated with all its terms.
    neighbours = neighbours_of("record", records_vote=False)
    assert in_words(2.0, 1e-5, "record", neighbours=neighbours) in said
    # Who leaves because the campaign has ended is no news, and nothing is said twice.
    assert "has left" not in said
    assert len(by_server) == len(set(by_server)) > 5


def test_nothing_of_a_campaign_looks_beyond_loopback(first: First) -> None:
    """Names are looked up by datagrams, maybe to a resolver on loopback; a campaign sends none."""
    before, after, strayed = first.counted
    ways = {"IpOutNoRoutes", "Ip6OutNoRoutes", "UdpOutDatagrams", "Udp6OutDatagrams"} & set(before)
    assert len(ways) >= 2
    assert {way: after[way] for way in ways} == {way: before[way] for way in ways}
    # And that is not because nothing would have been seen.
    for way in ways - {"Udp6OutDatagrams"}:
        assert strayed[way] > after[way]


def test_commands_of_other_pages_run_after_it(first: First) -> None:
    folder, state = first.folder, first.state
    for command in AFTER:
        runs(command.replace("/backup", "backup"), folder, **state)
    for command in BEFORE:
        other = {"XDG_STATE_HOME": str(folder / "other")}
        runs(command.replace("./public ", "./public.npz "), folder, **other)
    labels = LabelSet.from_json((folder / "labels.json").read_text())
    published = json.loads((folder / "student" / "privacy.json").read_text())
    assert published == json.loads(labels.privacy), "the student publishes what the server states"
    (place,) = (Path(state["XDG_STATE_HOME"]) / "pate" / "server").glob("campaign")
    assert published["ledger_head"] == verify(place, None)["head"]
    marks = [kind for each in entries(place) if (kind := each["kind"]) in ROUNDS]
    between = ["round-end", "predictions"] * (len(marks) // 2 - 1)
    assert marks == [*between, "round-end", "close"] != marks[:2], "it was asked between all rounds"
    assert (folder / "backup" / "server" / "2026-11-21T0300").is_dir()
    assert (folder / "hospital_a.bundle.json").is_file()


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ((), ["there is no public set", "./public", "public.npz", "--public PATH", "pate new"]),
        (("public.npz", "public.csv"), ["this folder has public.npz, public.csv", "--public"]),
    ],
)
def test_without_one_public_set_a_line_says_what_to_do(
    tmp_path: Path, there: tuple[str, ...], said: list[str]
) -> None:
    for name in there:
        (tmp_path / name).touch()
    ran = subprocess.run(
        [Path(sys.executable).parent / "pate-server", "--aggregator", "interactive-gnmax"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert all(each in line for each in said)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(there)


@dataclass(frozen=True)
class Photographs:
    """The campaign of the page of encoders; ``folder`` is its working directory, ``said`` all its output."""

    folder: Path
    said: str


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Photographs:
    """The campaign of the page of encoders, typed as it is printed; what runs by itself, in this process."""
    place = tmp_path_factory.mktemp("photographs")
    tiny.image_folder(place / "encoder", pixels=16, width=32)
    hospitals = [place / f"hospital_{name}" for name in "abc"]
    for at, folder in enumerate(hospitals):
        drawn.write(folder, 60, seed=at)
    drawn.write(place / "public", 60, seed=3, flat=True)
    drawn.write(place / "test", 30, seed=4)
    assert len(drawn.sizes(hospitals)) > 300
    # An encoder is here; the commands that export one fetch weights.
    steps = [each for each in blocks("docs/encoders.md", "bash") if "optimum-cli" not in each]
    campaign, wait, after = "".join(steps[1:]).partition("wait\n")
    said = [runs(each, place) for each in steps[0].splitlines()]
    said.append(typed(on_free_ports(campaign + wait), place))
    said += [runs(each, place) for each in after.splitlines()]
    assert len(said) == 5
    return Photographs(place, "".join(said))


@pytest.mark.slow
def test_the_end_of_the_quickstart_runs(photographs: Photographs) -> None:
    """After the campaign of another page, whose test set needs an encoder."""
    *_, script = blocks("docs/quickstart.md", "bash")
    script = script.replace("trial/test.npz", "test --encoder encoder").replace("trial/", "")
    said = [runs(each, photographs.folder) for each in script.splitlines()]
    assert len(said) == 4
    assert " inputs right" in said[0]
    assert "finished" in said[1]
    assert all(said)


@pytest.mark.slow
def test_a_stranger_gets_a_student_of_photographs_by_the_page_of_encoders(
    photographs: Photographs,
) -> None:
    tmp_path, said = photographs.folder, photographs.said
    right = re.search(r"([\d.]+)% of 90 inputs right", said)
    assert right is not None, said
    assert float(right[1]) > 60  # by chance a third of 90: 54 or more in less than one of a million
    statement = json.loads((tmp_path / "student" / "privacy.json").read_text())
    digest = read_description(tmp_path / "encoder").digest
    assert f"tiny, SHA-256 {digest}" in statement["encoder"]
    assert statement["epsilon"] == 2.0
    # Who has a folder is sent nothing; the two others have got it, and keep it.
    assert said.count("received the campaign's encoder") == 2
    assert not (tmp_path / "a" / "encoders").exists()
    for name in "bc":
        assert read_description(tmp_path / name / "encoders" / digest).digest == digest


@pytest.mark.slow
def test_the_page_of_envelopes_does_what_it_says(tmp_path: Path) -> None:
    said = typed(on_free_ports("".join(blocks("docs/envelopes.md", "bash"))), tmp_path)
    # Every file of the page, and no other: three for each party, of which two answers went back.
    post = tmp_path / "trial" / "post"
    assert len(list((post / "out").iterdir())) == 3
    assert len(list((post / "in").iterdir())) == 6
    for line in (
        "asks, in this order:",
        "what leaves: your name, classes, unit and number of teachers",
        "votes on 500 queries from hospital_a, hospital_b, hospital_c",
        "envelope 3 answered",
    ):
        assert line in said, line


#: Its code simulates eight campaigns. Those of ``simulation/test_library.py`` see the same faults.
LONG = "docs/library.md"


@pytest.mark.parametrize(
    "page",
    others_slow([page for page in PAGES if blocks(page, "python")], lambda page: page != LONG),
)
def test_the_code_of_a_page_runs(page: str) -> None:
    """All in one process, but for the code of the next test, and for code that fetches weights."""
    code = []
    for each in blocks(page, "python"):
        assert len([line for line in each.splitlines() if line.strip()]) <= 20
        compile(each, page, "exec")
        if "torchvision" not in each and "LabelSource" not in each:
            code.append(each)
    if code:
        script = f"print({_NEXT!r})\n".join(code)
        ran = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        printed = ran.stdout.split(f"{_NEXT}\n")
        assert len(printed) == len(code)
        assert all(printed)


def test_the_code_of_the_page_of_the_library_prints_what_it_says() -> None:
    page = "docs/library.md"
    (code,) = (each for each in blocks(page, "python") if "LabelSource" in each)
    # -X importtime names every module.
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    printed = ran.stdout.splitlines()
    # The noise is drawn anew each time. Nearly half of the queries pass the threshold until the budget
    # ends, after some 185 labels, of which a fortieth is wrong: fewer than 50 labels, or a fifth wrong,
    # come with a chance below 1e-9.
    assert int(printed[0].split()[0]) > 50
    share = re.match(r"([\d.]+)%", printed[1])
    assert share is not None
    assert float(share[1]) > 80
    terms = "; epsilon 2 at delta 1e-05 (unit: record; adjacency: one record added or removed;"
    assert terms in printed[0]
    said = [each for each in blocks(page, "text") if "labels of" in each]
    assert all(each.partition(";")[2].splitlines()[0] in printed[0] for each in said)
    modules = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert not {"flwr", "torch", "grpc"} & modules


def test_shell_of_pages_is_read_as_a_shell_does() -> None:
    (block,) = (each for each in blocks_of("docs/envelopes.md") if "cat >" in each.code)
    assert next(iter(commands(block))) == ["cat"]
    assert shlex.join(list(commands(block))[-1]).startswith("pate-party answer ")
