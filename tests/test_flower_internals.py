"""The names that we use of Flower: a version that moves one of them fails here.

Flower promises to keep what ``flwr.app``, ``flwr.clientapp`` and ``flwr.serverapp`` export. All
else that we use of it is listed below and imported by a few modules only.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from aggregator_server.flower.internals import SUPERLINK_MAIN
from party.flower.internals import SUPERNODE_MAIN

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.simulation"}
BEHIND_THE_DOOR = {
    "protos/flower/runtime.py": {
        "flwr.common.constant": {"ErrorCode", "SubStatus"},
        "flwr.proto.runtime_pb2": {
            "AcquireTaskRequest",
            "PushTaskOutputRequest",
            "SendTaskHeartbeatRequest",
        },
        "flwr.proto.message_pb2": {"ObjectTree"},
        "flwr.proto.task_pb2": {"Task"},
        "flwr.supercore.constant": {"TaskType"},
        "flwr.supercore.heartbeat": {"HeartbeatSender"},
        "flwr.supercore.inflatable.inflatable_object": {"iterate_object_tree"},
        "flwr.supercore.interceptors": {
            "RuntimeTokenHttpInterceptor",
            "SuperExecAuthHttpInterceptor",
        },
        "flwr.supercore.protobuf.client": {"ProtobufClient", "ProtobufClientInterceptor"},
        "flwr.supercore.runtime": {"RuntimeHttpClient"},
    },
    "aggregator_server/flower/internals.py": {
        "flwr.app.message": {"make_message"},
        "flwr.common.constant": {"SUPERLINK_NODE_ID", "TIMESTAMP_HEADER"},
        "flwr.common.serde": {"fab_to_proto"},
        "flwr.proto.control_pb2": {"StartRunRequest"},
        "flwr.proto.fleet_pb2": {
            "ActivateNodeResponse",
            "DeactivateNodeRequest",
            "PullMessagesRequest",
        },
        "flwr.supercore.constant": {"FLEET_HTTP_PUBLIC_KEY_HEADER", "FLEET_HTTP_SIGNATURE_HEADER"},
        "flwr.supercore.control": {"ControlHttpClient"},
        "flwr.supercore.error": {"ApiErrorCode"},
        "flwr.supercore.fab": {"Fab"},
        "flwr.supercore.inflatable.inflatable_utils": {"ObjectPushError"},
    },
    "aggregator_server/flower/superlink.py": {
        "flwr.proto.control_pb2": {
            "ListNodesRequest", "RegisterNodeRequest", "UnregisterNodeRequest",
        },
    },
    "aggregator_server/flower/grid.py": {
        "flwr.common.serde": {"run_from_proto"},
        "flwr.proto.message_pb2": {
            "ConfirmMessageReceivedRequest", "Message", "Metadata", "ObjectTree",
        },
        "flwr.proto.runtime_pb2": {"PullAppMessagesRequest", "PullTaskInputRequest"},
        "flwr.supercore.inflatable.inflatable_protobuf_utils": {"make_pull_object_fn_protobuf"},
        "flwr.supercore.inflatable.inflatable_utils": {
            "ObjectPullError",
            "ObjectUnavailableError",
            "inflate_object_from_contents",
            "pull_objects",
        },
        "flwr.superlink.grid": {"HttpGrid"},
    },
    "aggregator_server/flower/fleet/requests.py": {
        "flwr.proto.fab_pb2": {"GetFabRequest"},
        "flwr.proto.fleet_pb2": {
            "ActivateNodeRequest", "ActivateNodeResponse", "DeactivateNodeRequest",
            "PullMessagesRequest", "PullMessagesResponse", "PushMessagesRequest",
            "PushMessagesResponse", "RegisterNodeFleetRequest", "UnregisterNodeFleetRequest",
        },
        "flwr.proto.heartbeat_pb2": {"SendNodeHeartbeatRequest"},
        "flwr.proto.message_pb2": {
            "ConfirmMessageReceivedRequest",
            "PullObjectRequest",
            "PushObjectRequest",
            "PushObjectResponse",
        },
        "flwr.proto.run_pb2": {"GetRunRequest"},
    },
    "aggregator_server/flower/fleet/traffic.py": {"flwr.proto.message_pb2": {"ObjectTree"}},
    "party/flower/internals.py": {
        "flwr.common.serde": {"context_from_proto", "message_from_proto"},
        "flwr.proto.message_pb2": {"ObjectTree"},
        "flwr.proto.node_pb2": {"Node"},
        "flwr.proto.runtime_pb2": {"PullAppMessagesRequest", "PullTaskInputRequest"},
        "flwr.proto.task_pb2": {"Task"},
        "flwr.supercore.error": {"ApiErrorCode"},
        "flwr.supercore.inflatable.inflatable_protobuf_utils": {
            "make_confirm_message_received_fn_protobuf",
            "make_pull_object_fn_protobuf",
        },
        "flwr.supercore.inflatable.inflatable_utils": {
            "ObjectPullError",
            "ObjectPushError",
            "pull_and_inflate_object_from_tree",
        },
        "flwr.supernode.runtime.run_clientapp": {"push_message"},
    },
    "party/flower/supernode_process.py": {
        "flwr.supercore.inflatable.inflatable_utils": {
            "ObjectPullError",
            "ObjectUnavailableError",
        },
        "flwr.supernode.cli.flower_supernode": {"flower_supernode"},
        "flwr.supernode.fleet_http_connection": {"http_request_response"},
        "flwr.supernode.main": {"create_app"},
        "flwr.supernode.servicer.runtime.runtime_handlers": {"acquire_task"},
        "flwr.supernode.start_client_internal": {"start_client_internal"},
    },
}  # fmt: skip


def imported_from_flower(path: Path) -> dict[str, set[str]]:
    """Modules of Flower that a file imports from, and the names that it takes."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "flwr"]
            assert not names, f"{path}: name what is taken from {names}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr":
            found.setdefault(node.module or "", set()).update(a.name for a in node.names)
    return found


def test_only_the_listed_modules_look_behind_the_door() -> None:
    rooms = ("pate", "party", "aggregator_server", "student", "protos", "simulation")
    for path in (path for room in rooms for path in (ROOT / room).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        found = {k: v for k, v in imported_from_flower(path).items() if k not in PUBLIC}
        assert found == BEHIND_THE_DOOR.get(name, {}), name


@pytest.mark.parametrize("module", sorted({m for table in BEHIND_THE_DOOR.values() for m in table}))
def test_flower_still_has_what_is_listed(module: str) -> None:
    names = set().union(*(table.get(module, set()) for table in BEHIND_THE_DOOR.values()))
    missing = {name for name in names if not hasattr(importlib.import_module(module), name)}
    assert not missing, f"this Flower has no {missing} in {module}"


@pytest.mark.parametrize("target", [SUPERLINK_MAIN, SUPERNODE_MAIN])
def test_the_programs_that_run_as_children_are_still_there(target: str) -> None:
    module, _, function = target.partition(":")
    assert callable(getattr(importlib.import_module(module), function))
