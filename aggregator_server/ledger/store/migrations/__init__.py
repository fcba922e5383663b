"""Alembic migrations of the ledger file, run by :mod:`aggregator_server.ledger.store.layout`."""
