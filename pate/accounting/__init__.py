"""Privacy accounting: what was done (events), what it costs, and what is left of a budget."""
