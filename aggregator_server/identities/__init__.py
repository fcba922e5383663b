"""Identities: the server's authority and keys, and the enrolled parties."""

from aggregator_server.identities.store import (
    Identities,
    Member,
    require_identities,
    require_lasting_key,
    told_port,
)

__all__ = ["Identities", "Member", "require_identities", "require_lasting_key", "told_port"]
