"""Reproduction of the papers' tables with this project: data, settings, figures."""
