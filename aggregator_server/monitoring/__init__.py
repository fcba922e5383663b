"""The server's page: what an operator sees of a campaign while it runs, and what a monitor reads.

Everything shown is public by the campaign's own promise, or says who is here and what is going on.
Nothing here decides anything: a campaign runs the same with the page and without.
"""
