"""Containers, charts and units: checked by their own tools, and consistent with the commands they call."""

from __future__ import annotations

import copy
import http.server
import re
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
from pate import errors
from student.cli import app as student
from tests.support.deploy_places import DEPLOY, ROOT, documents
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


CHARTS = DEPLOY / "helm"
#: Oldest and newest release of Kubernetes whose schemas validate the manifests.
RELEASES = ("1.29.0", "1.35.0")
SERVER: dict[str, Any] = {
    "publicSet": {"claim": "public"},
    "campaign": {"parties": "north,south,west", "rounds": 2, "vote-proofs": True, "delta": 1e-5},
    "identity": {"hosts": ["pate.example.org"]},
}
PARTY: dict[str, Any] = {
    "name": "hospital_a",
    "data": {"claim": "records", "path": "train.npz"},
    "bundleSecret": "bundle",
}
VALUES = {"pate-server": SERVER, "pate-party": PARTY}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("pate-server", {}),
    ("pate-server", {"identity": {"hosts": [], "existingSecret": "identity"}}),
    ("pate-server", {"fleet": {"type": "ClusterIP"}, "persistence": {"existingClaim": "mine"}}),
    ("pate-server", {"networkPolicy": {"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}}),
    ("pate-party", {}),
    ("pate-party", {"gpu": {"enabled": True, "runtimeClassName": "nvidia"}, "bundleSecret": ""}),
    ("pate-party", {"metrics": {"expose": True, "from": [{"podSelector": {}}]}}),
    ("pate-party", {"networkPolicy": {"server": {"cidrs": ["192.0.2.1/32"]}, "dns": []}}),
]


def helm() -> Any:
    try:
        import helm_python
    except ImportError:
        require(False, "helm-python-sdk, to render charts")
    return helm_python


def merged(chart: str, changes: dict[str, Any]) -> dict[str, Any]:
    values = copy.deepcopy(VALUES[chart])
    for name, value in changes.items():
        if isinstance(value, dict):
            values[name] = values.get(name, {}) | value
        else:
            values[name] = value
    return values


def rendered(chart: str, changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The manifests by kind; each chart has one of a kind."""
    made = (
        helm()
        .Chart.load(CHARTS / chart)
        .render(merged(chart, changes), name="trial", namespace="pate")
    )
    found = [
        each for name, text in made.items() if name.endswith(".yaml") for each in documents(text)
    ]
    by_kind = {each["kind"]: each for each in found}
    assert len(by_kind) == len(found)
    return by_kind


def pod_of(manifests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (workload,) = (manifests[kind] for kind in ("Job", "StatefulSet") if kind in manifests)
    pod = workload["spec"]["template"]["spec"]
    assert isinstance(pod, dict)
    return pod


@pytest.mark.parametrize(("chart", "changes"), VARIANTS)
def test_every_variant_is_made_of_valid_manifests(chart: str, changes: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for manifest in rendered(chart, changes).values():
        for release in RELEASES:
            validate.validate(manifest, release, strict=True)


@pytest.mark.parametrize("chart", VALUES)
def test_helm_has_nothing_against_the_chart(chart: str) -> None:
    report = helm().lint(CHARTS / chart, VALUES[chart], strict=True)
    assert report["errors"] == []
    assert [each for each in report["messages"] if each["severity"] > 1] == []


@pytest.mark.parametrize(("chart", "changes"), VARIANTS)
def test_pods_are_restricted_and_write_nowhere_but_where_they_are_told(
    chart: str, changes: dict[str, Any]
) -> None:
    pod = pod_of(rendered(chart, changes))
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    for container in (*pod["containers"], *pod["initContainers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {at["mountPath"] for at in container["volumeMounts"] if not at.get("readOnly")}
        assert writable == {"/var/lib/pate", "/tmp"}  # noqa: S108 - the mount's name
    assert all("hostPath" not in volume for volume in pod["volumes"])


def test_the_fleet_port_of_the_server_is_all_that_is_open() -> None:
    manifests = rendered("pate-server", {})
    (port,) = manifests["Service"]["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (9092, "fleet")
    policy = manifests["NetworkPolicy"]["spec"]
    assert policy["ingress"] == [{"ports": [{"port": "fleet", "protocol": "TCP"}]}]
    assert policy["egress"] == []
    (container,) = pod_of(manifests)["containers"]
    assert [each["containerPort"] for each in container["ports"]] == [9092]
    assert not any(each.startswith("--page-host") for each in container["args"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["exec"]["command"][1].startswith("http://127.0.0.1:9094/")


def test_nobody_calls_a_party_and_a_party_calls_the_server() -> None:
    policy = rendered("pate-party", {})["NetworkPolicy"]["spec"]
    assert policy["ingress"] == []
    opened = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert opened == {9092, 53}


def test_options_arrive_as_they_were_written() -> None:
    config = tomllib.loads(rendered("pate-server", {})["ConfigMap"]["data"]["server.toml"])
    assert config == {
        "public": "/public/public.npz", "aggregator": "confident-gnmax",
        "parties": "north,south,west", "epsilon": 2, "delta": 1e-5, "rounds": 2,
        "vote-proofs": True,
    }  # fmt: skip
    party = rendered("pate-party", {})["ConfigMap"]["data"]
    assert tomllib.loads(party["party.toml"]) == {"name": "hospital_a", "teachers": 50}
    assert tomllib.loads(party["policy.toml"])["aggregation"] == ["masked"]


def test_those_options_exist() -> None:
    """A misspelt one in the charts' defaults would stop every pod."""
    import typer

    from aggregator_server.cli.main import app as server
    from party.cli.main import app as party

    known = {each.name for each in typer.main.get_command(server).params}
    values = helm().Chart.load(CHARTS / "pate-server").values
    assert {name.replace("-", "_") for name in values["campaign"]} <= known
    command = typer.main.get_command(party)
    start = command.commands["start"]  # type: ignore[attr-defined]
    options = {opt for each in start.params for opt in each.opts}
    (container,) = pod_of(rendered("pate-party", {}))["containers"]
    assert {arg.partition("=")[0] for arg in container["args"][1:]} <= options


def test_a_gpu_is_asked_for_and_used() -> None:
    pod = pod_of(rendered("pate-party", {"gpu": {"enabled": True}}))
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert container["resources"]["limits"]["memory"] == "16Gi"
    assert container["image"].endswith("-cuda")
    assert "--device=cuda" in container["args"]


@pytest.mark.parametrize(
    ("chart", "changes"),
    [
        ("pate-server", {"identity": {"hosts": []}}),
        ("pate-server", {"identity": {"existingSecret": "both"}}),
        ("pate-server", {"identity": {"hosts": ["x; rm -rf /"]}}),
        ("pate-server", {"campaign": {"parties": ""}}),
        ("pate-server", {"campaign": {"host": "0.0.0.0"}}),  # noqa: S104 - refused
        ("pate-server", {"publicSet": {"claim": ""}}),
        ("pate-server", {"image": {"digest": "sha256:abc"}}),
        ("pate-server", {"presistence": {}}),
        ("pate-party", {"name": "two words"}),
        ("pate-party", {"metrics": {"expose": True}}),
        ("pate-party", {"options": {"policy": "none"}}),
    ],
)
def test_values_that_cannot_be_meant_are_refused(chart: str, changes: dict[str, Any]) -> None:
    made = helm()
    with pytest.raises(made.HelmError):
        made.Chart.load(CHARTS / chart).validate_schema(merged(chart, changes))


UNITS = DEPLOY / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
#: Most that `systemd-analyze security` may say of a unit: 0 is locked up, 10 is wide open.
MOST_EXPOSED = 1.5


def analyze(*arguments: str | Path) -> str:
    program = shutil.which("systemd-analyze")
    require(program is not None, "systemd-analyze")
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "unit",
    [*SERVICES, *sorted(UNITS.glob("*.timer")), *sorted(UNITS.glob("*.path"))],
    ids=lambda path: path.name,
)
def test_a_unit_is_understood_whole(unit: Path) -> None:
    said = analyze("verify", "--man=no", "--recursive-errors=no", unit)
    # The program lies where the operator installs it, and not here.
    odd = [line for line in said.splitlines() if not re.search(r"/opt/pate/\S+ is not exec", line)]
    assert odd == []


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_a_unit_is_locked_up(unit: Path) -> None:
    said = analyze("security", "--offline=true", unit)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert found, said
    assert float(found[1]) <= MOST_EXPOSED


def test_what_no_restart_can_mend_is_not_tried_again() -> None:
    """The same codes as in docs/operator.md; others are trouble that passes."""
    final = {
        each.exit_code
        for each in (
            errors.UsageError, errors.DataError, errors.SchemaError, errors.StateError,
            errors.BudgetError, errors.AccountingError, errors.LedgerError, errors.RefusedError,
        )
    }  # fmt: skip
    for name in ("pate-server.service", "pate-party@.service"):
        line = re.search(
            r"^RestartPreventExitStatus=(.*)$", (UNITS / name).read_text(), re.MULTILINE
        )
        assert line, name
        assert {int(code) for code in line[1].split()} == final
