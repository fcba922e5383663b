"""The Helm charts, rendered by Helm and validated against the schemas of Kubernetes."""

from __future__ import annotations

import copy
import tomllib
from typing import Any

import pytest

from tests.support.deploy_places import DEPLOY, documents
from tests.support.needs import require

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
