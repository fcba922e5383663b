"""Admission of requests from parties' nodes: signed, in answer to the server, and bounded."""
