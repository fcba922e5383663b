"""Admission at the SuperLink: exactly the SuperNodes of the enrolled parties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from aggregator_server.flower.internals import (
    ControlClient,
    ListNodesRequest,
    RegisterNodeRequest,
    UnregisterNodeRequest,
)
from pate.formats.enrolment import node_key

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from aggregator_server.identities import Member

_GONE: Final = "unregistered"


@dataclass(frozen=True)
class Changed:
    """The result of an update of a SuperLink's admissions."""

    keys: frozenset[bytes]  # the node keys (PEM) that it admits now
    names: Mapping[int, str]  # the enrolled party of each node id that it admits now
    # ids of nodes that are excluded from now on. Their names are omitted: anyone with access to the
    # SuperLink's interface for operators can choose them
    went: tuple[int, ...]


def let_in(address: str, trust: ssl.SSLContext | None, members: Mapping[str, Member]) -> Changed:
    """Make the SuperLink at ``address`` admit the nodes of ``members``, and no others.

    Its current nodes are read first, so the next call completes an interrupted one. Nodes are
    removed before others are added.
    """
    wanted = {pem(member.node): member.name for member in members.values()}
    with ControlClient(address, trust) as control:
        known = _nodes(control)
        went = []
        for key, node in known.items():
            if key not in wanted:
                _shut_out(control, node)
                went.append(node)
        names = {}
        for key, name in wanted.items():
            if key in known:
                names[known[key]] = name
            else:
                request = RegisterNodeRequest(public_key=key, name=name)
                names[control.RegisterNode(request).node_id] = name
    return Changed(frozenset(wanted), names, tuple(went))


def _nodes(control: ControlClient) -> dict[bytes, int]:
    """Return the admitted nodes: id by public key."""
    return {
        node.public_key: node.node_id
        for node in control.ListNodes(ListNodesRequest()).nodes_info
        if node.status != _GONE
    }


def _shut_out(control: ControlClient, node: int) -> None:
    try:
        control.UnregisterNode(UnregisterNodeRequest(node_id=node))
    except httpx.HTTPStatusError:
        # For a node that never connected, an in-memory SuperLink fails after excluding it.
        if node in _nodes(control).values():
            raise


def pem(node: bytes) -> bytes:
    """Return a node key in Flower's encoding."""
    return node_key(node).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
