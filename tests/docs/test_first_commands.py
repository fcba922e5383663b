"""The documented first commands, run literally on a fresh machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pate.formats.privacy_statement import in_words, neighbours_of
from simulation.programs import Program, Surroundings
from tests.support.hosts.network import Network, require_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e
HOSPITALS = ("hospital_a", "hospital_b", "hospital_c")


class Terminal:
    """Types commands in a folder, with the ports that everybody has, and a state directory of its own."""

    def __init__(self, folder: Path, prefix: tuple[str, ...]) -> None:
        self.folder, self.place, self._prefix = folder, folder, prefix
        self.programs: list[Program] = []

    def type(self, line: str) -> Program:
        name, *words = shlex.split(line)
        command = [*self._prefix, str(Path(sys.executable).parent / name), *words]
        state = {"XDG_STATE_HOME": str(self.folder / "state")}
        around = Surroundings(state, folder=self.place)
        self.programs.append(Program(self.folder, name, command, around=around))
        return self.programs[-1]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    require_hosts()
    with Network(("machine",)) as network:
        typed = Terminal(tmp_path, network["machine"].prefix)
        try:
            yield typed
        finally:
            for program in typed.programs:
                program.sweep()


def test_server_and_parties_need_nothing_but_their_data(terminal: Terminal) -> None:
    terminal.type("pate sample trial").ends(0)
    terminal.place = terminal.folder / "trial"
    server = terminal.type("pate-server --aggregator interactive-gnmax")
    parties = [terminal.type(f"pate-party start --data ./{name}") for name in HOSPITALS]
    server.says("for the student: ")
    assert server.text.count("public set: ./public.npz, found in this folder") == 1
    # A default budget is stated with all its terms.
    neighbours = neighbours_of("record", records_vote=False)
    assert in_words(2.0, 1e-5, "record", neighbours=neighbours) in server.text
    assert "3 parties" in server.text
    assert "--server 127.0.0.1:9092" not in server.text  # a party looks there by itself
    server.says("the roster is complete: 3 parties")
    student = terminal.type(
        "pate-student train --server 127.0.0.1:9093 --public public.npz --out student --steps 30"
    )
    for program in (*parties, student, server):
        program.ends(0)
    assert (terminal.place / "student" / "privacy.json").is_file()
    # Who leaves because the campaign has ended is no news, and nothing is said twice in a row.
    assert "has left" not in server.text
    for program in (*parties, server):
        assert len(program.lines) == len(set(program.lines)), program.text


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ((), ["there is no public set", "./public", "public.npz", "--public PATH", "pate sample"]),
        (("public.npz", "public.csv"), ["this folder has public.npz, public.csv", "--public"]),
    ],
)
def test_without_one_public_set_a_line_says_what_to_do(
    tmp_path: Path, there: tuple[str, ...], said: list[str]
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    for name in there:
        (place / name).touch()
    terminal = Terminal(tmp_path, ())
    terminal.place = place
    server = terminal.type("pate-server --aggregator interactive-gnmax")
    server.ends(2)
    (line,) = server.lines
    assert all(each in line for each in said)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "pate-server.log", "pate-server.out", "place",
    ]  # fmt: skip
