"""Records vote in rounds: what a round shows, what a record answers, and the next model."""
