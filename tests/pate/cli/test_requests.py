"""A command whose options are the fields of one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pate.runtime.command import command_over, option


@dataclass(frozen=True, kw_only=True)
class Order:
    loaves: int = option("How many.", default=2, min=1)
    grain: str | None = option("Of what.", *("--grain", "-g"))
    into: Path | None = option("Where.", metavar="DIR")  # noqa: RUF009


def typed(*words: str) -> tuple[int, str, list[tuple[Order, bool]]]:
    seen: list[tuple[Order, bool]] = []

    @command_over(Order)
    def bake(order: Order, *, as_json: bool) -> None:
        """Bake bread."""
        seen.append((order, as_json))

    app = typer.Typer()
    app.command()(bake)
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "120"})
    return done.exit_code, done.output, seen


@pytest.mark.parametrize(
    ("words", "order", "as_json"),
    [
        ([], Order(), False),
        (["--loaves", "3", "-g", "rye", "--json"], Order(loaves=3, grain="rye"), True),
        (["--into", "oven"], Order(into=Path("oven")), False),
    ],
)
def test_what_is_typed_is_the_value(words: list[str], order: Any, as_json: bool) -> None:
    assert typed(*words)[2] == [(order, as_json)]


def test_a_file_is_read_and_what_is_typed_wins(tmp_path: Path) -> None:
    file = tmp_path / "order.toml"
    file.write_text('loaves = 5\ngrain = "oats"\n')
    assert typed("--config", str(file), "--loaves", "4")[2] == [
        (Order(loaves=4, grain="oats"), False)
    ]


def test_the_help_is_of_the_fields_and_a_wrong_value_is_refused() -> None:
    _, text, _ = typed("--help")
    for words in (
        "Bake bread.",
        "How many.",
        "[default: 2]",
        "--grain",
        "-g",
        "DIR",
        "--json",
        "--config",
    ):
        assert words in text
    code, text, seen = typed("--loaves", "0")
    assert (code, seen) == (2, [])
    assert "--loaves" in text
