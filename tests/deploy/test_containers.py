"""Container files and the compose trial: linted, and consistent with the commands they call."""

from __future__ import annotations

import http.server
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from aggregator_server.cli.main import app as server
from party.cli.main import app as party
from student.cli import app as student
from tests.support.deploy_places import DEPLOY, ROOT
from tests.support.needs import require

HEALTHY = DEPLOY / "containers" / "healthy.py"


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:/usr/bin:/bin")
    require(found is not None, name)
    return str(found)


def passes(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def compose() -> dict[str, Any]:
    made = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    assert isinstance(made, dict)
    return made


def test_the_linters_have_nothing_to_say() -> None:
    passes(tool("hadolint"), DEPLOY / "containers" / "Dockerfile")
    passes(tool("shellcheck"), *DEPLOY.rglob("*.sh"))
    rules = "{extends: relaxed, rules: {line-length: disable}}"
    plain = [path for path in DEPLOY.rglob("*.y*ml") if "templates" not in path.parts]
    passes(tool("yamllint"), "--strict", "-d", rules, *plain)
    passes(
        tool("check-jsonschema"),
        "--builtin-schema", "vendor.compose-spec",
        DEPLOY / "compose" / "compose.yaml",
    )  # fmt: skip


def test_the_builder_sees_the_packages_and_nothing_else() -> None:
    """Files not allowed by the ignore file may be keys, ledgers or data."""
    lines = (DEPLOY / "containers" / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    named = [line[1:] for line in rules if line.startswith("!")]
    assert all((ROOT / each).exists() for each in named)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = packages["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {each.rstrip("*") for each in wanted} <= set(named)
    assert all((ROOT / each).is_file() or f"{each}*" in wanted for each in named)


def test_every_service_is_locked_down() -> None:
    for name, service in compose()["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "PATE_UID" in service["user"], name
        published = service.get("ports", [])
        assert all(each.startswith("127.0.0.1:") for each in published), name


def test_no_party_sees_what_is_anothers() -> None:
    services = compose()["services"]
    homes = {
        name: {each.split(":")[0] for each in service["volumes"]}
        for name, service in services.items()
        if name in ("north", "south", "east", "west")
    }
    assert len(homes) == 4
    assert all(each.startswith(f"./trial/{name}/") for name, held in homes.items() for each in held)


def test_the_commands_of_the_trial_have_these_options() -> None:
    services = compose()["services"]
    config = tomllib.loads((DEPLOY / "compose" / "server.toml").read_text())
    command = typer.main.get_command(server)
    assert {each.replace("-", "_") for each in config} <= {each.name for each in command.params}
    for name, app in (("server", server), ("north", party), ("student", student)):
        words = services[name]["command"]
        asked = typer.main.get_command(app)
        if not words[0].startswith("--"):
            asked = asked.commands[words[0]]  # type: ignore[attr-defined]
        known = {option for each in asked.params for option in each.opts}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, name


@pytest.fixture
def port() -> Iterator[int]:
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        yield one.server_port
        one.shutdown()
        thread.join()


def test_the_health_check_tells_well_from_unwell_and_from_nobody(port: int) -> None:
    def check(url: str) -> int:
        command = [sys.executable, str(HEALTHY), url]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert check(f"http://127.0.0.1:{port}/healthz") == 0
    assert check(f"http://127.0.0.1:{port}/readyz") == 1
    assert check(f"https://127.0.0.1:{port}/healthz") == 1  # it speaks no TLS
    assert check("http://127.0.0.1:1/healthz") == 1
    assert check("http://192.0.2.1/healthz") == 2  # not this machine: never asked
