"""Whole campaigns on one machine: the ``pate`` command, demo, simulation and audits."""
