"""The ``pate`` command. The one place that knows all roles; nothing imports it.

What it starts are the roles' own programs, so that what a newcomer sees is what a hospital runs.
"""
