"""The rows of the papers, run again with this project: data, settings, figures."""
