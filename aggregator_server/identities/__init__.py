"""Who the server is, and who its parties are: authority, keys, and the enrolled parties."""

from aggregator_server.identities.store import (
    Identities,
    Member,
    require_identities,
    told_port,
)

__all__ = ["Identities", "Member", "require_identities", "told_port"]
