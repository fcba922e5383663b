"""Identities: the server's authority and keys, and the enrolled parties."""

from aggregator_server.identities.store import (
    Identities,
    Member,
    require_identities,
    told_port,
)

__all__ = ["Identities", "Member", "require_identities", "told_port"]
