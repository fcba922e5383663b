"""Privacy accounting: events, their costs, and the remaining budget."""
