"""The server's status page and metrics for a running campaign.

They show only what the campaign publishes anyway, and liveness: connected parties and the current
step. A campaign runs identically with and without the page.
"""
